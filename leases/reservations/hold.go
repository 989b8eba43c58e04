package reservations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// sweepHolds is how many holds that are over are looked up at a time.
const sweepHolds = 32

// Confirm makes a hold final and appends the events to the outbox, in the same
// transaction. For a reservation that is confirmed already it changes nothing
// and appends nothing. If the hold has ended another way the answer is a
// [HoldEndedError]; a hold that is over at this moment ends here, and its stock
// goes back.
func (r *Repository) Confirm(ctx context.Context, scope, key string, events ...outbox.Event) (Reservation, error) {
	return r.decide(ctx, "confirm", scope, key, Confirmed, events)
}

// Cancel ends a hold, gives its stock back and appends the events to the
// outbox, in one transaction. For a reservation that is cancelled already it
// changes nothing and appends nothing. If it has ended another way, being
// confirmed included, the answer is a [HoldEndedError].
func (r *Repository) Cancel(ctx context.Context, scope, key string, events ...outbox.Event) (Reservation, error) {
	return r.decide(ctx, "cancel", scope, key, Cancelled, events)
}

func (r *Repository) decide(ctx context.Context, what, scope, key string, want State, events []outbox.Event) (Reservation, error) {
	var found row
	err := r.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) (err error) {
		if found, err = r.find(ctx, tx, scope, key, "{lock}"); err != nil {
			return err
		}
		now, err := r.store.Now(ctx, tx)
		if err != nil {
			return err
		}
		if found.Lines, err = r.lines(ctx, tx, found.id); err != nil {
			return err
		}
		switch {
		case found.State != Held:
			return nil
		case found.over(now):
			return r.end(ctx, tx, &found, Expired, now)
		}
		if err := r.end(ctx, tx, &found, want, now); err != nil {
			return err
		}
		return r.box.Append(r.store.Settle(ctx, now), tx, events...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	} else if err == nil && found.State != want {
		err = &HoldEndedError{Scope: scope, Key: key, State: found.State}
	}
	if err != nil {
		return Reservation{}, fmt.Errorf("reservations: %s %q: %w", what, key, err)
	}
	return found.Reservation, nil
}

// ExpireHolds gives back the stock of every hold that is over, each in a
// transaction of its own, and returns how many it ended. Reserve does the same
// where it needs the stock, so nothing depends on when this runs; it keeps the
// tables tidy.
func (r *Repository) ExpireHolds(ctx context.Context) (int, error) {
	for ended := 0; ; {
		var ids []int64
		err := r.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) error {
			now, err := r.store.Peek(ctx)
			if err == nil {
				ids, err = r.ids(ctx, q, `SELECT id FROM {reservations} WHERE state = 'held' AND held_until <= ? ORDER BY held_until LIMIT ?`,
					now, sweepHolds)
			}
			return err
		})
		if err == nil {
			var n int
			n, err = r.expire(ctx, ids)
			ended += n
		}
		if err != nil {
			return ended, fmt.Errorf("reservations: expire holds: %w", err)
		}
		if len(ids) < sweepHolds {
			return ended, nil
		}
	}
}

// over returns some holds on the SKU that are over, if there are any.
func (r *Repository) over(ctx context.Context, tx sqltx.Querier, sku string, now int64) ([]int64, error) {
	return r.ids(ctx, tx, `SELECT reservation_id FROM {lines}
		WHERE sku = ? AND held_until IS NOT NULL AND held_until <= ? ORDER BY held_until LIMIT ?`, sku, now, sweepHolds)
}

// expire ends those of the holds that are still there and over, and returns how
// many.
func (r *Repository) expire(ctx context.Context, ids []int64) (ended int, err error) {
	for _, id := range ids {
		done, err := r.expireOne(ctx, id)
		if err != nil {
			return ended, err
		}
		if done {
			ended++
		}
	}
	return ended, nil
}

func (r *Repository) expireOne(ctx context.Context, id int64) (ended bool, err error) {
	err = r.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) error {
		ended = false
		found, err := r.findBy(ctx, tx, `id = ?{lock}`, id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		now, err := r.store.Now(ctx, tx)
		if err != nil || !found.over(now) {
			return err
		}
		if found.Lines, err = r.lines(ctx, tx, id); err != nil {
			return err
		}
		ended = true
		return r.end(ctx, tx, &found, Expired, now)
	})
	return ended, err
}

// end writes down how a hold ended, and gives the stock back unless it was
// confirmed. The caller holds the row's lock; stock is locked after it.
func (r *Repository) end(ctx context.Context, tx sqltx.Querier, found *row, how State, now int64) error {
	_, err := tx.ExecContext(ctx, r.texts.Of(`UPDATE {reservations} SET state = ?, ended_at = ? WHERE id = ?`), string(how), now, found.id)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, r.texts.Of(`UPDATE {lines} SET held_until = NULL WHERE reservation_id = ?`), found.id)
	if err != nil {
		return err
	}
	found.State, found.Ended = how, time.Unix(0, now)
	if how == Confirmed {
		return nil
	}
	return r.giveBack(ctx, tx, found.Lines)
}

func (r *Repository) giveBack(ctx context.Context, tx sqltx.Querier, lines []Line) error {
	for _, l := range lines {
		_, err := tx.ExecContext(ctx, r.texts.Of(`UPDATE {stock} SET available = available + ? WHERE sku = ?`), l.Quantity, l.SKU)
		if err != nil {
			return err
		}
	}
	return nil
}

// lines reads a reservation's lines, in the order in which stock is locked.
func (r *Repository) lines(ctx context.Context, q sqltx.Querier, id int64) ([]Line, error) {
	rows, err := q.QueryContext(ctx, r.texts.Of(`SELECT sku, quantity FROM {lines} WHERE reservation_id = ?`), id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var lines []Line
	for rows.Next() {
		var l Line
		if err := rows.Scan(&l.SKU, &l.Quantity); err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b Line) int { return strings.Compare(a.SKU, b.SKU) })
	return lines, rows.Err()
}

func (r *Repository) ids(ctx context.Context, q sqltx.Querier, query string, args ...any) ([]int64, error) {
	rows, err := q.QueryContext(ctx, r.texts.Of(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
