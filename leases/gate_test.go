package leases_test

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

// busyWriters keeps n writers at work, each holding the write lock for 20 ms
// at a time, until the returned function is called.
func busyWriters(t *testing.T, db *sql.DB, n int) (stop func()) {
	t.Helper()
	_, err := db.Exec(`CREATE TABLE IF NOT EXISTS busy (n INTEGER)`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for range n {
		writers.Go(func() {
			for ctx.Err() == nil {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					continue // the gate says BUSY after its timeout; that is its business
				}
				_, _ = tx.ExecContext(ctx, `INSERT INTO busy VALUES (1)`)
				time.Sleep(20 * time.Millisecond) // a slow writer
				_ = tx.Commit()
			}
		})
	}
	return func() { cancel(); writers.Wait() }
}

func TestLeaseOfASecondIsKeptBeside64SlowWriters(t *testing.T) {
	db := open(t, exclusive(t))
	m := manager(t, db, leases.Options{})
	stop := busyWriters(t, db, 64)
	defer stop()
	keep := func() error {
		return m.With(t.Context(), "job", time.Second, -1, func(ctx context.Context, l *leases.Lease) error {
			// Five times as long as the lease lasts without renewals.
			for first := l.Info(); l.Info().Expires.Before(first.Expires.Add(5 * time.Second)); {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(10 * time.Millisecond):
				}
			}
			return nil
		})
	}
	err := keep()
	for range 2 { // a machine that stands still for a second proves nothing
		if err != nil {
			err = keep()
		}
	}
	require.NoError(t, err)
}

func TestRenewalWaitsOutALongWriteOfItsOwnProcess(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		m := manager(t, db, leases.Options{})
		err := m.With(t.Context(), "job", 3*time.Second, 0, func(ctx context.Context, l *leases.Lease) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = tx.ExecContext(ctx, `CREATE TABLE long_write (n INTEGER)`)
			require.NoError(t, err)
			time.Sleep(1500 * time.Millisecond) // past the time of a renewal
			require.NoError(t, tx.Commit())
			first := l.Info()
			require.Eventually(t, func() bool { return l.Info().Expires.After(first.Expires) }, 30*time.Second, 5*time.Millisecond)
			return l.Err()
		})
		require.NoError(t, err)
	})
}

func TestWriteLongerThanTheLeaseLosesIt(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		m := manager(t, db, leases.Options{})
		err := m.With(t.Context(), "job", 1200*time.Millisecond, 0, func(ctx context.Context, l *leases.Lease) error {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = tx.ExecContext(t.Context(), `CREATE TABLE long_write (n INTEGER)`)
			require.NoError(t, err)
			<-ctx.Done() // told while the write still goes on
			require.ErrorIs(t, context.Cause(ctx), leases.ErrLost)
			return tx.Commit()
		})
		var lost *leases.LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, leases.Unconfirmed, lost.Reason, "its renewal was never answered")
	})
}

func TestBodyOfTxHearsThatItsLeaseEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		_, err := db.Exec(`CREATE TABLE work (n INTEGER)`)
		require.NoError(t, err)
		m := manager(t, db, leases.Options{})
		l, err := m.Acquire(t.Context(), "job", time.Second, 0)
		require.NoError(t, err)
		err = l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES (1)`)
			require.NoError(t, err)
			<-ctx.Done()
			return nil // and tries to commit
		})
		require.ErrorIs(t, err, leases.ErrLost)
		next, err := m.Acquire(t.Context(), "job", time.Hour, -1)
		require.NoError(t, err, "the write lock was given back")
		require.NoError(t, next.Tx(t.Context(), func(context.Context, *sql.Tx) error { return nil }))
		var n int
		require.NoError(t, db.QueryRow(`SELECT count(*) FROM work`).Scan(&n))
		require.Zero(t, n)
	})
}

func TestKeepAlivePausesDuringATx(t *testing.T) {
	for name, s := range map[string]leasetest.Store{"Exclusive": exclusive(t), "Plain": plain(t)} {
		t.Run(name, func(t *testing.T) {
			var begun atomic.Int64
			db := observed(t, s, func(call string) {
				if call == "BEGIN" {
					begun.Add(1)
				}
			}, nil)
			m := manager(t, db, leases.Options{})
			err := m.With(t.Context(), "job", 3*time.Second, 0, func(ctx context.Context, l *leases.Lease) error {
				err := l.Tx(ctx, func(context.Context, *sql.Tx) error {
					before := begun.Load()
					time.Sleep(1300 * time.Millisecond) // past the time of a renewal
					require.Equal(t, before, begun.Load(), "a renewal ran into the Tx")
					return nil
				})
				require.NoError(t, err)
				first := l.Info()
				require.Eventually(t, func() bool { return l.Info().Expires.After(first.Expires) }, 30*time.Second, 5*time.Millisecond)
				return nil
			})
			require.NoError(t, err)
		})
	}
}

func TestLeaseIsKeptWhileItsTxWaitsForTheStore(t *testing.T) {
	db := open(t, exclusive(t))
	_, err := db.Exec(`CREATE TABLE work (n INTEGER)`)
	require.NoError(t, err)
	m := manager(t, db, leases.Options{})
	stop := busyWriters(t, db, 64) // the line is longer than the lease lasts
	defer stop()
	write := func() error {
		return m.With(t.Context(), "job", time.Second, -1, func(ctx context.Context, l *leases.Lease) error {
			return l.Tx(ctx, insertWork)
		})
	}
	err = write()
	for range 2 { // a machine that stands still for a second proves nothing
		if err != nil {
			err = write()
		}
	}
	require.NoError(t, err)
}

func TestTxRenewsALeaseThatIsPastItsHalf(t *testing.T) {
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	m := manager(t, open(t, plain(t)), leases.Options{Clock: clock, Margin: -1})
	l, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	first := l.Info()
	nothing := func(context.Context, *sql.Tx) error { return nil }
	clock.Advance(5 * time.Second)
	require.NoError(t, l.Tx(t.Context(), nothing))
	require.Equal(t, first, l.Info())
	clock.Advance(1)
	require.NoError(t, l.Tx(t.Context(), nothing))
	require.Equal(t, first.Expires.Add(5*time.Second+1), l.Info().Expires)
}

func TestSharedProcessesTakeTurnsSoThatRenewalsComeThrough(t *testing.T) {
	s := shared(t)
	db := open(t, s)
	stop := busyWriters(t, db, 8)
	defer stop()
	w := leasetest.StartWorker(t, s, "worker")
	l, err := w.Hold("job", 2*time.Second, 0)
	require.NoError(t, err)
	for range 4 {
		require.NoError(t, w.AwaitEvent(leases.Renewed, time.Minute))
	}
	require.NoError(t, l.Err())
	_, err = l.Finish(false)
	require.NoError(t, err)
}
