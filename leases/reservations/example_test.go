package reservations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

// A request can be repeated safely, and its key belongs to it alone.
func ExampleRepository_Reserve() {
	ctx := context.Background()
	db, err := sql.Open("coopsqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // a database in memory is one connection's
	repo, err := reservations.New(db, nil)
	if err != nil {
		panic(err)
	}
	if err := repo.SetStock(ctx, "seat", 3); err != nil {
		panic(err)
	}
	reserve := func(key string, seats int64) {
		receipt, err := repo.Reserve(ctx, reservations.Request{
			Key:   key,
			Lines: []reservations.Line{{SKU: "seat", Quantity: seats}},
			Event: &outbox.Event{AggregateType: "order", AggregateID: key, Type: "order.placed"},
		})
		if errors.Is(err, reservations.ErrKeyReused) {
			fmt.Println(key, seats, "conflict")
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(key, seats, receipt.Status)
	}
	reserve("checkout-7", 2)
	reserve("checkout-7", 2)
	reserve("checkout-7", 1)
	reserve("checkout-8", 2)
	// Output:
	// checkout-7 2 accepted
	// checkout-7 2 replayed
	// checkout-7 1 conflict
	// checkout-8 2 insufficient
}

// A hold keeps stock for somebody who has not paid yet.
func ExampleRepository_Confirm() {
	ctx := context.Background()
	db, err := sql.Open("coopsqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // a database in memory is one connection's
	repo, err := reservations.New(db, nil)
	if err != nil {
		panic(err)
	}
	if err := repo.SetStock(ctx, "seat", 3); err != nil {
		panic(err)
	}
	_, err = repo.Reserve(ctx, reservations.Request{
		Key:   "checkout-7",
		Lines: []reservations.Line{{SKU: "seat", Quantity: 2}},
		Hold:  15 * time.Minute,
	})
	if err != nil {
		panic(err)
	}
	// The card is charged here. If Confirm says that the hold has ended, the
	// money goes back.
	reservation, err := repo.Confirm(ctx, "", "checkout-7")
	if ended, ok := errors.AsType[*reservations.HoldEndedError](err); ok {
		fmt.Println("too late:", ended.State)
		return
	}
	if err != nil {
		panic(err)
	}
	available, err := repo.Available(ctx, "seat")
	if err != nil {
		panic(err)
	}
	fmt.Println(reservation.State, available)
	// Output: confirmed 1
}
