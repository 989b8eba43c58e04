package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// Ack says that the events were delivered: each makes room for the next of its
// aggregate. Those whose claim is lost are left alone and named by a
// [ClaimLostError]; the others are acknowledged all the same. An answer that
// comes after the claim's end still counts if nobody else has claimed the
// event meanwhile: delivered is delivered.
func (r *Relay) Ack(ctx context.Context, deliveries ...Delivery) error {
	answers := make([]answer, len(deliveries))
	for i, d := range deliveries {
		answers[i] = answer{delivery: d, verdict: delivered}
	}
	return r.answerAll(ctx, answers)
}

// Nack says that the delivery failed, and why. The event comes back after the
// relay's Backoff, or is dead if that was its last attempt or cause is marked
// by [Permanent]. The claim being lost is ErrClaimLost.
func (r *Relay) Nack(ctx context.Context, d Delivery, cause error) error {
	if cause == nil {
		cause = errors.New("no reason given")
	}
	return r.answerAll(ctx, []answer{{delivery: d, verdict: failed, cause: cause}})
}

// Extend makes the claims last for a whole Lease from now. Those that are lost
// are left alone and named by a [ClaimLostError].
func (r *Relay) Extend(ctx context.Context, deliveries ...Delivery) error {
	answers := make([]answer, len(deliveries))
	for i, d := range deliveries {
		answers[i] = answer{delivery: d, verdict: extended}
	}
	return r.answerAll(hint.Urgent(ctx), answers)
}

type verdict int

const (
	delivered  verdict = iota
	failed             // comes back later, or is dead
	handedBack         // was not started, does not count
	extended           // goes on
)

type answer struct {
	delivery Delivery
	verdict  verdict
	cause    error // of failed
}

func (r *Relay) answerAll(ctx context.Context, answers []answer) error {
	lost, _, err := r.settle(ctx, answers, "{lock}")
	if err != nil {
		return err
	}
	if lost != nil {
		return &ClaimLostError{IDs: lost}
	}
	return nil
}

// settle writes down the answers, in one transaction. Answers for claims that
// are lost change nothing. With {skip} it leaves out the events whose aggregate
// somebody is appending to at the moment, on PostgreSQL, and returns their
// answers as busy; with {lock} it waits.
func (r *Relay) settle(ctx context.Context, answers []answer, lock string) (lost []int64, busy []answer, err error) {
	if len(answers) == 0 {
		return nil, nil, nil
	}
	answers = slices.Clone(answers)
	slices.SortFunc(answers, func(a, b answer) int {
		return cmp.Or(byAggregate(a.delivery.Event, b.delivery.Event), cmp.Compare(a.delivery.ID, b.delivery.ID))
	})
	err = r.outbox.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) error {
		lost, busy = nil, nil
		held := make([]answer, 0, len(answers))
		for _, a := range answers {
			state, err := r.outbox.lockClaim(ctx, tx, a.delivery, lock)
			switch {
			case err != nil:
				return err
			case state == claimLost:
				lost = append(lost, a.delivery.ID)
			case state == claimBusy:
				busy = append(busy, a)
			default:
				held = append(held, a)
			}
		}
		if len(held) == 0 {
			return nil
		}
		now, err := r.outbox.store.Now(ctx, tx)
		if err != nil {
			return err
		}
		for _, a := range held {
			if err := r.write(ctx, tx, a, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("outbox: answer claims: %w", err)
	}
	return lost, busy, nil
}

type claimState int

const (
	claimHeld claimState = iota
	claimLost
	claimBusy
)

func (o *Outbox) lockClaim(ctx context.Context, tx sqltx.Querier, d Delivery, lock string) (claimState, error) {
	const current = `SELECT 1 FROM {heads} WHERE event_id = ? AND claim = ?`
	var one int
	err := tx.QueryRowContext(ctx, o.texts.Of(current+lock), d.ID, d.claim).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) && lock == "{skip}" {
		err = tx.QueryRowContext(ctx, o.texts.Of(current), d.ID, d.claim).Scan(&one)
		if err == nil {
			return claimBusy, nil
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return claimLost, nil
	}
	return claimHeld, err
}

func (r *Relay) write(ctx context.Context, tx sqltx.Querier, a answer, now int64) error {
	o, d := r.outbox, a.delivery
	switch a.verdict {
	case delivered:
		if err := o.end(ctx, tx, d, "delivered", now); err != nil {
			return err
		}
		return o.advance(ctx, tx, d, now)
	case failed:
		if r.isLast(d, a.cause) {
			return r.kill(ctx, tx, d, a.cause, now)
		}
		due := now + int64(r.options.Backoff(d.Attempt))
		_, err := tx.ExecContext(ctx, o.texts.Of(`UPDATE {heads} SET claim = NULL, due_at = ?, last_error = ? WHERE event_id = ?`),
			due, message(a.cause), d.ID)
		return err
	case handedBack:
		_, err := tx.ExecContext(ctx, o.texts.Of(`UPDATE {heads} SET claim = NULL, due_at = ?, attempts = attempts - 1 WHERE event_id = ?`),
			now, d.ID)
		return err
	default:
		_, err := tx.ExecContext(ctx, o.texts.Of(`UPDATE {heads} SET due_at = ? WHERE event_id = ?`), now+int64(r.options.Lease), d.ID)
		return err
	}
}

// isLast reports whether the event is dead after this failure.
func (r *Relay) isLast(d Delivery, cause error) bool {
	return d.Attempt >= r.options.MaxAttempts || isPermanent(cause)
}

// end writes the event's last state.
func (o *Outbox) end(ctx context.Context, tx sqltx.Querier, d Delivery, state string, now int64) error {
	_, err := tx.ExecContext(ctx, o.texts.Of(`UPDATE {outbox} SET state = ?, ended_at = ?, attempts = ? WHERE id = ?`),
		state, now, d.Attempt, d.ID)
	return err
}

// advance moves the head from the event to the next of its aggregate, or drops
// it. The caller holds the head's lock, and the event is no longer pending;
// looking for the next takes a statement of its own, for on PostgreSQL only
// that sees what was committed while the lock was waited for.
func (o *Outbox) advance(ctx context.Context, tx sqltx.Querier, d Delivery, now int64) error {
	if d.ordered() {
		var next int64
		err := tx.QueryRowContext(ctx, o.texts.Of(`SELECT id FROM {outbox}
			WHERE aggregate_type = ? AND aggregate_id = ? AND state = 'pending' ORDER BY id LIMIT 1`),
			d.AggregateType, d.AggregateID).Scan(&next)
		if err == nil {
			_, err = tx.ExecContext(ctx, o.texts.Of(`UPDATE {heads} SET event_id = ?, due_at = ?, attempts = 0, claim = NULL, last_error = NULL
				WHERE event_id = ?`), next, now, d.ID)
			return err
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, o.texts.Of(`DELETE FROM {heads} WHERE event_id = ?`), d.ID)
	return err
}

// kill makes the event a dead one. What has no place in an order, or may be
// skipped, blocks nobody and needs no head.
func (r *Relay) kill(ctx context.Context, tx sqltx.Querier, d Delivery, cause error, now int64) error {
	o := r.outbox
	_, err := tx.ExecContext(ctx, o.texts.Of(`UPDATE {outbox} SET state = 'dead', attempts = ?, last_error = ? WHERE id = ?`),
		d.Attempt, message(cause), d.ID)
	if err != nil {
		return err
	}
	if r.options.SkipDead || !d.ordered() {
		return o.advance(ctx, tx, d, now)
	}
	_, err = tx.ExecContext(ctx, o.texts.Of(`UPDATE {heads} SET claim = NULL, due_at = NULL WHERE event_id = ?`), d.ID)
	return err
}

// message is what is kept of an error: text that every database takes, and not
// a page of it.
func message(err error) string {
	const limit = 1000
	text := err.Error()
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "�")
}
