package main

import (
	"context"
	"database/sql"
)

// Statements one after the other, on one connection.

const (
	itemsSchema = `CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL, quantity INTEGER NOT NULL)`
	insertItem  = `INSERT INTO items (name, quantity) VALUES (?, ?)`
	itemName    = "a name of some length"
)

func statementWorkloads() []*workload {
	contenders := []contender{coop, coopOff, mattn, mattnCached}
	make := func(name, what string, prepare func(pools) (func() (sample, error), error), b ...budget) *workload {
		return &workload{family: "statements", name: name, what: what, unit: "row", baseline: mattn.name,
			subjects: each(itemsSchema, prepare, contenders...), slices: 24, budgets: b}
	}
	return []*workload{
		make("autocommit", "One INSERT per transaction, through db.ExecContext with a cancellable context of its own.",
			autocommit, speed("", coop.name, mattn.name, 1.3)),
		make("unprepared in a transaction", "1,000 INSERTs through tx.ExecContext, one cancellable context.",
			inTx(unprepared, true), speed("", coop.name, mattn.name, 2)),
		make("prepared in a transaction, cancellable", "4,000 INSERTs through one prepared statement, one cancellable context.",
			inTx(prepared, true), speed("", coop.name, mattn.name, 1.3)),
		make("prepared in a transaction, background", "The same with context.Background().",
			inTx(prepared, false), speed("", coop.name, mattn.name, 0.75)),
	}
}

func autocommit(p pools) (func() (sample, error), error) {
	return func() (sample, error) {
		const n = 300
		begin := startWatch()
		for i := range n {
			ctx, cancel := context.WithCancel(context.Background())
			_, err := p.write.ExecContext(ctx, insertItem, itemName, i)
			cancel()
			if err != nil {
				return sample{}, err
			}
		}
		return begin.sample(n), nil
	}, nil
}

// inTx runs rows inside one transaction, BEGIN and COMMIT included in the time.
func inTx(rows func(context.Context, *sql.Tx) (int, error), cancellable bool) func(pools) (func() (sample, error), error) {
	return func(p pools) (func() (sample, error), error) {
		return func() (sample, error) {
			ctx := context.Background()
			if cancellable {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
			}
			begin := startWatch()
			tx, err := p.write.BeginTx(ctx, nil)
			if err != nil {
				return sample{}, err
			}
			defer tx.Rollback() // after a commit there is nothing left to roll back
			n, err := rows(ctx, tx)
			if err != nil {
				return sample{}, err
			}
			if err := tx.Commit(); err != nil {
				return sample{}, err
			}
			return begin.sample(n), nil
		}, nil
	}
}

func unprepared(ctx context.Context, tx *sql.Tx) (int, error) {
	const n = 1000
	for i := range n {
		if _, err := tx.ExecContext(ctx, insertItem, itemName, i); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func prepared(ctx context.Context, tx *sql.Tx) (int, error) {
	const n = 4000
	stmt, err := tx.PrepareContext(ctx, insertItem)
	if err != nil {
		return 0, err
	}
	defer stmt.Close()
	for i := range n {
		if _, err := stmt.ExecContext(ctx, itemName, i); err != nil {
			return 0, err
		}
	}
	return n, nil
}
