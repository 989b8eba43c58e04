package leasetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
)

// renewalTests are the contract of a renewal, exact to the nanosecond, on a
// clock that stands still.
var renewalTests = map[string]func(*testing.T, *env){
	"RenewalMovesTheExpiryForward":                       renewalMovesForward,
	"RenewalThatWouldNotMoveTheExpiryForwardIsRefused":   renewalNotForward,
	"RenewalAtTheExactExpiryIsRefused":                   renewalAtExpiry,
	"RenewalWithAStaleTokenIsRefused":                    renewalStale,
	"RenewalBeyondMaxLifetimeIsRefused":                  renewalBeyondLifetime,
	"BoundsAreCheckedBeforeAnythingElse":                 boundsFirst,
	"LostLeaseIsNeverExtendedAgain":                      lostForGood,
	"LeaseFoundLostBeforeItsTimeStaysLost":               lostBeforeItsTime,
	"LeaseIsFreeAtItsExactExpiryAndNotANanosecondBefore": freeAtExpiry,
	"TTLOfZeroUsesUpAnEpoch":                             zeroTTL,
	"NamesAreComparedBytewise":                           bytewiseNames,
	"StepsOfTheWallClockBackExpireNobody":                stepBack,
}

// still is a Manager on a clock that stands still, twice: as two holders
// would be.
func (e *env) still(o leases.Options) (a, b *leases.Manager, clock *Clock) {
	clock = NewClock(time.Unix(1_000_000, 0))
	o.Clock = clock
	if o.Margin == 0 {
		o.Margin = -1
	}
	db := e.open()
	o.Owner = "worker-a"
	a = e.manager(db, o)
	o.Owner = "worker-b"
	return a, e.manager(db, o), clock
}

func stored(t *testing.T, m *leases.Manager, name string) leases.Info {
	t.Helper()
	info, _, err := m.Owner(t.Context(), name)
	require.NoError(t, err)
	return info
}

func renewalMovesForward(t *testing.T, e *env) {
	a, _, clock := e.still(leases.Options{})
	l, err := a.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	granted := l.Info()
	clock.Advance(5)
	require.NoError(t, l.Extend(t.Context(), 10))
	require.Equal(t, granted.Expires.Add(5), l.Info().Expires)
	require.Equal(t, granted.Acquired, l.Info().Acquired)
	require.Equal(t, granted.Acquired.Add(5), l.Info().Renewed)
	require.Equal(t, l.Info(), stored(t, a, "job"))
}

func renewalNotForward(t *testing.T, e *env) {
	a, _, clock := e.still(leases.Options{})
	l, err := a.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	before := l.Info()
	require.ErrorIs(t, l.Extend(t.Context(), 10), leases.ErrNotExtended, "to the same instant")
	clock.Advance(5)
	require.ErrorIs(t, l.Extend(t.Context(), 4), leases.ErrNotExtended, "to an earlier one")
	require.Equal(t, before, stored(t, a, "job"))
	require.NoError(t, l.Err())
	require.NoError(t, l.Extend(t.Context(), 6))
}

func renewalAtExpiry(t *testing.T, e *env) {
	a, b, clock := e.still(leases.Options{})
	for _, c := range []struct {
		after time.Duration
		ok    bool
	}{{9, true}, {10, false}, {11, false}} {
		l, err := a.Acquire(t.Context(), "job", 10, 0)
		require.NoError(t, err)
		clock.Advance(c.after)
		if c.ok {
			require.NoError(t, l.Extend(t.Context(), 10), "%v after the grant", c.after)
			require.NoError(t, l.Release(t.Context()))
			continue
		}
		require.ErrorIs(t, l.Extend(t.Context(), 10), leases.ErrLost, "%v after the grant", c.after)
		_, held, err := b.Owner(t.Context(), "job")
		require.NoError(t, err)
		require.False(t, held)
	}
}

func renewalStale(t *testing.T, e *env) {
	// The holder's own clock stands still while the store's goes on: as in a
	// process that was stopped, it does not know that it lost the lease.
	slow := NewClock(time.Unix(1_000_000, 0))
	db := e.open()
	a := e.manager(db, leases.Options{Owner: "worker-a", Clock: slow, Margin: -1})
	fast := NewClock(time.Unix(1_000_020, 0))
	b := e.manager(db, leases.Options{Owner: "worker-b", Clock: fast, Margin: -1})
	l, err := a.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	taken, err := b.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	require.Greater(t, taken.Info().Epoch, l.Info().Epoch)

	err = l.Extend(t.Context(), 20*time.Second)
	var lost *leases.LostError
	require.True(t, errors.As(err, &lost), "%v", err)
	require.Equal(t, leases.LostError{Name: "job", Epoch: l.Info().Epoch, Reason: leases.Superseded}, *lost)
	require.Equal(t, taken.Info(), stored(t, b, "job"), "the new holder's row is untouched")
	require.ErrorIs(t, l.Release(t.Context()), leases.ErrLost)
	require.Equal(t, taken.Info(), stored(t, b, "job"))
}

func renewalBeyondLifetime(t *testing.T, e *env) {
	a, _, clock := e.still(leases.Options{MaxTTL: 100, MaxLifetime: 120})
	l, err := a.Acquire(t.Context(), "job", 100, 0)
	require.NoError(t, err)
	clock.Advance(50)
	before := l.Info()
	require.ErrorIs(t, l.Extend(t.Context(), 71), leases.ErrNotExtended)
	require.Equal(t, before, stored(t, a, "job"))
	require.NoError(t, l.Extend(t.Context(), 70))
	_, err = a.Acquire(t.Context(), "other", 101, 0)
	require.ErrorIs(t, err, leases.ErrBounds)
}

func boundsFirst(t *testing.T, e *env) {
	a, _, clock := e.still(leases.Options{MaxTTL: 10, Margin: 2})
	for _, name := range []string{"", strings.Repeat("x", 256), "a\x00b", "\xff"} {
		_, err := a.Acquire(t.Context(), name, 5, 0)
		require.ErrorIs(t, err, leases.ErrBounds, "%q", name)
	}
	for _, ttl := range []time.Duration{-1, 1, 2, 11} {
		_, err := a.Acquire(t.Context(), "job", ttl, 0)
		require.ErrorIs(t, err, leases.ErrBounds, "%d", ttl)
	}
	l, err := a.Acquire(t.Context(), strings.Repeat("é", 127), 10, 0)
	require.NoError(t, err)
	clock.Advance(20) // lost by now, but bounds come first
	for _, ttl := range []time.Duration{-1, 0, 2, 11} {
		require.ErrorIs(t, l.Extend(t.Context(), ttl), leases.ErrBounds, "%d", ttl)
	}
	require.ErrorIs(t, l.Extend(t.Context(), 5), leases.ErrLost)
}

func lostForGood(t *testing.T, e *env) {
	a, b, clock := e.still(leases.Options{})
	l, err := a.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	clock.Advance(10)
	first := l.Extend(t.Context(), 10)
	require.ErrorIs(t, first, leases.ErrLost)
	// Even if the row said otherwise again.
	_, err = e.open().Exec(`UPDATE ` + e.table() + ` SET expires = 9000000000000000000`)
	require.NoError(t, err)
	require.Equal(t, first, l.Extend(t.Context(), 10))
	require.Equal(t, first, l.Release(t.Context()))
	require.Equal(t, first, l.Err())
	<-l.Done()
	_, held, err := b.Owner(t.Context(), "job")
	require.NoError(t, err)
	require.True(t, held, "Release asked the database")
}

func lostBeforeItsTime(t *testing.T, e *env) {
	a, _, _ := e.still(leases.Options{})
	l, err := a.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	set := func(expires time.Time) {
		_, err := e.open().Exec(fmt.Sprintf(`UPDATE %s SET expires = %d`, e.table(), expires.UnixNano()))
		require.NoError(t, err)
	}
	set(time.Unix(1, 0))
	first := l.Extend(t.Context(), 20)
	require.ErrorIs(t, first, leases.ErrLost)
	set(l.Info().Expires)
	require.Equal(t, first, l.Err())
	require.Equal(t, first, l.Extend(t.Context(), 20))
	require.Equal(t, first, l.Tx(t.Context(), nil))
	require.Equal(t, l.Info(), stored(t, a, "job"))
}

func freeAtExpiry(t *testing.T, e *env) {
	a, b, clock := e.still(leases.Options{})
	l, err := a.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	clock.Advance(9)
	_, err = b.Acquire(t.Context(), "job", 10, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	require.NoError(t, l.Err())
	clock.Advance(1)
	require.ErrorIs(t, l.Err(), leases.ErrLost)
	taken, err := b.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	require.Equal(t, l.Info().Epoch+1, taken.Info().Epoch)
}

func zeroTTL(t *testing.T, e *env) {
	a, b, _ := e.still(leases.Options{})
	l, err := a.Acquire(t.Context(), "job", 0, 0)
	require.NoError(t, err)
	require.Equal(t, l.Info().Acquired, l.Info().Expires)
	require.ErrorIs(t, l.Extend(t.Context(), 10), leases.ErrLost)
	taken, err := b.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	require.Equal(t, l.Info().Epoch+1, taken.Info().Epoch)
}

func bytewiseNames(t *testing.T, e *env) {
	a, _, _ := e.still(leases.Options{})
	names := []string{"B", "a", "a ", "b", "e\u0301", "z", "\u00e9"}
	for _, name := range names {
		_, err := a.Acquire(t.Context(), name, 10, 0)
		require.NoError(t, err, "%q", name)
	}
	var listed []string
	for info, err := range a.All(t.Context(), "") {
		require.NoError(t, err)
		listed = append(listed, info.Name)
	}
	require.Equal(t, names, listed)
}

func stepBack(t *testing.T, e *env) {
	a, b, clock := e.still(leases.Options{})
	l, err := a.Acquire(t.Context(), "job", 10, 0)
	require.NoError(t, err)
	clock.Advance(5)
	require.NoError(t, l.Extend(t.Context(), 10))
	clock.Step(-time.Hour)
	require.NoError(t, l.Err())
	_, err = b.Acquire(t.Context(), "job", 10, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	clock.Advance(10)
	require.ErrorIs(t, l.Err(), leases.ErrLost, "its own deadline is not the wall clock's")
}
