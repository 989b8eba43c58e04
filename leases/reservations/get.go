package reservations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// purgeRows bounds what one transaction of Purge deletes, so that it stays
// below 10 ms and writers pass in between.
const purgeRows = 250

// A row is a reservation as the database has it.
type row struct {
	Reservation
	id          int64
	fingerprint []byte
}

// over reports whether the row is a hold whose time is over.
func (f *row) over(now int64) bool {
	return f.State == Held && f.Expires.UnixNano() <= now
}

// find reads a reservation without its lines; sql.ErrNoRows if there is none.
// lock is "" or "{lock}".
func (r *Repository) find(ctx context.Context, q sqltx.Querier, scope, key, lock string) (row, error) {
	return r.findBy(ctx, q, `scope = ? AND op_key = ?`+lock, scope, key)
}

func (r *Repository) findBy(ctx context.Context, q sqltx.Querier, where string, args ...any) (row, error) {
	var f row
	var heldUntil, ended sql.NullInt64
	var created int64
	err := q.QueryRowContext(ctx, r.texts.Of(`SELECT id, scope, op_key, fingerprint, payload, state, held_until, created_at, ended_at
		FROM {reservations} WHERE `+where), args...).
		Scan(&f.id, &f.Scope, &f.Key, &f.fingerprint, &f.Payload, &f.State, &heldUntil, &created, &ended)
	f.Created, f.Expires, f.Ended = time.Unix(0, created), unix(heldUntil), unix(ended)
	f.Payload = orNil(f.Payload)
	return f, err
}

// Get returns the reservation with that key, or ErrNotFound. A hold that is
// over is Expired, whether its stock was given back already or not.
func (r *Repository) Get(ctx context.Context, scope, key string) (Reservation, error) {
	var found row
	err := r.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) (err error) {
		found, err = r.get(ctx, q, scope, key)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Reservation{}, fmt.Errorf("reservations: get %q: %w", key, err)
	}
	return found.Reservation, nil
}

func (r *Repository) get(ctx context.Context, q sqltx.Querier, scope, key string) (row, error) {
	found, err := r.find(ctx, q, scope, key, "")
	if err != nil {
		return row{}, err
	}
	if found.Lines, err = r.lines(ctx, q, found.id); err != nil {
		return row{}, err
	}
	if found.State == Held {
		now, err := r.store.Peek(ctx)
		if err != nil {
			return row{}, err
		}
		if found.over(now) {
			found.State, found.Ended = Expired, found.Expires
		}
	}
	return found, nil
}

// Purge forgets the reservations that ended before the given time, however they
// ended, and returns how many. Their keys are new again: a request that is
// repeated after that is carried out once more, so keep reservations for longer
// than anybody retries. It works in small transactions; what was deleted when
// ctx ends stays deleted. Holds that have not ended are kept.
func (r *Repository) Purge(ctx context.Context, before time.Time) (int64, error) {
	for total := int64(0); ; {
		var ids []int64
		err := r.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) (err error) {
			ids, err = r.ids(ctx, tx, `SELECT id FROM {reservations} WHERE ended_at < ? ORDER BY ended_at LIMIT ?{skip}`, before.UnixNano(), purgeRows)
			if err != nil || len(ids) == 0 {
				return err
			}
			list := r.texts.IDs(ids)
			if _, err := tx.ExecContext(ctx, r.texts.Of(`DELETE FROM {lines} WHERE reservation_id {ids}`), list); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, r.texts.Of(`DELETE FROM {reservations} WHERE id {ids}`), list)
			return err
		})
		if err != nil {
			return total, fmt.Errorf("reservations: purge: %w", err)
		}
		total += int64(len(ids))
		if len(ids) < purgeRows {
			return total, nil
		}
	}
}
