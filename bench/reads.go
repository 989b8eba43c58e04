package main

import (
	"context"
	"fmt"
)

// Reading rows: one at a time, large ones, and many.

func readWorkloads() []*workload {
	contenders := []contender{coop, coopOff, mattn, mattnCached}
	return []*workload{
		{
			family: "reads", name: "point reads", unit: "read", baseline: mattn.name, slices: 32,
			what:     "A row of 100,000 by its key, through db.QueryRowContext with a cancellable context of its own.",
			subjects: each(itemsSchema, pointReads, contenders...),
			budgets: []budget{
				speed("", coop.name, mattn.name, 1.3),
				speed("against mattn with its statement cache", coop.name, mattnCached.name, 1),
			},
		},
		{
			family: "reads", name: "large rows", unit: "read", baseline: mattn.name, slices: 24,
			what:     "A blob of 100 KB by its key, one of 200.",
			subjects: each(`CREATE TABLE blobs (id INTEGER PRIMARY KEY, body BLOB NOT NULL)`, largeReads, contenders...),
			budgets:  []budget{speed("", coop.name, mattn.name, 1)},
		},
		{
			family: "reads", name: "scan", unit: "row", baseline: mattn.name, slices: 16,
			what:     "All of 10,000 rows of an integer, a text and an integer, by one query.",
			subjects: each(itemsSchema, scan, contenders...),
			budgets:  []budget{speed("", coop.name, mattn.name, 1)},
		},
	}
}

// fillItems puts n rows into items.
func fillItems(p pools, n int) error {
	_, err := p.write.Exec(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
		INSERT INTO items SELECT i, 'a name of some length', i FROM n`, n))
	return err
}

func pointReads(p pools) (func() (sample, error), error) {
	const rows = 100_000
	if err := fillItems(p, rows); err != nil {
		return nil, err
	}
	return func() (sample, error) {
		const n = 250
		var name string
		var quantity int64
		begin := startWatch()
		for i := range n {
			ctx, cancel := context.WithCancel(context.Background())
			err := p.read.QueryRowContext(ctx, `SELECT name, quantity FROM items WHERE id = ?`, i*7919%rows+1).Scan(&name, &quantity)
			cancel()
			if err != nil {
				return sample{}, err
			}
		}
		return begin.sample(n), nil
	}, nil
}

func largeReads(p pools) (func() (sample, error), error) {
	const rows = 200
	if _, err := p.write.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200)
		INSERT INTO blobs SELECT i, randomblob(100000) FROM n`); err != nil {
		return nil, err
	}
	return func() (sample, error) {
		const n = 25
		var body []byte
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		begin := startWatch()
		for i := range n {
			if err := p.read.QueryRowContext(ctx, `SELECT body FROM blobs WHERE id = ?`, i*79%rows+1).Scan(&body); err != nil {
				return sample{}, err
			}
		}
		return begin.sample(n), nil
	}, nil
}

func scan(p pools) (func() (sample, error), error) {
	const n = 10_000
	if err := fillItems(p, n); err != nil {
		return nil, err
	}
	return func() (sample, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		begin := startWatch()
		rows, err := p.read.QueryContext(ctx, `SELECT id, name, quantity FROM items`)
		if err != nil {
			return sample{}, err
		}
		defer rows.Close()
		var id, quantity, seen int64
		var name string
		for rows.Next() {
			if err := rows.Scan(&id, &name, &quantity); err != nil {
				return sample{}, err
			}
			seen++
		}
		if seen != n {
			return sample{}, fmt.Errorf("%d rows instead of %d", seen, n)
		}
		return begin.sample(n), rows.Err()
	}, nil
}
