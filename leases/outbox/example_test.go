package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// An event is written in the transaction that it tells of, and delivered
// afterwards.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db, err := sql.Open("coopsqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // a database in memory is one connection's
	box, err := outbox.New(db, nil)
	if err != nil {
		panic(err)
	}
	for _, pay := range []func(*sql.Tx) error{
		func(tx *sql.Tx) error { return nil },
		func(tx *sql.Tx) error { return errors.New("card refused") }, // rolls back, the event too
	} {
		if err := inTx(ctx, db, func(tx *sql.Tx) error {
			err := box.Append(ctx, tx, outbox.Event{
				AggregateType: "order", AggregateID: "4711", Type: "order.paid", Payload: []byte(`{"total":20}`),
			})
			if err != nil {
				return err
			}
			return pay(tx)
		}); err != nil {
			fmt.Println("rolled back:", err)
		}
	}
	relay, err := box.Relay(nil)
	if err != nil {
		panic(err)
	}
	err = relay.Run(ctx, func(ctx context.Context, d outbox.Delivery) error {
		fmt.Println(d.Type, d.AggregateID, string(d.Payload))
		stop() // a service goes on until it is told to end
		return nil
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// rolled back: card refused
	// order.paid 4711 {"total":20}
	// true
}

func inTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
