package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

// Small durable transactions, which can share a commit: synchronous=FULL.

const commitsPeriod = 600 * time.Millisecond

func commitWorkloads() []*workload {
	onePool := mattnSplit
	alone := mattnCached
	alone.name = "mattn, 1 goroutine"
	named := func(s []subject, name string) subject { s[0].name = name; return s[0] }
	return []*workload{
		{
			family: "group commit", name: "Write, 64 goroutines", unit: "transaction", baseline: onePool.name, slices: 2, waits: true,
			what: "One INSERT per transaction at synchronous=FULL: through Store.Write, and in autocommit.",
			subjects: []subject{
				named(each(itemsSchema, groupWrite, coop.full()), coop.name),
				named(each(itemsSchema, durableAutocommit(writers), coop.full()), "coopsqlite, autocommit"),
				named(each(itemsSchema, durableAutocommit(writers), onePool.full()), onePool.name),
				named(each(itemsSchema, durableAutocommit(1), alone.full()), alone.name),
			},
			budgets: []budget{
				speed("against autocommit, 64 goroutines", coop.name, onePool.name, 15),
				speed("against autocommit, 1 goroutine", coop.name, alone.name, 15),
				noBusy(coop.name),
			},
		},
		{
			family: "group commit", name: "reserve, 64 goroutines", unit: "reservation", baseline: onePool.name, slices: 2, waits: true,
			what: "Package reservations, one line and one event each, keys all different, synchronous=FULL; mattn runs the same code, one transaction each.",
			subjects: []subject{
				named(each(``, reserve, coop.full()), coop.name),
				named(each(``, reserve, onePool.full()), onePool.name),
			},
			budgets: []budget{speed("against one transaction each", coop.name, onePool.name, 8), noBusy(coop.name)},
		},
	}
}

func groupWrite(p pools) (func() (sample, error), error) {
	store, err := coopsqlite.StoreOf(p.write)
	if err != nil {
		return nil, err
	}
	return func() (sample, error) {
		return together(writers, commitsPeriod, func(ctx context.Context, i int) error {
			return store.Write(ctx, func(tx coopsqlite.DBTX) error {
				_, err := tx.ExecContext(ctx, insertItem, itemName, i)
				return err
			})
		}), nil
	}, nil
}

func durableAutocommit(goroutines int) func(pools) (func() (sample, error), error) {
	return func(p pools) (func() (sample, error), error) {
		return func() (sample, error) {
			return together(goroutines, commitsPeriod, func(ctx context.Context, i int) error {
				_, err := p.write.ExecContext(ctx, insertItem, itemName, i)
				return err
			}), nil
		}, nil
	}
}

func reserve(p pools) (func() (sample, error), error) {
	repo, err := reservations.New(p.write, nil)
	if err != nil {
		return nil, err
	}
	const skus = 100
	for i := range skus {
		if err := repo.SetStock(context.Background(), fmt.Sprintf("sku-%d", i), 1<<30); err != nil {
			return nil, err
		}
	}
	run := 0
	return func() (sample, error) {
		run++
		s := together(writers, commitsPeriod, func(ctx context.Context, i int) error {
			key := fmt.Sprintf("%d-%d", run, i)
			receipt, err := repo.Reserve(ctx, reservations.Request{
				Scope: "shop", Key: key,
				Lines: []reservations.Line{{SKU: fmt.Sprintf("sku-%d", i%skus), Quantity: 1}},
				Event: &outbox.Event{AggregateType: "order", AggregateID: key, Type: "order.placed", Payload: []byte("{}")},
			})
			if err == nil && receipt.Status != reservations.Accepted {
				return errors.New("not accepted: " + string(receipt.Status))
			}
			return err
		})
		return s, nil
	}, nil
}
