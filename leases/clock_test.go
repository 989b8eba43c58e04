package leases_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

// stepWallClock makes the wall clock of this machine differ by d from what it
// was when the store's clock was anchored: as if it had been set since. (The
// boot-time clock, by which the store counts, cannot be set.)
func stepWallClock(t *testing.T, db *sql.DB, d time.Duration) {
	t.Helper()
	r, err := db.Exec(`UPDATE coop_clock SET unix_ns = unix_ns - ?`, int64(d))
	require.NoError(t, err)
	n, err := r.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "the clock has no anchor: does this system have no boot-time clock?")
}

func TestStepsOfTheWallClockMoveNoLease(t *testing.T) {
	for name, step := range map[string]time.Duration{"AnHourAhead": time.Hour, "AnHourBack": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := plain(t)
			db := open(t, s)
			_, err := manager(t, db, leases.Options{}).Acquire(t.Context(), "anchor", 0, 0)
			require.NoError(t, err)
			stepWallClock(t, db, step)

			a, b := leasetest.StartWorker(t, s, "worker-a"), leasetest.StartWorker(t, s, "worker-b")
			live := a.MustAcquire("live", time.Minute)
			require.WithinDuration(t, time.Now().Add(-step), live.Info.Acquired, 30*time.Minute)
			dead := a.MustAcquire("dead", time.Second)
			next, err := b.Acquire("dead", time.Minute, time.Minute)
			require.NoError(t, err, "nobody waits longer for a dead holder")
			require.False(t, next.Info.Acquired.Before(dead.Info.Expires))
			require.NoError(t, live.Err(), "nobody loses a lease")
			require.NoError(t, live.Extend(2*time.Minute))
			_, err = b.Acquire("live", time.Minute, 0)
			require.ErrorIs(t, err, leases.ErrHeld)
		})
	}
}

func TestEachBootAnchorsTheClockAnew(t *testing.T) {
	db := open(t, plain(t))
	m := manager(t, db, leases.Options{})
	before, err := m.Acquire(t.Context(), "before", time.Hour, 0)
	require.NoError(t, err)
	_, err = db.Exec(`UPDATE coop_clock SET boot_id = 'the boot before', boot_ns = boot_ns + 1000000000000`)
	require.NoError(t, err)

	info, held, err := m.Owner(t.Context(), "before")
	require.NoError(t, err)
	require.True(t, held, "a lease of before is judged by the calendar")
	after, err := m.Acquire(t.Context(), "after", time.Hour, 0)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), after.Info().Acquired, time.Minute)
	require.NoError(t, m.Break(t.Context(), "before", info.Epoch))
	require.ErrorIs(t, before.Extend(t.Context(), 2*time.Hour), leases.ErrLost)
}

func TestSuspendedHolderLosesWhatExpiredMeanwhile(t *testing.T) {
	// The wall clock goes on while the machine sleeps, the monotonic one does
	// not: the holder believes that it has all its time left.
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	db := open(t, plain(t))
	_, err := db.Exec(`CREATE TABLE work (n INTEGER)`)
	require.NoError(t, err)
	m := manager(t, db, leases.Options{Clock: clock, Margin: -1})
	var held []*leases.Lease
	for _, name := range []string{"extended", "released", "written", "taken"} {
		l, err := m.Acquire(t.Context(), name, 10*time.Second, 0)
		require.NoError(t, err)
		held = append(held, l)
	}
	clock.Step(10*time.Second - 1)
	_, err = m.Acquire(t.Context(), "taken", 10*time.Second, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	clock.Step(1)
	for _, l := range held {
		require.NoError(t, l.Err(), "it does not know")
	}
	require.ErrorIs(t, held[0].Extend(t.Context(), 10*time.Second), leases.ErrLost)
	require.ErrorIs(t, held[1].Release(t.Context()), leases.ErrLost)
	require.ErrorIs(t, held[2].Tx(t.Context(), insertWork), leases.ErrLost)
	var n int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM work`).Scan(&n))
	require.Zero(t, n)
	_, err = m.Acquire(t.Context(), "taken", 10*time.Second, 0)
	require.NoError(t, err)
}

func TestHolderJudgesByTheTimeBeforeTheClockWasRead(t *testing.T) {
	// Time passes between the reading of the monotonic clock and that of the
	// store's: the holder must end early, never late.
	clock := &slowClock{Clock: leasetest.NewClock(time.Unix(1_000_000, 0))}
	m := manager(t, open(t, plain(t)), leases.Options{Clock: clock, Margin: -1})
	l, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	require.Greater(t, clock.reads, 0)
	// From here on time stands still but for Advance.
	clock.slow = 0
	left := l.Info().Expires.Sub(clock.Now())
	clock.Advance(left - 1)
	require.ErrorIs(t, l.Err(), leases.ErrLost)
}

// slowClock is one that takes a second to read.
type slowClock struct {
	*leasetest.Clock
	slow  time.Duration
	reads int
}

func (c *slowClock) Now() time.Time {
	if c.reads++; c.reads == 1 {
		c.slow = time.Second
	}
	c.Advance(c.slow)
	return c.Clock.Now()
}
