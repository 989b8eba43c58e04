package reservations

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// Reserve takes the stock that the request asks for, or says why not: see
// [Status]. A key that belongs to another request is ErrKeyReused, whatever the
// stock. After any other error the caller may not know whether the request was
// accepted; asking again with the same key tells, and changes nothing if it
// was. A request that meets the same key in another transaction waits for its
// end.
//
// Holds on the SKUs that are over are swept before the answer is Insufficient.
func (r *Repository) Reserve(ctx context.Context, request Request) (Receipt, error) {
	o, err := request.order()
	if err != nil {
		return Receipt{}, err
	}
	for {
		receipt, err := r.try(ctx, o)
		over, sweep := errors.AsType[*holdsAreOver](err)
		if sweep {
			_, err = r.expire(ctx, over.ids)
		}
		if err != nil {
			return Receipt{}, fmt.Errorf("reservations: reserve %q: %w", request.Key, err)
		}
		if !sweep {
			return receipt, nil
		}
	}
}

// holdsAreOver rolls a try back because there would be more stock if holds that
// are over were given back. That takes transactions of their own: they lock
// the hold first and stock after it, while the try has locked stock already.
type holdsAreOver struct{ ids []int64 }

func (*holdsAreOver) Error() string { return "holds are over" }

// errInsufficient rolls back, the key included.
var errInsufficient = errors.New("insufficient stock")

func (r *Repository) try(ctx context.Context, o order) (Receipt, error) {
	var receipt Receipt
	err := r.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) (err error) {
		receipt, err = r.reserve(ctx, tx, o)
		return err
	})
	if errors.Is(err, errInsufficient) {
		return Receipt{Status: Insufficient}, nil
	}
	return receipt, err
}

// reserve claims the key first. Whoever looked at the stock first, and only
// then found the key taken, would answer Insufficient to a request that was
// accepted.
func (r *Repository) reserve(ctx context.Context, tx sqltx.Querier, o order) (Receipt, error) {
	now, err := r.store.Now(ctx, tx)
	if err != nil {
		return Receipt{}, err
	}
	var id int64
	for {
		id, err = r.claimKey(ctx, tx, o, now)
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
		receipt, err := r.replay(ctx, tx, o)
		if !errors.Is(err, sql.ErrNoRows) { // else it is gone by now
			return receipt, err
		}
	}
	if err != nil {
		return Receipt{}, err
	}
	if short, err := r.take(ctx, tx, o.Lines, now); err != nil {
		return Receipt{}, err
	} else if short {
		return r.reject(ctx, tx, o, id, now)
	}
	if o.Hold > 0 && r.store.Dialect() == leases.Postgres {
		// Locks were waited for meanwhile. The hold is to last from now.
		if now, err = r.store.Now(ctx, tx); err != nil {
			return Receipt{}, err
		}
		_, err := tx.ExecContext(ctx, r.texts.Of(`UPDATE {reservations} SET held_until = ? WHERE id = ?`), o.heldUntil(now), id)
		if err != nil {
			return Receipt{}, err
		}
	}
	for _, l := range o.Lines {
		_, err := tx.ExecContext(ctx, r.texts.Of(`INSERT INTO {lines} (reservation_id, sku, quantity, held_until) VALUES (?, ?, ?, ?)`),
			id, l.SKU, l.Quantity, o.heldUntil(now))
		if err != nil {
			return Receipt{}, err
		}
	}
	if o.Event != nil {
		if err := r.box.Append(r.store.Settle(ctx, now), tx, *o.Event); err != nil {
			return Receipt{}, err
		}
	}
	return Receipt{Status: Accepted, Reservation: o.accepted(now)}, nil
}

// claimKey inserts the reservation and returns its id, or sql.ErrNoRows if the
// key is taken, after waiting for a transaction that is just taking it.
func (r *Repository) claimKey(ctx context.Context, tx sqltx.Querier, o order, now int64) (id int64, err error) {
	const insert = `INSERT INTO {reservations}
		(scope, op_key, fingerprint, payload, state, held_until, created_at, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (scope, op_key) DO NOTHING`
	args := []any{o.Scope, o.Key, o.fingerprint, notNil(o.Payload), o.state(), o.heldUntil(now), now, o.endedAt(now)}
	if r.store.Dialect() == leases.Postgres {
		err = tx.QueryRowContext(ctx, r.texts.Of(insert+` RETURNING id`), args...).Scan(&id)
		return id, err
	}
	result, err := tx.ExecContext(ctx, r.texts.Of(insert), args...)
	if inserted, err := changed(result, err); err != nil || !inserted {
		return 0, cmp.Or(err, sql.ErrNoRows)
	}
	return result.LastInsertId()
}

// replay answers for a key that is taken; sql.ErrNoRows if it is not.
func (r *Repository) replay(ctx context.Context, tx sqltx.Querier, o order) (Receipt, error) {
	found, err := r.find(ctx, tx, o.Scope, o.Key, "")
	if err != nil {
		return Receipt{}, err
	}
	if !bytes.Equal(found.fingerprint, o.fingerprint) {
		return Receipt{}, ErrKeyReused
	}
	if found.State == Held {
		// It may be over, in which case the answer is to say so.
		if found, err = r.find(ctx, tx, o.Scope, o.Key, "{lock}"); err != nil {
			return Receipt{}, err
		}
		now, err := r.store.Now(ctx, tx)
		if err != nil {
			return Receipt{}, err
		}
		if found.over(now) {
			found.Lines = o.Lines
			if err := r.end(ctx, tx, &found, Expired, now); err != nil {
				return Receipt{}, err
			}
		}
	}
	if found.State == Rejected {
		return Receipt{Status: Insufficient, Reservation: found.Reservation}, nil
	}
	found.Lines = o.Lines // the fingerprint says so
	return Receipt{Status: Replayed, Reservation: found.Reservation}, nil
}

// take takes the lines from the stock, and reports whether there is not enough
// of one; then it has taken nothing.
func (r *Repository) take(ctx context.Context, tx sqltx.Querier, lines []Line, now int64) (short bool, err error) {
	for i, l := range lines {
		taken, err := changed(tx.ExecContext(ctx, r.texts.Of(`UPDATE {stock} SET available = available - ? WHERE sku = ? AND available >= ?`),
			l.Quantity, l.SKU, l.Quantity))
		if err != nil {
			return false, err
		}
		if taken {
			continue
		}
		over, err := r.over(ctx, tx, l.SKU, now)
		if err != nil {
			return false, err
		}
		if over != nil {
			return false, &holdsAreOver{over}
		}
		return true, r.giveBack(ctx, tx, lines[:i])
	}
	return false, nil
}

func (r *Repository) reject(ctx context.Context, tx sqltx.Querier, o order, id, now int64) (Receipt, error) {
	if !r.remember {
		return Receipt{}, errInsufficient
	}
	_, err := tx.ExecContext(ctx, r.texts.Of(`UPDATE {reservations} SET state = ?, held_until = NULL, ended_at = ? WHERE id = ?`), string(Rejected), now, id)
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{Status: Insufficient, Reservation: Reservation{
		Scope: o.Scope, Key: o.Key, State: Rejected, Payload: o.Payload, Created: time.Unix(0, now), Ended: time.Unix(0, now),
	}}, nil
}

// state is what the order is in once it is accepted.
func (o order) state() string {
	if o.Hold > 0 {
		return string(Held)
	}
	return string(Confirmed)
}

func (o order) heldUntil(now int64) sql.NullInt64 {
	return sql.NullInt64{Int64: now + int64(o.Hold), Valid: o.Hold > 0}
}

func (o order) endedAt(now int64) sql.NullInt64 {
	return sql.NullInt64{Int64: now, Valid: o.Hold == 0}
}

func (o order) accepted(now int64) Reservation {
	return Reservation{
		Scope: o.Scope, Key: o.Key, State: State(o.state()), Lines: o.Lines, Payload: o.Payload,
		Created: time.Unix(0, now), Expires: unix(o.heldUntil(now)), Ended: unix(o.endedAt(now)),
	}
}

func notNil(payload []byte) []byte {
	if payload == nil {
		return []byte{}
	}
	return payload
}
