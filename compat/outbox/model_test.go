package outbox_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

func TestOutboxBehavesAsItsModelOnModernc(t *testing.T) {
	checkModel(t, leases.SQLite, modernc(t))
}

func TestOutboxBehavesAsItsModelOnPostgreSQL(t *testing.T) {
	checkModel(t, leases.Postgres, postgres(t))
}

const (
	lease       = 30 * time.Second
	pause       = 10 * time.Second
	maxAttempts = 3
)

func checkModel(t *testing.T, dialect leases.Dialect, db *sql.DB) {
	// Fewer walks than usual, where every step waits for a disk.
	checks := flag.Lookup("rapid.checks")
	usual := checks.Value.String()
	walks := map[leases.Dialect]string{leases.SQLite: "40", leases.Postgres: "20"}
	require.NoError(t, checks.Value.Set(walks[dialect]))
	defer checks.Value.Set(usual)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, db: db, clock: leasetest.NewClock(time.Unix(1_700_000_000, 0)), skip: rapid.Bool().Draw(rt, "skip dead")}
		var err error
		m.box, err = outbox.New(db, &outbox.Options{Dialect: dialect, Table: fmt.Sprint("outbox", runs.Add(1)), Clock: m.clock})
		require.NoError(rt, err)
		m.relay, err = m.box.Relay(&outbox.RelayOptions{
			Lease: lease, MaxAttempts: maxAttempts, SkipDead: m.skip, Backoff: func(int) time.Duration { return pause },
		})
		require.NoError(rt, err)
		rt.Repeat(rapid.StateMachineActions(m))
	})
}

// A machine is an outbox and what it should be like.
type machine struct {
	t     *testing.T
	db    *sql.DB
	clock *leasetest.Clock
	box   *outbox.Outbox
	relay *outbox.Relay
	skip  bool

	events []*event // all of them, by number
	out    []held   // claims that somebody has, or thinks he has
}

type state int

const (
	pending state = iota
	delivered
	dead
	discarded
)

type event struct {
	id        int64
	aggregate string
	state     state
	head      bool // may be claimed once it is due
	due       time.Time
	attempts  int
	claim     int // number of the current claim, 0 for none
	skipped   bool
}

type held struct {
	outbox.Delivery
	claim int
}

var claims int

func (m *machine) Append(rt *rapid.T) {
	tx, err := m.db.BeginTx(m.t.Context(), nil)
	require.NoError(rt, err)
	defer tx.Rollback()
	aggregates := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", ""}), 1, 3).Draw(rt, "aggregates")
	for _, a := range aggregates {
		require.NoError(rt, m.box.Append(m.t.Context(), tx, outbox.Event{AggregateID: a, Type: "t", Payload: []byte(a)}))
	}
	if rapid.IntRange(0, 3).Draw(rt, "roll back") == 0 {
		return
	}
	require.NoError(rt, tx.Commit())
	for _, a := range aggregates {
		e := &event{aggregate: a}
		m.events = append(m.events, e)
		m.settleHeads()
	}
}

// settleHeads makes the first pending event of an aggregate its head, unless
// something dead is in the way.
func (m *machine) settleHeads() {
	busy := map[string]bool{}
	for _, e := range m.events {
		if e.head && e.state == pending || e.state == dead && !e.skipped {
			busy[e.aggregate] = true
		}
	}
	for _, e := range m.events {
		if e.state != pending || e.head || e.aggregate != "" && busy[e.aggregate] {
			continue
		}
		busy[e.aggregate] = true
		e.head, e.due, e.attempts, e.claim = true, m.clock.Now(), 0, 0
	}
}

func (m *machine) Claim(rt *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(rt, "n")
	claimed, err := m.relay.Claim(m.t.Context(), n)
	require.NoError(rt, err)
	want := m.due(n)
	if len(want) == 1 && want[0].claim != 0 && want[0].attempts >= maxAttempts {
		m.kill(want[0])
		require.Empty(rt, claimed)
		return
	}
	require.Len(rt, claimed, len(want))
	claims++
	for i, d := range claimed {
		e := want[i]
		if e.id == 0 { // numbers that were rolled back are not known
			e.id = d.ID
		}
		require.Equal(rt, e.id, d.ID)
		require.Equal(rt, e.aggregate, d.AggregateID)
		e.attempts++
		require.Equal(rt, e.attempts, d.Attempt)
		e.claim, e.due = claims, m.clock.Now().Add(lease)
		m.out = append(m.out, held{d, claims})
	}
}

// due is what the next claim should take.
func (m *machine) due(n int) []*event {
	var due []*event
	for _, e := range m.events {
		if e.head && !e.due.After(m.clock.Now()) {
			due = append(due, e)
		}
	}
	slices.SortStableFunc(due, func(a, b *event) int { return a.due.Compare(b.due) })
	due = due[:min(n, len(due))]
	if i := slices.IndexFunc(due, func(e *event) bool { return e.claim != 0 }); i >= 0 {
		due = due[:max(i, 1)]
	}
	return due
}

func (m *machine) kill(e *event) {
	e.state, e.head, e.claim = dead, false, 0
	e.skipped = m.skip || e.aggregate == ""
	m.settleHeads()
}

// answer draws somebody who has, or once had, a claim.
func (m *machine) answer(rt *rapid.T, do func(outbox.Delivery) error, then func(*event)) {
	if len(m.out) == 0 {
		rt.Skip("nothing is claimed")
	}
	h := rapid.SampledFrom(m.out).Draw(rt, "delivery")
	e := m.byID(h.ID)
	err := do(h.Delivery)
	if e.state != pending || e.claim != h.claim {
		require.ErrorIs(rt, err, outbox.ErrClaimLost)
		return
	}
	require.NoError(rt, err)
	then(e)
}

func (m *machine) byID(id int64) *event {
	i := slices.IndexFunc(m.events, func(e *event) bool { return e.id == id })
	return m.events[i]
}

func (m *machine) Ack(rt *rapid.T) {
	m.answer(rt, func(d outbox.Delivery) error { return m.relay.Ack(m.t.Context(), d) }, func(e *event) {
		e.state, e.head = delivered, false
		m.settleHeads()
	})
}

func (m *machine) Nack(rt *rapid.T) {
	m.answer(rt, func(d outbox.Delivery) error { return m.relay.Nack(m.t.Context(), d, errors.New("no")) }, func(e *event) {
		if e.attempts >= maxAttempts {
			m.kill(e)
			return
		}
		e.claim, e.due = 0, m.clock.Now().Add(pause)
	})
}

func (m *machine) Extend(rt *rapid.T) {
	m.answer(rt, func(d outbox.Delivery) error { return m.relay.Extend(m.t.Context(), d) }, func(e *event) {
		e.due = m.clock.Now().Add(lease)
	})
}

// decide draws a dead event.
func (m *machine) decide(rt *rapid.T, do func(id int64) error, then func(*event)) {
	var known []*event
	for _, e := range m.events {
		if e.id != 0 {
			known = append(known, e)
		}
	}
	if known == nil {
		rt.Skip("no event has been seen")
	}
	e := rapid.SampledFrom(known).Draw(rt, "event")
	err := do(e.id)
	if e.state != dead {
		require.ErrorIs(rt, err, outbox.ErrNotDead)
		return
	}
	require.NoError(rt, err)
	then(e)
	m.settleHeads()
}

func (m *machine) Requeue(rt *rapid.T) {
	m.decide(rt, func(id int64) error { return m.box.Requeue(m.t.Context(), id) }, func(e *event) { e.state = pending })
}

func (m *machine) Discard(rt *rapid.T) {
	m.decide(rt, func(id int64) error { return m.box.Discard(m.t.Context(), id) }, func(e *event) { e.state = discarded })
}

func (m *machine) Wait(*rapid.T) { m.clock.Advance(pause) }

// Check is run after every step.
func (m *machine) Check(rt *rapid.T) {
	var want outbox.Backlog
	for _, e := range m.events {
		switch e.state {
		case pending:
			want.Pending++
		case dead:
			want.Dead++
		}
	}
	got, err := m.box.Backlog(m.t.Context())
	require.NoError(rt, err)
	require.Equal(rt, want, outbox.Backlog{Pending: got.Pending, Dead: got.Dead})
}
