package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// Many goroutines that write at once.

const (
	writers       = 64
	writersSchema = `CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
		CREATE TABLE entries (id INTEGER PRIMARY KEY, account INTEGER NOT NULL, amount INTEGER NOT NULL, note TEXT NOT NULL);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 10000) INSERT INTO accounts SELECT i, 0 FROM n`
	writersPeriod = 800 * time.Millisecond
)

func writerWorkloads() []*workload {
	contenders := []contender{coop, coopOff, coopSplit, mattn, mattnSplit}
	return []*workload{
		{
			family: "writers", name: "64 writers", unit: "transaction", baseline: mattnSplit.name, slices: 2, waits: true,
			what:     "Transactions of an UPDATE and an INSERT, each with a cancellable context, from 64 goroutines for a fixed time.",
			subjects: each(writersSchema, writeWith(0), contenders...),
			budgets: []budget{
				speed("throughput against mattn with a writer pool of 1", coop.name, mattnSplit.name, 1),
				tail("p99.9 against mattn's one pool", coop.name, mattn.name, 1.0/30),
				noBusy(coop.name),
			},
		},
		{
			family: "writers", name: "64 writers, 4 readers", unit: "transaction", baseline: mattnSplit.name, slices: 2, waits: true,
			what:     "The same beside 4 goroutines that sum up 1,000 rows again and again.",
			subjects: each(writersSchema, writeWith(4), contenders...),
			budgets: []budget{
				speed("throughput against mattn with a writer pool of 1", coop.name, mattnSplit.name, 1),
				tail("p99.9 against mattn's one pool", coop.name, mattn.name, 1.0/15),
				noBusy(coop.name),
			},
		},
	}
}

func writeWith(readers int) func(pools) (func() (sample, error), error) {
	return func(p pools) (func() (sample, error), error) {
		return func() (sample, error) {
			stop, done := context.WithCancel(context.Background())
			var group sync.WaitGroup
			failed := make(chan error, readers)
			for r := range readers {
				group.Go(func() {
					for i := r; stop.Err() == nil; i++ {
						var n int64
						low := i * 1009 % 9000
						if err := p.read.QueryRowContext(context.Background(),
							`SELECT sum(balance) FROM accounts WHERE id BETWEEN ? AND ?`, low+1, low+1000).Scan(&n); err != nil {
							failed <- err
							return
						}
					}
				})
			}
			s := together(writers, writersPeriod, func(ctx context.Context, i int) error { return transfer(ctx, p, i) })
			done()
			group.Wait()
			close(failed)
			return s, <-failed
		}, nil
	}
}

func transfer(ctx context.Context, p pools, i int) error {
	tx, err := p.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit there is nothing left to roll back
	account := i*7919%10_000 + 1
	if _, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance + 1 WHERE id = ?`, account); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO entries (account, amount, note) VALUES (?, 1, ?)`, account, itemName); err != nil {
		return err
	}
	return tx.Commit()
}

// together runs op on n goroutines for the period, each operation with a
// cancellable context of its own, and records how long each took, those that
// fail included. The clock runs until the last one has ended.
func together(n int, period time.Duration, op func(ctx context.Context, i int) error) sample {
	parts := make([]sample, n)
	var group sync.WaitGroup
	begin := time.Now()
	for g := range n {
		group.Go(func() {
			part := &parts[g]
			for i := g; time.Since(begin) < period; i += n {
				ctx, cancel := context.WithCancel(context.Background())
				start := time.Now()
				err := op(ctx, i)
				part.latencies = append(part.latencies, time.Since(start))
				cancel()
				part.count(err)
			}
		})
	}
	group.Wait()
	var all sample
	for _, part := range parts {
		all.join(part)
	}
	all.elapsed = time.Since(begin)
	return all
}

// count counts one operation by its outcome.
func (s *sample) count(err error) {
	switch {
	case err == nil:
		s.ops++
	case isBusy(err):
		s.busy++
	default:
		s.failed++
	}
}

// isBusy reports whether err is SQLITE_BUSY. The drivers have types of their own
// for that and all have SQLite's message.
func isBusy(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "database is locked")
}
