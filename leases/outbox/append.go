package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/coopsqlite/coopsqlite/leases"
)

// Tx is an open transaction: a *sql.Tx, or what (*coopsqlite.Store).Write
// passes to its body.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// Append writes the events as part of tx: they are delivered if tx commits, and
// never if it does not. Anything that is not a transaction is ErrNoTransaction.
//
// Events of one aggregate get their order here. On PostgreSQL tx holds the
// aggregates' heads from now on, so others who append to them wait for its end,
// and so do acknowledgements; within one call the heads are locked in a fixed
// order, and a transaction that calls Append several times should keep to one
// too, or PostgreSQL may have to break a deadlock. If Append fails, roll back.
func (o *Outbox) Append(ctx context.Context, tx Tx, events ...Event) error {
	if err := checkTx(tx); err != nil {
		return err
	}
	for i, e := range events {
		if err := e.check(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	if len(events) == 0 {
		return nil
	}
	var err error
	if o.store.Dialect() == leases.Postgres {
		err = o.appendPostgres(ctx, tx, events)
	} else {
		err = o.appendSQLite(ctx, tx, events)
	}
	if err != nil {
		return fmt.Errorf("outbox: append: %w", err)
	}
	return nil
}

// checkTx tells transactions from pools and connections, which look the same
// to an interface but for what only those can do: be pinged.
func checkTx(tx Tx) error {
	switch tx := tx.(type) {
	case nil:
		return fmt.Errorf("%w: got nil", ErrNoTransaction)
	case *sql.Tx:
		if tx == nil {
			return fmt.Errorf("%w: got a nil *sql.Tx", ErrNoTransaction)
		}
	case interface{ PingContext(context.Context) error }:
		return fmt.Errorf("%w: got a %T", ErrNoTransaction, tx)
	}
	return nil
}

const insertEvent = `INSERT INTO {outbox} (aggregate_type, aggregate_id, type, payload, created_at) VALUES (?, ?, ?, ?, ?)`

func (o *Outbox) appendSQLite(ctx context.Context, tx Tx, events []Event) error {
	if err := o.store.Lock(ctx, tx); err != nil {
		return err
	}
	now, err := o.store.Now(ctx, tx)
	if err != nil {
		return err
	}
	for _, e := range events {
		inserted, err := tx.ExecContext(ctx, o.texts.Of(insertEvent), e.AggregateType, e.AggregateID, e.Type, payload(e), now)
		if err != nil {
			return err
		}
		id, err := inserted.LastInsertId()
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, o.texts.Of(`INSERT INTO {heads} (event_id, aggregate_type, aggregate_id, due_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (aggregate_type, aggregate_id) WHERE aggregate_id <> '' DO NOTHING`), id, e.AggregateType, e.AggregateID, now)
		if err != nil {
			return err
		}
	}
	return nil
}

// lockAggregate makes sure that the aggregate has a head and that the
// transaction holds its lock. If there was none, the new one has no event yet.
const lockAggregate = `INSERT INTO {heads} (aggregate_type, aggregate_id) VALUES (?, ?)
	ON CONFLICT (aggregate_type, aggregate_id) WHERE aggregate_id <> '' DO UPDATE SET aggregate_id = excluded.aggregate_id`

// appendPostgres draws an event's number only under the lock of its head. A
// number drawn before could be committed after a greater one of its aggregate.
func (o *Outbox) appendPostgres(ctx context.Context, tx Tx, events []Event) error {
	for _, e := range aggregates(events) {
		if _, err := tx.ExecContext(ctx, o.texts.Of(lockAggregate), e.AggregateType, e.AggregateID); err != nil {
			return err
		}
	}
	now, err := o.store.Now(ctx, tx)
	if err != nil {
		return err
	}
	for _, e := range events {
		// What was inserted is linked to its head by the index that finds the
		// conflict: no plan made while the table was small gets slow later.
		_, err := tx.ExecContext(ctx, o.texts.Of(`WITH e AS (`+insertEvent+` RETURNING id, aggregate_type, aggregate_id, created_at)
			INSERT INTO {heads} AS h (event_id, aggregate_type, aggregate_id, due_at)
			SELECT id, aggregate_type, aggregate_id, created_at FROM e
			ON CONFLICT (aggregate_type, aggregate_id) WHERE aggregate_id <> ''
			DO UPDATE SET event_id = excluded.event_id, due_at = excluded.due_at WHERE h.event_id IS NULL`),
			e.AggregateType, e.AggregateID, e.Type, payload(e), now)
		if err != nil {
			return err
		}
	}
	return nil
}

// aggregates returns one event of each aggregate, in the order in which their
// heads are to be locked.
func aggregates(events []Event) []Event {
	var of []Event
	for _, e := range events {
		if e.ordered() {
			of = append(of, e)
		}
	}
	slices.SortFunc(of, byAggregate)
	return slices.CompactFunc(of, func(a, b Event) bool { return byAggregate(a, b) == 0 })
}

func byAggregate(a, b Event) int {
	return cmp.Or(cmp.Compare(a.AggregateType, b.AggregateType), cmp.Compare(a.AggregateID, b.AggregateID))
}

// payload is never NULL.
func payload(e Event) []byte {
	if e.Payload == nil {
		return []byte{}
	}
	return e.Payload
}
