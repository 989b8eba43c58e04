package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
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
	h, err := r.claim(ctx, n)
	return h.deliveries, err
}

// A haul is what a claim brings in.
type haul struct {
	deliveries []Delivery
	since      time.Duration // local time from which the claims are reckoned
	wait       time.Duration // until something is due; 0 where there was, but nothing to be had
}

func (r *Relay) claim(ctx context.Context, n int) (haul, error) {
	var h haul
	err := r.look(ctx, &h)
	if err == nil && h.wait == 0 {
		err = r.outbox.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) error {
			h = haul{since: r.local.Elapsed()}
			now, err := r.outbox.store.Now(ctx, tx)
			if err != nil {
				return err
			}
			var due bool
			if h.deliveries, due, err = r.claimDue(ctx, tx, n, now); err != nil || due {
				return err
			}
			h.wait, err = r.untilDue(ctx, tx, now)
			return err
		})
	}
	if err != nil {
		return haul{}, fmt.Errorf("outbox: claim: %w", err)
	}
	return h, nil
}

// look spares SQLite's writers the claims that find nothing. On PostgreSQL such
// a claim locks nobody out.
func (r *Relay) look(ctx context.Context, h *haul) error {
	if r.outbox.store.Dialect() != leases.SQLite {
		return nil
	}
	return r.outbox.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) error {
		now, err := r.outbox.store.Peek(ctx)
		if err == nil {
			h.wait, err = r.untilDue(ctx, q, now)
		}
		return err
	})
}

// untilDue is how long it is until something is due: 0 for now, forever if
// nothing is waiting.
func (r *Relay) untilDue(ctx context.Context, q sqltx.Querier, now int64) (time.Duration, error) {
	var due sql.NullInt64
	err := q.QueryRowContext(ctx, r.outbox.texts.Of(`SELECT min(due_at) FROM {heads} WHERE due_at IS NOT NULL`)).Scan(&due)
	if err != nil {
		return 0, err
	}
	if !due.Valid {
		return forever, nil
	}
	return max(time.Duration(due.Int64-now), 0), nil
}

const forever = time.Duration(1<<63 - 1)

// head is an aggregate's first event while it is being claimed.
type head struct {
	Delivery
	unanswered bool // its last claim ran out
}

// claimDue also reports whether anything was due, dead events and deleted ones
// included.
func (r *Relay) claimDue(ctx context.Context, tx sqltx.Querier, n int, now int64) (_ []Delivery, due bool, err error) {
	heads, err := r.dueHeads(ctx, tx, n, now)
	if err != nil || len(heads) == 0 {
		return nil, false, err
	}
	if i := slices.IndexFunc(heads, func(h head) bool { return h.unanswered }); i >= 0 {
		heads = heads[:max(i, 1)]
	}
	if h := heads[0]; h.unanswered && h.Attempt >= r.options.MaxAttempts {
		return nil, true, r.kill(ctx, tx, h.Delivery, errUnanswered, now)
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
		return nil, true, err
	}
	if err := r.readEvents(ctx, tx, list, claimed); err != nil {
		return nil, true, err
	}
	deliveries := make([]Delivery, 0, len(heads))
	for _, h := range heads {
		if h.Created.IsZero() { // somebody deleted the event's row
			if err := r.outbox.advance(ctx, tx, h.Delivery, now); err != nil {
				return nil, true, err
			}
			continue
		}
		deliveries = append(deliveries, h.Delivery)
	}
	return deliveries, true, nil
}

func (r *Relay) dueHeads(ctx context.Context, tx sqltx.Querier, n int, now int64) ([]head, error) {
	// The limit is part of the text: PostgreSQL's generic plan would take an
	// argument for a tenth of the table, and sort that.
	rows, err := tx.QueryContext(ctx, r.outbox.texts.Of(`SELECT event_id, aggregate_type, aggregate_id, attempts, claim IS NOT NULL
		FROM {heads} WHERE due_at <= ? ORDER BY due_at, event_id LIMIT `+strconv.Itoa(n)+`{skip}`), now)
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
