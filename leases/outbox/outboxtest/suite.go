// Package outboxtest is what package outbox promises, as tests that run on any
// database it can live in.
package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// Run runs the suite. fresh opens a pool on an empty database, and closes it at
// the end of the test.
func Run(t *testing.T, dialect leases.Dialect, fresh func(t *testing.T) *sql.DB) {
	for _, test := range slices.Concat(appending, claiming, answering, dying, running, tidying) {
		t.Run(test.name, func(t *testing.T) {
			db := fresh(t)
			s := &store{T: t, db: db, dialect: dialect, clock: leasetest.NewClock(time.Date(2024, 5, 17, 12, 0, 0, 0, time.UTC))}
			s.box = s.open(s.clock)
			test.run(s)
		})
	}
}

type promise struct {
	name string
	run  func(s *store)
}

// A store is one test's database with an outbox, on a clock that stands still.
type store struct {
	*testing.T
	db      *sql.DB
	dialect leases.Dialect
	clock   *leasetest.Clock
	box     *outbox.Outbox
}

func (s *store) open(clock leases.Clock) *outbox.Outbox {
	s.Helper()
	box, err := outbox.New(s.db, &outbox.Options{Dialect: s.dialect, Clock: clock})
	require.NoError(s, err)
	return box
}

// realTime is the same outbox by the store's own clock.
func (s *store) realTime() *outbox.Outbox {
	s.Helper()
	return s.open(nil)
}

func (s *store) relay(options outbox.RelayOptions) *outbox.Relay {
	s.Helper()
	return relayOf(s, s.box, options)
}

func relayOf(s *store, box *outbox.Outbox, options outbox.RelayOptions) *outbox.Relay {
	s.Helper()
	if options.Backoff == nil {
		options.Backoff = func(int) time.Duration { return time.Minute }
	}
	r, err := box.Relay(&options)
	require.NoError(s, err)
	return r
}

// of is an event of the order with that number, empty for one outside any
// order.
func of(order, text string) outbox.Event {
	return outbox.Event{AggregateType: "order", AggregateID: order, Type: "changed", Payload: []byte(text)}
}

// inTx runs fn in a transaction of its own and commits it.
func (s *store) inTx(fn func(tx *sql.Tx) error) {
	s.Helper()
	tx, err := s.db.BeginTx(s.Context(), nil)
	require.NoError(s, err)
	defer tx.Rollback()
	require.NoError(s, fn(tx))
	require.NoError(s, tx.Commit())
}

func (s *store) append(events ...outbox.Event) {
	s.Helper()
	s.appendTo(s.box, events...)
}

func (s *store) appendTo(box *outbox.Outbox, events ...outbox.Event) {
	s.Helper()
	s.inTx(func(tx *sql.Tx) error { return box.Append(s.Context(), tx, events...) })
}

func (s *store) claim(r *outbox.Relay, n int) []outbox.Delivery {
	s.Helper()
	claimed, err := r.Claim(s.Context(), n)
	require.NoError(s, err)
	return claimed
}

// claimOne claims, and wants exactly one event.
func (s *store) claimOne(r *outbox.Relay) outbox.Delivery {
	s.Helper()
	claimed := s.claim(r, 10)
	require.Len(s, claimed, 1)
	return claimed[0]
}

func (s *store) ack(r *outbox.Relay, d ...outbox.Delivery) {
	s.Helper()
	require.NoError(s, r.Ack(s.Context(), d...))
}

func (s *store) nack(r *outbox.Relay, d outbox.Delivery) {
	s.Helper()
	require.NoError(s, r.Nack(s.Context(), d, errors.New("no luck")))
}

func (s *store) backlog() outbox.Backlog {
	s.Helper()
	b, err := s.box.Backlog(s.Context())
	require.NoError(s, err)
	return b
}

func (s *store) dead() []outbox.DeadEvent {
	s.Helper()
	var dead []outbox.DeadEvent
	for e, err := range s.box.Dead(s.Context()) {
		require.NoError(s, err)
		dead = append(dead, e)
	}
	return dead
}

// dump is everything that the outbox has in the database.
func (s *store) dump() []string {
	s.Helper()
	var all []string
	for _, query := range []string{
		`SELECT id, state, ended_at, attempts, last_error FROM coop_outbox ORDER BY id`,
		`SELECT event_id, due_at, attempts, claim, last_error FROM coop_outbox_heads ORDER BY event_id`,
	} {
		rows, err := s.db.QueryContext(s.Context(), query)
		require.NoError(s, err)
		for rows.Next() {
			var column [5]sql.NullString
			require.NoError(s, rows.Scan(&column[0], &column[1], &column[2], &column[3], &column[4]))
			all = append(all, fmt.Sprint(column))
		}
		require.NoError(s, rows.Err())
		rows.Close()
	}
	return all
}

func payloads(deliveries []outbox.Delivery) []string {
	var texts []string
	for _, d := range deliveries {
		texts = append(texts, string(d.Payload))
	}
	return texts
}

// run runs the relay until the returned function is called, which waits for it.
// The contexts of deliveries end with the test too, so that one that fails does
// not hang.
func (s *store) run(r *outbox.Relay, deliver func(context.Context, outbox.Delivery) error) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func(ctx context.Context, d outbox.Delivery) error {
			ctx, end := context.WithCancelCause(ctx)
			defer context.AfterFunc(s.Context(), func() { end(errTestOver) })()
			return deliver(ctx, d)
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		require.ErrorIs(s, <-done, context.Canceled)
	})
	s.Cleanup(stop)
	return stop
}

var errTestOver = errors.New("the test is over")

// receive waits for ch, as a delivery.
func receive(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// within waits for ch, but not for ever.
func within[T any](s *store, ch <-chan T, what string) T {
	s.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(30 * time.Second):
		s.Fatal("waited in vain for " + what)
		panic("unreachable")
	}
}
