package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coopsqlite/coopsqlite"
)

// Many rows by one statement, as it is and through Bulk.

const (
	bulkTables = `CREATE TABLE source (id INTEGER PRIMARY KEY, name TEXT NOT NULL, quantity INTEGER NOT NULL);
		CREATE TABLE target (id INTEGER PRIMARY KEY, name TEXT NOT NULL, quantity INTEGER NOT NULL);`
	copyRows = `INSERT INTO target (id, name, quantity) SELECT id, name, quantity FROM source`
	// With the same columns on both sides and a *, SQLite copies the table
	// without looking at its rows (https://sqlite.org/src/file/src/insert.c,
	// xferOptimization); but not into a table that has triggers.
	transferRows = `INSERT INTO target SELECT * FROM source`
	deleteRows   = `DELETE FROM target`
)

// bulkSchema makes two tables, the first with so many rows.
func bulkSchema(rows int) string {
	return bulkTables + fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
		INSERT INTO source SELECT i, 'a name of some length', i FROM n`, rows)
}

// A statement runs one statement on a store, in a transaction of its own.
type statement func(query string) error

func plainly(p pools) (statement, error) {
	return func(query string) error {
		_, err := p.write.ExecContext(context.Background(), query)
		return err
	}, nil
}

// inTransaction is what throughBulk is without Bulk: BEGIN, the statement,
// COMMIT. SQLite then keeps what it needs to undo the statement alone, which
// costs it some percent.
func inTransaction(p pools) (statement, error) {
	return func(query string) error {
		tx, err := p.write.BeginTx(context.Background(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after a commit there is nothing left to roll back
		if _, err := tx.ExecContext(context.Background(), query); err != nil {
			return err
		}
		return tx.Commit()
	}, nil
}

func throughBulk(p pools) (statement, error) {
	store, err := coopsqlite.StoreOf(p.write)
	if err != nil {
		return nil, err
	}
	return func(query string) error {
		return store.Bulk(context.Background(), []string{"target"}, func(tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(context.Background(), query)
			return err
		})
	}, nil
}

const (
	bulkName    = "coopsqlite, Bulk"
	mattnTxName = "mattn, BEGIN and COMMIT"
)

func bulkWorkloads() []*workload {
	return []*workload{
		{
			family: "bulk", name: "INSERT … SELECT", unit: "row", baseline: mattn.name, slices: 10, keep: true,
			what:     "100,000 rows from one table into another, empty one, commit included.",
			subjects: bulkSubjects(copyRows, deleteRows, 100_000),
			budgets: []budget{
				speed("", coop.name, mattn.name, 0.5),
				speed("through Bulk, against mattn in a transaction", bulkName, mattnTxName, 0.97),
			},
		},
		{
			family: "bulk", name: "INSERT … SELECT *, same columns", unit: "row", baseline: mattn.name, slices: 4, keep: true,
			what:     "The same, as SQLite can do it without looking at the rows if the table has no triggers.",
			subjects: bulkSubjects(transferRows, deleteRows, 100_000),
		},
		{
			family: "bulk", name: "DELETE FROM t", unit: "row", baseline: mattn.name, slices: 8, keep: true,
			what:     "All of 300,000 rows, without WHERE, commit included.",
			subjects: bulkSubjects(deleteRows, transferRows, 300_000),
			budgets:  []budget{speed("through Bulk, against mattn in a transaction", bulkName, mattnTxName, 0.97)},
		},
	}
}

// bulkSubjects time one statement and undo it, outside the clock, by another.
func bulkSubjects(work, undo string, rows int) []subject {
	mk := func(name string, c contender, how func(pools) (statement, error)) subject {
		s := each(bulkSchema(rows), func(p pools) (func() (sample, error), error) {
			exec, err := how(p)
			if err != nil {
				return nil, err
			}
			quick := exec // the way to undo; its cost is not counted
			if c.driver == coop.driver {
				if quick, err = throughBulk(p); err != nil {
					return nil, err
				}
			}
			if work == deleteRows {
				if err := quick(undo); err != nil {
					return nil, err
				}
			}
			return func() (sample, error) {
				// Everybody starts with an empty log.
				if _, err := p.write.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
					return sample{}, err
				}
				begin := startWatch()
				err := exec(work)
				measured := begin.sample(rows)
				return measured, errors.Join(err, quick(undo))
			}, nil
		}, c)[0]
		s.name = name
		return s
	}
	return []subject{
		mk(coop.name, coop, plainly),
		mk(bulkName, coop, throughBulk),
		mk(coopOff.name, coopOff, plainly),
		mk(mattn.name, mattn, plainly),
		mk(mattnTxName, mattn, inTransaction),
	}
}
