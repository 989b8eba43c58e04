package leases_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func TestRenewalWhoseReplyIsLostIsConfirmedByTheNext(t *testing.T) {
	lost := errors.New("the reply is lost")
	var armed atomic.Bool
	db := observed(t, plain(t), nil, func(string) error {
		if armed.CompareAndSwap(true, false) {
			return lost
		}
		return nil
	})
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	m := manager(t, db, leases.Options{Clock: clock, Margin: -1})
	l, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	before := l.Info()
	clock.Advance(5 * time.Second)
	armed.Store(true)
	require.ErrorIs(t, l.Extend(t.Context(), 10*time.Second), lost)
	require.Equal(t, before, l.Info(), "nothing is believed that was not confirmed")
	require.NoError(t, l.Err())
	require.ErrorIs(t, l.Extend(t.Context(), 10*time.Second), leases.ErrNotExtended)
	require.Equal(t, before.Expires.Add(5*time.Second), l.Info().Expires, "the refusal tells the stored expiry")
	clock.Advance(9 * time.Second)
	require.NoError(t, l.Err())
	clock.Advance(time.Second)
	require.ErrorIs(t, l.Err(), leases.ErrLost)
}

func TestRenewalsUnansweredUntilTheExpiryAreALoss(t *testing.T) {
	broken := errors.New("no answer")
	var armed atomic.Bool
	db := observed(t, plain(t), nil, func(string) error {
		if armed.Load() {
			return broken
		}
		return nil
	})
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	m := manager(t, db, leases.Options{Clock: clock, Margin: -1})
	l, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	armed.Store(true)
	clock.Advance(9 * time.Second)
	require.ErrorIs(t, l.Extend(t.Context(), 10*time.Second), broken)
	require.NoError(t, l.Err(), "a passing failure is not a loss")
	clock.Advance(time.Second)
	var loss *leases.LostError
	require.ErrorAs(t, l.Err(), &loss)
	require.Equal(t, leases.Unconfirmed, loss.Reason)
	require.ErrorIs(t, loss, broken)
}

func TestMarginEndsTheLeaseBeforeItsExpiry(t *testing.T) {
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	m := manager(t, open(t, plain(t)), leases.Options{Clock: clock, Margin: 2 * time.Second})
	l, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	done := l.Done()
	clock.AwaitTimers(1)
	clock.Advance(8*time.Second - 1)
	require.NoError(t, l.Err())
	clock.Advance(1)
	<-done
	require.ErrorIs(t, l.Err(), leases.ErrLost)
	_, held, err := m.Owner(t.Context(), "job")
	require.NoError(t, err)
	require.True(t, held, "others still have to wait")
}

func TestGrantWithNoMoreThanTheMarginLeftIsGivenBack(t *testing.T) {
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	var armed atomic.Bool
	db := observed(t, plain(t), nil, func(call string) error {
		if armed.CompareAndSwap(true, false) {
			clock.Advance(8 * time.Second) // the COMMIT took this long
		}
		return nil
	})
	m := manager(t, db, leases.Options{Clock: clock, Margin: 2 * time.Second})
	armed.Store(true)
	_, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.ErrorIs(t, err, leases.ErrLost)
	_, held, err := m.Owner(t.Context(), "job")
	require.NoError(t, err)
	require.False(t, held)
}

func TestLeaseIsKeptUntilABodyThatWasCancelledReturns(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		m := manager(t, db, leases.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		err := m.With(ctx, "job", 2*time.Second, 0, func(ctx context.Context, l *leases.Lease) error {
			cancel()
			<-ctx.Done()
			first := l.Info()
			require.Eventually(t, func() bool { return l.Info().Expires.After(first.Expires) }, 30*time.Second, 5*time.Millisecond)
			return l.Err()
		})
		require.NoError(t, err)
		_, held, err := m.Owner(t.Context(), "job")
		require.NoError(t, err)
		require.False(t, held)
	})
}

func TestWithLeavesNoGoroutineBehind(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		m := manager(t, db, leases.Options{})
		work := func(fn func()) error {
			return m.With(t.Context(), "job", 10*time.Second, -1, func(context.Context, *leases.Lease) error {
				fn()
				return nil
			})
		}
		require.NoError(t, work(func() {}))
		requireNoGoroutines(t)

		require.PanicsWithValue(t, "boom", func() { _ = work(func() { panic("boom") }) })
		requireNoGoroutines(t)

		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = work(runtime.Goexit)
		}()
		<-exited
		requireNoGoroutines(t)

		_, held, err := m.Owner(t.Context(), "job")
		require.NoError(t, err)
		require.False(t, held, "the lease was released each time")
	})
}

func TestTxThatPanicsIsRolledBack(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		m := manager(t, db, leases.Options{})
		_, err := db.Exec(`CREATE TABLE work (n INTEGER)`)
		require.NoError(t, err)
		l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
		require.NoError(t, err)
		require.PanicsWithValue(t, "boom", func() {
			_ = l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES (1)`)
				require.NoError(t, err)
				panic("boom")
			})
		})
		var n int
		require.NoError(t, db.QueryRow(`SELECT count(*) FROM work`).Scan(&n))
		require.Zero(t, n)
		require.NoError(t, l.Release(t.Context()), "the Tx is over")
		requireNoGoroutines(t)
	})
}

func TestLeaseThatIsReleasedTwiceLeavesNoGoroutineBehind(t *testing.T) {
	m := manager(t, open(t, plain(t)), leases.Options{})
	l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
	done := l.Done()
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, l.Release(t.Context()))
	<-done
	require.ErrorIs(t, l.Err(), leases.ErrReleased)
	requireNoGoroutines(t)
}

func TestReleaseIgnoresThatItsContextHasEnded(t *testing.T) {
	m := manager(t, open(t, plain(t)), leases.Options{})
	l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, l.Release(ctx))
	_, held, err := m.Owner(t.Context(), "job")
	require.NoError(t, err)
	require.False(t, held)
}

func TestCloseEndsWaitersAndBodies(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		m, other := manager(t, db, leases.Options{}), manager(t, db, leases.Options{})
		held, err := m.Acquire(t.Context(), "mine", time.Hour, 0)
		require.NoError(t, err)
		inside := make(chan struct{})
		body := make(chan error, 1)
		go func() {
			body <- m.With(t.Context(), "job", time.Hour, 0, func(ctx context.Context, _ *leases.Lease) error {
				close(inside)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-inside
		waiter := make(chan error, 1)
		go func() {
			_, err := m.Acquire(t.Context(), "job", time.Hour, -1)
			waiter <- err
		}()
		awaitWaiters(t, 1)
		require.NoError(t, m.Close())
		require.ErrorIs(t, <-waiter, leases.ErrClosed)
		require.ErrorIs(t, <-body, leases.ErrClosed)
		_, still, err := other.Owner(t.Context(), "job")
		require.NoError(t, err)
		require.False(t, still, "the body's lease was released")
		_, err = m.Acquire(t.Context(), "job", time.Hour, 0)
		require.ErrorIs(t, err, leases.ErrClosed)
		require.NoError(t, held.Extend(t.Context(), 2*time.Hour), "what was acquired stays its holder's")
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, m.Close())
		requireNoGoroutines(t)
	})
}

func TestElectedLeaderIsReplacedWhenItLosesTheLease(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		m := manager(t, db, leases.Options{})
		var terms []int64
		done := errors.New("done leading")
		err := m.Elect(t.Context(), "leader", time.Second, func(ctx context.Context, l *leases.Lease) error {
			terms = append(terms, l.Info().Epoch)
			if len(terms) == 3 {
				return done
			}
			require.NoError(t, m.Break(context.WithoutCancel(ctx), "leader", l.Info().Epoch))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), leases.ErrLost)
			return ctx.Err()
		})
		require.ErrorIs(t, err, done)
		require.Equal(t, []int64{1, 2, 3}, terms)
	})
}

func TestElectionEndsWithItsContext(t *testing.T) {
	m := manager(t, open(t, plain(t)), leases.Options{})
	_, err := m.Acquire(t.Context(), "leader", time.Hour, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	elected := make(chan error)
	go func() {
		elected <- m.Elect(ctx, "leader", time.Second, func(context.Context, *leases.Lease) error { return nil })
	}()
	awaitWaiters(t, 1)
	cancel()
	require.ErrorIs(t, <-elected, context.Canceled)
}
