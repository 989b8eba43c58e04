package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// Dead yields the dead events, oldest first. It holds no connection while the
// loop's body runs, so the body may call Requeue and Discard. After an error
// it ends.
func (o *Outbox) Dead(ctx context.Context) iter.Seq2[DeadEvent, error] {
	return func(yield func(DeadEvent, error) bool) {
		for after := int64(0); ; {
			page, err := o.deadPage(ctx, after)
			if err != nil {
				yield(DeadEvent{}, fmt.Errorf("outbox: read dead events: %w", err))
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.ID
			}
			if len(page) < pageRows {
				return
			}
		}
	}
}

func (o *Outbox) deadPage(ctx context.Context, after int64) (page []DeadEvent, err error) {
	err = o.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) error {
		page = nil
		rows, err := q.QueryContext(ctx, o.texts.Of(`SELECT id, aggregate_type, aggregate_id, type, payload, created_at, attempts, last_error
			FROM {outbox} WHERE state = 'dead' AND id > ? ORDER BY id LIMIT ?`), after, pageRows)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var e DeadEvent
			var created int64
			err := rows.Scan(&e.ID, &e.AggregateType, &e.AggregateID, &e.Type, &e.Payload, &created, &e.Attempts, &e.Error)
			if err != nil {
				return err
			}
			e.Created = unix(created)
			page = append(page, e)
		}
		return rows.Err()
	})
	return page, err
}

// Requeue gives a dead event another life, with all its attempts. It is due at
// once, at its old place: before the later events of its aggregate, but for
// those that SkipDead has let pass. If the event is not dead the answer is
// ErrNotDead.
func (o *Outbox) Requeue(ctx context.Context, id int64) error {
	return o.decide(ctx, id, "requeue", func(tx sqltx.Querier, e Event, now int64) error {
		if e.ordered() && o.store.Dialect() == leases.Postgres {
			if _, err := tx.ExecContext(ctx, o.texts.Of(lockAggregate), e.AggregateType, e.AggregateID); err != nil {
				return err
			}
		}
		err := o.mustBeDead(tx.ExecContext(ctx, o.texts.Of(`UPDATE {outbox} SET state = 'pending', attempts = NULL, last_error = NULL
			WHERE id = ? AND state = 'dead'`), id))
		if err != nil {
			return err
		}
		// The head is still at the event, or empty (see lockAggregate), or at a
		// later one, which then is the last to overtake, or there is none.
		_, err = tx.ExecContext(ctx, o.texts.Of(`UPDATE {heads} SET event_id = ?, due_at = ?, attempts = 0, last_error = NULL
			WHERE event_id = ? OR aggregate_type = ? AND aggregate_id = ? AND aggregate_id <> '' AND event_id IS NULL`),
			id, now, id, e.AggregateType, e.AggregateID)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, o.texts.Of(`INSERT INTO {heads} (event_id, aggregate_type, aggregate_id, due_at) VALUES (?, ?, ?, ?)
			ON CONFLICT DO NOTHING`), id, e.AggregateType, e.AggregateID, now)
		return err
	})
}

// Discard gives a dead event up: it will never be delivered, and those behind
// it go on. The row stays until it is purged. If the event is not dead the
// answer is ErrNotDead.
func (o *Outbox) Discard(ctx context.Context, id int64) error {
	return o.decide(ctx, id, "discard", func(tx sqltx.Querier, e Event, now int64) error {
		var head int64
		err := tx.QueryRowContext(ctx, o.texts.Of(`SELECT event_id FROM {heads} WHERE event_id = ?{lock}`), id).Scan(&head)
		blocking := err == nil
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		err = o.mustBeDead(tx.ExecContext(ctx, o.texts.Of(`UPDATE {outbox} SET state = 'discarded', ended_at = ?
			WHERE id = ? AND state = 'dead'`), now, id))
		if err != nil || !blocking {
			return err
		}
		return o.advance(ctx, tx, Delivery{ID: id, Event: e}, now)
	})
}

// decide runs what somebody has decided about a dead event.
func (o *Outbox) decide(ctx context.Context, id int64, what string, fn func(tx sqltx.Querier, e Event, now int64) error) error {
	err := o.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) error {
		now, err := o.store.Now(ctx, tx)
		if err != nil {
			return err
		}
		var e Event
		err = tx.QueryRowContext(ctx, o.texts.Of(`SELECT aggregate_type, aggregate_id FROM {outbox} WHERE id = ? AND state = 'dead'`), id).
			Scan(&e.AggregateType, &e.AggregateID)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotDead
		}
		if err != nil {
			return err
		}
		return fn(tx, e, now)
	})
	if err != nil {
		return fmt.Errorf("outbox: %s event %d: %w", what, id, err)
	}
	return nil
}

// mustBeDead turns an UPDATE that found no dead event into ErrNotDead.
func (o *Outbox) mustBeDead(updated sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := updated.RowsAffected()
	if err == nil && n == 0 {
		return ErrNotDead
	}
	return err
}
