package leases_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

// The model says for each operation exactly what it must answer and what the
// table must hold afterwards, while the clock is advanced and stepped at
// random. https://pkg.go.dev/pgregory.net/rapid

const (
	maxTTL      = 100 * time.Second
	maxLifetime = 250 * time.Second
	margin      = time.Second
)

// modelRow is a lease as the table must have it.
type modelRow struct {
	token           string
	owner           string
	epoch           int64
	acquired        int64
	renewed, expiry int64
}

// modelHandle is a Lease in somebody's hands.
type modelHandle struct {
	lease    *leases.Lease
	who      int
	name     string
	token    string
	epoch    int64
	ttl      time.Duration // last asked for
	deadline time.Duration // by the monotonic clock
	over     error         // ErrLost or ErrReleased, once it is
}

type machine struct {
	db       *sql.DB
	clock    *leasetest.Clock
	managers []*leases.Manager
	dialect  leases.Dialect

	last    []int64 // the highest time each Manager has read
	rows    map[string]*modelRow
	handles []*modelHandle
	writes  map[string][]int64 // epochs of committed Tx, by name
}

var names = []string{"a", "b", "é"}

func (m *machine) now(who int) int64 {
	m.last[who] = max(m.last[who], m.clock.Now().UnixNano())
	return m.last[who]
}

func (m *machine) row(name string) *modelRow {
	if m.rows[name] == nil {
		m.rows[name] = &modelRow{}
	}
	return m.rows[name]
}

func (r *modelRow) held(now int64) bool { return r.token != "" && r.expiry > now }

func drawTTL(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{2 * time.Second, 10 * time.Second, 50 * time.Second, maxTTL}).Draw(t, "ttl")
}

// Acquire without waiting.
func (m *machine) Acquire(t *rapid.T) {
	who := rapid.IntRange(0, len(m.managers)-1).Draw(t, "who")
	name := rapid.SampledFrom(names).Draw(t, "name")
	ttl := drawTTL(t)
	if rapid.IntRange(0, 5).Draw(t, "zero") == 0 {
		ttl = 0
	}
	local := m.clock.Elapsed()
	l, err := m.managers[who].Acquire(t.Context(), name, ttl, 0)
	now := m.now(who)
	row := m.row(name)
	if row.held(now) {
		var held *leases.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, row.owner, held.Holder.Owner)
		require.Equal(t, row.epoch, held.Holder.Epoch)
		return
	}
	require.NoError(t, err)
	info := l.Info()
	*row = modelRow{
		token: info.Token, owner: fmt.Sprintf("worker-%d", who), epoch: row.epoch + 1,
		acquired: now, renewed: now, expiry: now + int64(ttl),
	}
	for _, h := range m.handles {
		require.NotEqual(t, h.token, info.Token)
	}
	m.handles = append(m.handles, &modelHandle{
		lease: l, who: who, name: name, token: info.Token, epoch: row.epoch, ttl: ttl, deadline: local + ttl - margin,
	})
}

func (m *machine) handle(t *rapid.T) *modelHandle {
	if len(m.handles) == 0 {
		t.Skip("nobody has a lease")
	}
	// The latest ones are the interesting ones.
	i := rapid.IntRange(max(0, len(m.handles)-8), len(m.handles)-1).Draw(t, "handle")
	return m.handles[i]
}

// settleLocally is what the holder knows without asking.
func (m *machine) settleLocally(h *modelHandle) error {
	if h.over == nil && m.clock.Elapsed() >= h.deadline {
		h.over = leases.ErrLost
	}
	return h.over
}

// judge is what the store says of a lease.
func (m *machine) judge(h *modelHandle) (lost bool) {
	row, now := m.row(h.name), m.now(h.who)
	if row.token != h.token || row.expiry <= now {
		h.over = leases.ErrLost
		return true
	}
	return false
}

func (m *machine) Extend(t *rapid.T) {
	h := m.handle(t)
	ttl := drawTTL(t)
	over := m.settleLocally(h)
	err := h.lease.Extend(t.Context(), ttl)
	if over != nil {
		require.ErrorIs(t, err, over)
		return
	}
	if m.judge(h) {
		require.ErrorIs(t, err, leases.ErrLost)
		return
	}
	if m.renew(h, ttl) {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, leases.ErrNotExtended)
	}
}

func (m *machine) Release(t *rapid.T) {
	h := m.handle(t)
	over := m.settleLocally(h)
	err := h.lease.Release(t.Context())
	if over != nil {
		if over == leases.ErrReleased {
			over = nil
		}
		require.ErrorIs(t, err, over)
		return
	}
	row, mine := m.row(h.name), m.row(h.name).token == h.token
	if m.judge(h) {
		require.ErrorIs(t, err, leases.ErrLost)
	} else {
		require.NoError(t, err)
		h.over = leases.ErrReleased
	}
	if mine { // expired or not, nobody else has it
		row.token, row.owner, row.expiry = "", "", 0
	}
}

func (m *machine) Tx(t *rapid.T) {
	h := m.handle(t)
	over := m.settleLocally(h)
	err := h.lease.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, m.dialect.Rebind(`INSERT INTO writes (name, epoch) VALUES (?, ?)`), h.name, h.epoch)
		return err
	})
	if over != nil {
		require.ErrorIs(t, err, over)
		return
	}
	if m.judge(h) {
		require.ErrorIs(t, err, leases.ErrLost)
		return
	}
	require.NoError(t, err)
	m.writes[h.name] = append(m.writes[h.name], h.epoch)
	if h.deadline-m.clock.Elapsed() < h.ttl/2 {
		m.renew(h, h.ttl)
	}
}

// renew is what the store does with a renewal by the holder; it reports
// whether the expiry was moved.
func (m *machine) renew(h *modelHandle, ttl time.Duration) bool {
	row, now := m.row(h.name), m.now(h.who)
	expiry := now + int64(ttl)
	moved := expiry > row.expiry && expiry <= row.acquired+int64(maxLifetime)
	if moved {
		row.renewed, row.expiry, h.ttl = now, expiry, ttl
	}
	h.deadline = max(h.deadline, m.clock.Elapsed()+time.Duration(row.expiry-now)-margin)
	return moved
}

func (m *machine) Break(t *rapid.T) {
	who := rapid.IntRange(0, len(m.managers)-1).Draw(t, "who")
	name := rapid.SampledFrom(names).Draw(t, "name")
	row := m.row(name)
	epoch := row.epoch + int64(rapid.IntRange(-1, 1).Draw(t, "which"))
	err := m.managers[who].Break(t.Context(), name, epoch)
	now := m.now(who)
	switch {
	case epoch < 1 || epoch > row.epoch:
		require.ErrorIs(t, err, leases.ErrBounds)
	case epoch < row.epoch && row.held(now):
		require.ErrorIs(t, err, leases.ErrHeld)
	default:
		require.NoError(t, err)
		if epoch == row.epoch {
			row.token, row.owner, row.expiry = "", "", 0
		}
	}
}

func (m *machine) Owner(t *rapid.T) {
	who := rapid.IntRange(0, len(m.managers)-1).Draw(t, "who")
	name := rapid.SampledFrom(names).Draw(t, "name")
	info, held, err := m.managers[who].Owner(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, m.row(name).held(m.now(who)), held)
	if held {
		require.Equal(t, m.row(name).owner, info.Owner)
	}
}

func (m *machine) Err(t *rapid.T) {
	h := m.handle(t)
	over := m.settleLocally(h)
	require.ErrorIs(t, h.lease.Err(), over)
	require.Equal(t, over == nil, h.lease.Err() == nil)
}

var moments = []time.Duration{1, time.Second - 1, time.Second, 2 * time.Second, 5 * time.Second, 50 * time.Second, maxTTL - 1, maxTTL}

func (m *machine) Advance(t *rapid.T) {
	m.clock.Advance(rapid.SampledFrom(moments).Draw(t, "by"))
}

// Suspend: the machine sleeps, its monotonic clock with it.
func (m *machine) Suspend(t *rapid.T) {
	m.clock.Step(rapid.SampledFrom(moments).Draw(t, "by"))
}

func (m *machine) StepBack(t *rapid.T) {
	m.clock.Step(-rapid.SampledFrom(append(moments, time.Hour)).Draw(t, "by"))
}

// Check compares the tables with the model after every operation: what is
// refused changes no row.
func (m *machine) Check(t *rapid.T) {
	rows, err := m.db.Query(`SELECT name, token, owner, epoch, acquired, renewed, expires FROM coop_leases`)
	require.NoError(t, err)
	defer rows.Close()
	seen := map[string]bool{}
	for rows.Next() {
		var name string
		var r modelRow
		require.NoError(t, rows.Scan(&name, &r.token, &r.owner, &r.epoch, &r.acquired, &r.renewed, &r.expiry))
		require.Equal(t, *m.row(name), r, name)
		seen[name] = true
	}
	require.NoError(t, rows.Err())
	for name, r := range m.rows {
		require.True(t, seen[name] || r.epoch == 0, name)
	}
	for name, want := range m.writes {
		var n int
		require.NoError(t, m.db.QueryRow(m.dialect.Rebind(`SELECT count(*) FROM writes WHERE name = ?`), name).Scan(&n))
		require.Len(t, want, n)
		for i := 1; i < n; i++ {
			require.GreaterOrEqual(t, want[i], want[i-1], "committed writes are in the order of the epochs")
		}
	}
}

func checkModel(t *testing.T, s leasetest.Store) {
	db, err := sql.Open(s.Driver, s.DSN)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE writes (name text NOT NULL, epoch bigint NOT NULL)`)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{
			db: db, dialect: s.Dialect, clock: leasetest.NewClock(time.Unix(1_000_000, 0)),
			rows: map[string]*modelRow{}, writes: map[string][]int64{},
		}
		for i := range 3 {
			manager, err := leases.New(db, &leases.Options{
				Dialect: s.Dialect, Owner: fmt.Sprintf("worker-%d", i), Clock: m.clock,
				MaxTTL: maxTTL, MaxLifetime: maxLifetime, Margin: margin,
			})
			require.NoError(t, err)
			m.managers = append(m.managers, manager)
			m.last = append(m.last, 0)
		}
		for _, table := range []string{"coop_leases", "writes"} {
			_, err := db.Exec(`DELETE FROM ` + table)
			require.NoError(t, err)
		}
		t.Repeat(rapid.StateMachineActions(m))
	})
}

func TestLeasesFollowTheModel(t *testing.T) {
	for name, fresh := range map[string]func(*testing.T) leasetest.Store{"Modernc": modernc, "Postgres": postgres} {
		t.Run(name, func(t *testing.T) { checkModel(t, fresh(t)) })
	}
}
