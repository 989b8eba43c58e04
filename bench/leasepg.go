package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"cirello.io/pglock"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/coopsqlite/coopsqlite/internal/pgserver"
	"github.com/coopsqlite/coopsqlite/leases"
)

// Leases on PostgreSQL, beside pglock on the same server, which is durable as
// it comes. A server of its own is started for the run.

const (
	leasesPG = "leases"
	pgLock   = "pglock"
)

// pg is the server that the workloads share; it is started with the first.
type pg struct {
	once   sync.Once
	server *pgserver.Server
	err    error
	users  int
}

// open opens a new database.
func (p *pg) open() (*sql.DB, error) {
	p.once.Do(func() { p.server, p.err = pgserver.Start() })
	if p.err != nil {
		return nil, p.err
	}
	p.users++
	name := fmt.Sprintf("bench%d", p.users)
	if err := p.server.CreateDatabase(name); err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", p.server.DSN(name))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(80)
	db.SetMaxIdleConns(80) // as both need, or connecting would be what is measured
	return db, nil
}

func leasePostgresWorkloads() []*workload {
	p := &pg{}
	skip := ""
	if err := pgserver.Available(); err != nil {
		skip = err.Error()
	}
	var all []*workload
	for _, goroutines := range []int{1, 16, 64} {
		all = append(all, &workload{
			family: "leases on PostgreSQL", name: fmt.Sprintf("acquire and release on PostgreSQL, %d goroutines", goroutines),
			unit: "pair", baseline: pgLock, slices: 2, skip: skip,
			what: "Each goroutine acquires and releases a lease of its own, again and again.",
			subjects: []subject{
				{leasesPG, func(string) (*runner, error) { return p.leases(goroutines) }},
				{pgLock, func(string) (*runner, error) { return p.pglock(goroutines) }},
			},
		})
	}
	return append(all, &workload{
		family: "leases on PostgreSQL", name: "lease handed over on PostgreSQL", unit: "handover", slices: 3, skip: skip, measures: duration,
		what:     "From the start of a release to the grant of somebody who has waited for half a second, in another Manager, which has to poll.",
		subjects: []subject{{leasesPG, func(string) (*runner, error) { return p.handover() }}},
	})
}

const (
	leasePeriod = 400 * time.Millisecond
	leaseTTL    = time.Minute
)

func (p *pg) leases(goroutines int) (*runner, error) {
	db, err := p.open()
	if err != nil {
		return nil, err
	}
	m, err := leases.New(db, &leases.Options{Dialect: leases.Postgres})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &runner{close: db.Close, slice: func() (sample, error) {
		return together(goroutines, leasePeriod, func(ctx context.Context, i int) error {
			l, err := m.Acquire(ctx, fmt.Sprintf("job-%d", i%goroutines), leaseTTL, 0)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}), nil
	}}, nil
}

func (p *pg) pglock(goroutines int) (*runner, error) {
	db, err := p.open()
	if err != nil {
		return nil, err
	}
	// Without heartbeats, as an Acquire without With has none.
	c, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(leaseTTL), pglock.WithHeartbeatFrequency(0))
	if err == nil {
		err = c.CreateTable()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &runner{close: db.Close, slice: func() (sample, error) {
		return together(goroutines, leasePeriod, func(ctx context.Context, i int) error {
			l, err := c.AcquireContext(ctx, fmt.Sprintf("job-%d", i%goroutines), pglock.FailIfLocked(), pglock.KeepOnRelease())
			if err != nil {
				return err
			}
			return c.ReleaseContext(ctx, l)
		}), nil
	}}, nil
}

func (p *pg) handover() (*runner, error) {
	db, err := p.open()
	if err != nil {
		return nil, err
	}
	holder, err := leases.New(db, &leases.Options{Dialect: leases.Postgres, Owner: "holder"})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	waiter, err := leases.New(db, &leases.Options{Dialect: leases.Postgres, Owner: "waiter"})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &runner{close: db.Close, slice: func() (sample, error) { return handLeaseOver(holder, waiter) }}, nil
}

// handLeaseOver measures one handover between two Managers.
func handLeaseOver(holder, waiter *leases.Manager) (sample, error) {
	ctx := context.Background()
	l, err := holder.Acquire(ctx, "job", leaseTTL, -1)
	if err != nil {
		return sample{}, err
	}
	type grant struct {
		at  time.Time
		err error
	}
	granted := make(chan grant)
	go func() {
		next, err := waiter.Acquire(ctx, "job", leaseTTL, -1)
		at := time.Now()
		if err == nil {
			err = next.Release(ctx)
		}
		granted <- grant{at, err}
	}()
	time.Sleep(500 * time.Millisecond) // it waits, at its own pace, by now
	released := time.Now()
	if err := l.Release(ctx); err != nil {
		return sample{}, err
	}
	g := <-granted
	took := g.at.Sub(released)
	return sample{ops: 1, elapsed: took, latencies: []time.Duration{took}, value: took.Seconds()}, g.err
}
