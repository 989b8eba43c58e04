package reservations_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

func TestRepositoryBehavesAsItsModelOnModernc(t *testing.T) {
	checkModel(t, leases.SQLite, modernc(t))
}

func TestRepositoryBehavesAsItsModelOnPostgreSQL(t *testing.T) {
	checkModel(t, leases.Postgres, postgres(t))
}

var skus = []string{"a", "b", "c"}

func checkModel(t *testing.T, dialect leases.Dialect, db *sql.DB) {
	// Fewer walks than usual, where every step waits for a disk.
	checks := flag.Lookup("rapid.checks")
	usual := checks.Value.String()
	walks := map[leases.Dialect]string{leases.SQLite: "40", leases.Postgres: "20"}
	require.NoError(t, checks.Value.Set(walks[dialect]))
	defer checks.Value.Set(usual)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		n := runs.Add(1)
		m := newMachine(rt, t, db, &reservations.Options{
			Dialect: dialect,
			Tables: reservations.Tables{
				Stock: fmt.Sprint("stock", n), Reservations: fmt.Sprint("reservations", n), Outbox: fmt.Sprint("outbox", n),
			},
			RememberRejections: rapid.Bool().Draw(rt, "remember"),
			Clock:              leasetest.NewClock(time.Unix(1_700_000_000, 0)),
		})
		rt.Repeat(rapid.StateMachineActions(m))
	})
}

// A machine is a repository and what it should be like.
type machine struct {
	t        *testing.T
	repo     *reservations.Repository
	clock    *leasetest.Clock
	remember bool

	stock  map[string]int64                    // on hand, as if every hold that is over had been swept
	known  map[string]reservations.Reservation // by key; a hold that is over is expired
	wanted map[string]reservations.Request     // by key
	putIn  map[string]int64
	events int64
}

func newMachine(rt *rapid.T, t *testing.T, db *sql.DB, options *reservations.Options) *machine {
	repo, err := reservations.New(db, options)
	require.NoError(rt, err)
	m := &machine{
		t: t, repo: repo, clock: options.Clock.(*leasetest.Clock), remember: options.RememberRejections,
		stock: map[string]int64{}, known: map[string]reservations.Reservation{},
		wanted: map[string]reservations.Request{}, putIn: map[string]int64{},
	}
	for _, sku := range skus {
		quantity := rapid.Int64Range(0, 6).Draw(rt, "stock of "+sku)
		require.NoError(rt, repo.SetStock(t.Context(), sku, quantity))
		m.stock[sku], m.putIn[sku] = quantity, quantity
	}
	return m
}

func key(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"k1", "k2", "k3", "k4", "k5"}).Draw(rt, "key")
}

func (m *machine) Reserve(rt *rapid.T) {
	request := reservations.Request{
		Key:   key(rt),
		Event: &outbox.Event{Type: "placed"},
		Hold:  rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(rt, "hold"),
	}
	for _, sku := range rapid.SliceOfNDistinct(rapid.SampledFrom(skus), 1, 3, rapid.ID).Draw(rt, "skus") {
		request.Lines = append(request.Lines, reservations.Line{SKU: sku, Quantity: rapid.Int64Range(1, 3).Draw(rt, "quantity")})
	}
	if first, ok := m.wanted[request.Key]; ok && rapid.Bool().Draw(rt, "again") {
		request = first
	}
	receipt, err := m.repo.Reserve(m.t.Context(), request)
	if known, used := m.known[request.Key]; used {
		if !same(m.wanted[request.Key], request) {
			require.ErrorIs(rt, err, reservations.ErrKeyReused)
			return
		}
		require.NoError(rt, err)
		require.Equal(rt, known.State, receipt.Reservation.State)
		if known.State == reservations.Rejected {
			require.Equal(rt, reservations.Insufficient, receipt.Status)
		} else {
			require.Equal(rt, reservations.Replayed, receipt.Status)
		}
		return
	}
	require.NoError(rt, err)
	for _, l := range request.Lines {
		if m.stock[l.SKU] < l.Quantity {
			require.Equal(rt, reservations.Insufficient, receipt.Status)
			if m.remember {
				m.wanted[request.Key] = request
				m.known[request.Key] = reservations.Reservation{State: reservations.Rejected}
			}
			return
		}
	}
	require.Equal(rt, reservations.Accepted, receipt.Status)
	m.events++
	m.wanted[request.Key], m.known[request.Key] = request, receipt.Reservation
	m.move(request.Key, -1)
}

func same(a, b reservations.Request) bool {
	sorted := func(r reservations.Request) []reservations.Line {
		return slices.SortedFunc(slices.Values(r.Lines), func(a, b reservations.Line) int {
			if a.SKU < b.SKU {
				return -1
			}
			return 1
		})
	}
	return a.Hold == b.Hold && slices.Equal(sorted(a), sorted(b))
}

// move gives the reservation's lines back, or takes them.
func (m *machine) move(key string, direction int64) {
	for _, l := range m.wanted[key].Lines {
		m.stock[l.SKU] += direction * l.Quantity
	}
}

func (m *machine) Confirm(rt *rapid.T) {
	m.end(rt, reservations.Confirmed, func(key string) error {
		_, err := m.repo.Confirm(m.t.Context(), "", key)
		return err
	})
}

func (m *machine) Cancel(rt *rapid.T) {
	m.end(rt, reservations.Cancelled, func(key string) error {
		_, err := m.repo.Cancel(m.t.Context(), "", key)
		return err
	})
}

func (m *machine) end(rt *rapid.T, how reservations.State, do func(key string) error) {
	key := key(rt)
	err := do(key)
	known, ok := m.known[key]
	switch {
	case !ok:
		require.ErrorIs(rt, err, reservations.ErrNotFound)
	case known.State == how:
		require.NoError(rt, err)
	case known.State == reservations.Held:
		require.NoError(rt, err)
		known.State = how
		m.known[key] = known
		if how != reservations.Confirmed {
			m.move(key, 1)
		}
	default:
		ended, ok := errors.AsType[*reservations.HoldEndedError](err)
		require.True(rt, ok, "%v", err)
		require.Equal(rt, known.State, ended.State)
	}
}

func (m *machine) Wait(rt *rapid.T) {
	m.clock.Advance(rapid.SampledFrom([]time.Duration{1, time.Second - 1, time.Second, time.Minute}).Draw(rt, "wait"))
	for key, known := range m.known {
		if known.State == reservations.Held && !known.Expires.After(m.clock.Now()) {
			known.State = reservations.Expired
			m.known[key] = known
			m.move(key, 1)
		}
	}
}

func (m *machine) Restock(rt *rapid.T) {
	sku, quantity := rapid.SampledFrom(skus).Draw(rt, "sku"), rapid.Int64Range(1, 2).Draw(rt, "quantity")
	require.NoError(rt, m.repo.Restock(m.t.Context(), sku, quantity))
	m.stock[sku] += quantity
	m.putIn[sku] += quantity
}

func (m *machine) ExpireHolds(rt *rapid.T) {
	_, err := m.repo.ExpireHolds(m.t.Context())
	require.NoError(rt, err)
}

// Check is run after every step.
func (m *machine) Check(rt *rapid.T) {
	taken := map[string]int64{}
	for _, key := range slices.Sorted(maps.Keys(m.known)) {
		known := m.known[key]
		got, err := m.repo.Get(m.t.Context(), "", key)
		require.NoError(rt, err)
		require.Equal(rt, known.State, got.State, key)
		if got.State == reservations.Held || got.State == reservations.Confirmed {
			for _, l := range got.Lines {
				taken[l.SKU] += l.Quantity
			}
		}
	}
	for _, sku := range skus {
		available, err := m.repo.Available(m.t.Context(), sku)
		require.NoError(rt, err)
		require.Equal(rt, m.stock[sku], available, sku)
		require.GreaterOrEqual(rt, available, int64(0))
		require.Equal(rt, m.putIn[sku], available+taken[sku], "on hand, held and sold of "+sku)
	}
	backlog, err := m.repo.Outbox().Backlog(m.t.Context())
	require.NoError(rt, err)
	require.Equal(rt, m.events, backlog.Pending)
}
