package main

import (
	"context"
	"database/sql"
	"errors"
)

// The workloads of the suites that are run with Go's SQLite drivers since long,
// written anew, for every contender. They have no budgets.

// A store is what they ask of a driver, so that one without database/sql can
// take part.
type store interface {
	// exec runs one statement in a transaction of its own.
	exec(query string, args ...any) error
	// tx runs fn in a transaction that may write.
	tx(fn func(tx) error) error
	// query calls row for each row of the result.
	query(query string, args []any, row func(scan func(dest ...any) error) error) error
	close() error
}

type tx interface {
	prepare(query string) (stmt, error)
}

// A stmt lives until its transaction ends.
type stmt interface {
	exec(args ...any) error
}

// sqlStore is a store through database/sql.
type sqlStore struct{ pools }

func (s sqlStore) exec(query string, args ...any) error {
	_, err := s.write.ExecContext(context.Background(), query, args...)
	return err
}

func (s sqlStore) tx(fn func(tx) error) error {
	t, err := s.write.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer t.Rollback() // after a commit there is nothing left to roll back
	if err := fn(sqlTx{t}); err != nil {
		return err
	}
	return t.Commit()
}

func (s sqlStore) query(query string, args []any, row func(func(...any) error) error) error {
	rows, err := s.read.QueryContext(context.Background(), query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

type sqlTx struct{ *sql.Tx }

func (t sqlTx) prepare(query string) (stmt, error) {
	s, err := t.PrepareContext(context.Background(), query)
	return sqlStmt{s}, err
}

type sqlStmt struct{ *sql.Stmt }

func (s sqlStmt) exec(args ...any) error {
	_, err := s.ExecContext(context.Background(), args...)
	return err
}

// store opens a store in dir for the suites.
func (c contender) store(dir string) (store, error) {
	if c.driver == "" {
		return openZombiezen(dir)
	}
	p, err := c.open(dir)
	return sqlStore{p}, err
}

// suiteWorkloads are the suites; those that depend on the size of the run have
// a short form.
func suiteWorkloads(full bool) []*workload {
	var all []*workload
	for _, suite := range [][]*workload{
		simpleSuite(full), realSuite(full), complexSuite(full), manySuite(full), largeSuite(full), concurrentSuite(full), mixedSuite(full),
	} {
		all = append(all, suite...)
	}
	return all
}

// The families of the suites' workloads.
const (
	oneGoroutine   = "suites, one goroutine"
	largeRows      = "suites, large rows"
	manyGoroutines = "suites, several goroutines"
)

// suite makes a workload of the suites: every contender gets schema, then fill
// outside the clock, then slices of work.
func suite(family, name, unit, what string, schema []string, fill func(store) error, work func(store) (sample, error)) *workload {
	w := &workload{family: family, name: name, unit: unit, what: what, baseline: mattn.name, slices: 1}
	for _, c := range []contender{coop, coopOff, mattn, mattnSplit, modernc, ncruces, zombiezen} {
		w.subjects = append(w.subjects, subject{c.name, func(dir string) (*runner, error) {
			s, err := c.store(dir)
			if err != nil {
				return nil, err
			}
			for _, ddl := range schema {
				if err := s.exec(ddl); err != nil {
					return nil, errors.Join(err, s.close())
				}
			}
			if fill != nil {
				if err := fill(s); err != nil {
					return nil, errors.Join(err, s.close())
				}
			}
			return &runner{func() (sample, error) { return work(s) }, s.close}, nil
		}})
	}
	// What was filled outside the clock and is only read can stay.
	w.keep = fill != nil
	w.waits = family == manyGoroutines
	return w
}
