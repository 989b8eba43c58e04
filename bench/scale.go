package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// Whether a repository with a million rows is slower than one with a thousand.

const (
	fewRows   = 1_000
	manyRows  = 1_000_000
	fewName   = "1,000 rows"
	manyName  = "1,000,000 rows"
	scaleOps  = 300
	perGroup  = 10 // events of one aggregate
	eventBody = `{"order":4711,"paid":true}`
)

func scaleWorkloads() []*workload {
	mk := func(name, what string, prepare func(p pools, rows int) (func(*rand.Rand) error, error)) *workload {
		w := &workload{family: "scale", name: name, what: what, unit: "operation", baseline: fewName, slices: 4, keep: true,
			budgets: []budget{cost("an operation", manyName, fewName, 1.5)}}
		for _, rows := range []int{fewRows, manyRows} {
			label := fewName
			if rows == manyRows {
				label = manyName
			}
			w.subjects = append(w.subjects, subject{label, func(dir string) (*runner, error) {
				p, err := coop.open(dir)
				if err != nil {
					return nil, err
				}
				op, err := prepare(p, rows)
				if err == nil {
					_, err = p.write.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
				}
				if err != nil {
					return nil, errors.Join(err, p.close())
				}
				source := rand.New(rand.NewPCG(1, 2))
				return &runner{func() (sample, error) {
					begin := startWatch()
					for range scaleOps {
						if err := op(source); err != nil {
							return sample{}, err
						}
					}
					return begin.sample(scaleOps), nil
				}, p.close}, nil
			}})
		}
		return w
	}
	return []*workload{
		mk("1,000,000 leases", "Acquire, Extend and Release of a random lease out of as many, half of them held.", manyLeases),
		mk("1,000,000 outbox rows", "Append to a random aggregate, Claim and Ack of one event, with as many events pending, ten per aggregate.", manyEvents),
	}
}

func manyLeases(p pools, rows int) (func(*rand.Rand) error, error) {
	ctx := context.Background()
	m, err := leases.New(p.write, nil)
	if err != nil {
		return nil, err
	}
	// As a Manager would leave them: held by another, or released.
	if _, err := p.write.Exec(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i < %d)
		INSERT INTO coop_leases (name, token, owner, epoch, acquired, renewed, expires)
		SELECT printf('job-%%07d', i), CASE i%%2 WHEN 0 THEN hex(randomblob(16)) ELSE '' END, 'another', 1, 0, 0,
			CASE i%%2 WHEN 0 THEN %d ELSE 0 END FROM n`, rows-1, time.Now().Add(24*time.Hour).UnixNano())); err != nil {
		return nil, err
	}
	return func(source *rand.Rand) error {
		l, err := m.Acquire(ctx, fmt.Sprintf("job-%07d", source.IntN(rows/2)*2+1), time.Minute, 0)
		if err != nil {
			return err
		}
		return errors.Join(l.Extend(ctx, 2*time.Minute), l.Release(ctx))
	}, nil
}

func manyEvents(p pools, rows int) (func(*rand.Rand) error, error) {
	ctx := context.Background()
	box, err := outbox.New(p.write, nil)
	if err != nil {
		return nil, err
	}
	event := func(i int) outbox.Event {
		return outbox.Event{AggregateType: "order", AggregateID: fmt.Sprint(i), Type: "order.paid", Payload: []byte(eventBody)}
	}
	add := func(events ...outbox.Event) error {
		tx, err := p.write.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after a commit there is nothing left to roll back
		if err := box.Append(ctx, tx, events...); err != nil {
			return err
		}
		return tx.Commit()
	}
	groups := rows / perGroup
	for first := 0; first < rows; first += fewRows {
		batch := make([]outbox.Event, fewRows)
		for i := range batch {
			batch[i] = event((first + i) % groups)
		}
		if err := add(batch...); err != nil {
			return nil, err
		}
	}
	relay, err := box.Relay(nil)
	if err != nil {
		return nil, err
	}
	return func(source *rand.Rand) error {
		if err := add(event(source.IntN(groups))); err != nil {
			return err
		}
		claimed, err := relay.Claim(ctx, 1)
		if err != nil {
			return err
		}
		if len(claimed) != 1 {
			return fmt.Errorf("claimed %d events instead of 1", len(claimed))
		}
		return relay.Ack(ctx, claimed...)
	}, nil
}
