package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// errUnanswered is the last error of an event whose every claim ran out.
var errUnanswered = errors.New("the last claim ended without an answer")

// Claim takes up to n events that are due, for the time of the relay's Lease,
// each the first of its aggregate, and counts an attempt for each. Nothing due
// is no error. It never waits for another relay's claims.
//
// An event whose last claim ended without an answer, as when it brought the
// relay down, is claimed alone: it shall not take others down with it. One
// that has used up its attempts that way is dead.
func (r *Relay) Claim(ctx context.Context, n int) ([]Delivery, error) {
	if n < 1 {
		return nil, fmt.Errorf("outbox: claim %d events", n)
	}
	// Who finds nothing takes no lock.
	if wait, err := r.untilDue(ctx); err != nil || wait > 0 {
		return nil, err
	}
	claimed, _, err := r.claim(ctx, n)
	return claimed, err
}

// claim also returns the local time from which the claims were reckoned.
func (r *Relay) claim(ctx context.Context, n int) ([]Delivery, time.Duration, error) {
	var claimed []Delivery
	var since time.Duration
	err := r.outbox.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) (err error) {
		claimed = nil
		since = r.local.Elapsed()
		now, err := r.outbox.store.Now(ctx, tx)
		if err != nil {
			return err
		}
		claimed, err = r.claimDue(ctx, tx, n, now)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("outbox: claim: %w", err)
	}
	return claimed, since, nil
}

// untilDue is how long it is until something is due: 0 for now, forever if
// nothing is waiting.
func (r *Relay) untilDue(ctx context.Context) (time.Duration, error) {
	o := r.outbox
	var due sql.NullInt64
	err := o.store.DB().QueryRowContext(ctx, o.texts.Of(`SELECT min(due_at) FROM {heads} WHERE due_at IS NOT NULL`)).Scan(&due)
	if err != nil {
		return 0, fmt.Errorf("outbox: look for due events: %w", err)
	}
	if !due.Valid {
		return forever, nil
	}
	now, err := o.store.Peek(ctx)
	if err != nil {
		return 0, fmt.Errorf("outbox: look for due events: %w", err)
	}
	return max(time.Duration(due.Int64-now), 0), nil
}

const forever = time.Duration(1<<63 - 1)

// head is an aggregate's first event while it is being claimed.
type head struct {
	Delivery
	unanswered bool // its last claim ran out
}

func (r *Relay) claimDue(ctx context.Context, tx sqltx.Querier, n int, now int64) ([]Delivery, error) {
	heads, err := r.dueHeads(ctx, tx, n, now)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(heads, func(h head) bool { return h.unanswered }); i >= 0 {
		heads = heads[:max(i, 1)]
	}
	if len(heads) == 0 {
		return nil, nil
	}
	if h := heads[0]; h.unanswered && h.Attempt >= r.options.MaxAttempts {
		return nil, r.kill(ctx, tx, h.Delivery, errUnanswered, now)
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	token := hex.EncodeToString(random[:])
	expires := now + int64(r.options.Lease)

	claimed := make(map[int64]*Delivery, len(heads))
	ids := make([]int64, len(heads))
	for i := range heads {
		d := &heads[i].Delivery
		d.Attempt++
		d.Expires, d.claim = unix(expires), token
		claimed[d.ID], ids[i] = d, d.ID
	}
	list := r.outbox.texts.IDs(ids)
	_, err = tx.ExecContext(ctx, r.outbox.texts.Of(`UPDATE {heads} SET claim = ?, due_at = ?, attempts = attempts + 1 WHERE event_id {ids}`),
		token, expires, list)
	if err != nil {
		return nil, err
	}
	if err := r.readEvents(ctx, tx, list, claimed); err != nil {
		return nil, err
	}
	deliveries := make([]Delivery, 0, len(heads))
	for _, h := range heads {
		if h.Created.IsZero() { // somebody deleted the event's row
			if err := r.outbox.advance(ctx, tx, h.Delivery, now); err != nil {
				return nil, err
			}
			continue
		}
		deliveries = append(deliveries, h.Delivery)
	}
	return deliveries, nil
}

func (r *Relay) dueHeads(ctx context.Context, tx sqltx.Querier, n int, now int64) ([]head, error) {
	rows, err := tx.QueryContext(ctx, r.outbox.texts.Of(`SELECT event_id, aggregate_type, aggregate_id, attempts, claim IS NOT NULL
		FROM {heads} WHERE due_at <= ? ORDER BY due_at, event_id LIMIT ?{skip}`), now, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var heads []head
	for rows.Next() {
		var h head
		if err := rows.Scan(&h.ID, &h.AggregateType, &h.AggregateID, &h.Attempt, &h.unanswered); err != nil {
			return nil, err
		}
		heads = append(heads, h)
	}
	return heads, rows.Err()
}

// readEvents fills in what the heads do not hold.
func (r *Relay) readEvents(ctx context.Context, tx sqltx.Querier, list string, claimed map[int64]*Delivery) error {
	rows, err := tx.QueryContext(ctx, r.outbox.texts.Of(`SELECT id, type, payload, created_at FROM {outbox} WHERE id {ids}`), list)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, created int64
		var kind string
		var payload []byte
		if err := rows.Scan(&id, &kind, &payload, &created); err != nil {
			return err
		}
		d := claimed[id]
		d.Type, d.Payload, d.Created = kind, payload, unix(created)
	}
	return rows.Err()
}
