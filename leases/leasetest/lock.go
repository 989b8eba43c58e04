package leasetest

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
)

// Times of tests that run on real clocks. long is never waited for when all
// is well.
const (
	short = 600 * time.Millisecond
	long  = 30 * time.Second
)

// lockTests are what a lock in a SQL table is expected to do.
var lockTests = map[string]func(*testing.T, *env){
	"OwnerTracksTheCurrentHolder":                        ownerTracks,
	"HeldErrorNamesTheHolder":                            heldNames,
	"LeaseIsExclusivePerName":                            exclusive,
	"ReleaseFreesTheLeaseForOthers":                      releaseFrees,
	"SecondReleaseDoesNothing":                           releaseTwice,
	"ExpiredLeaseIsTakenOverAndTheOldHolderIsTooLate":    takenOver,
	"ExpiredLeaseIsNotExtendedEvenWithoutATakeover":      expiredNotExtended,
	"ExtensionKeepsTheLeasePastItsFirstExpiry":           extensionKeeps,
	"AcquireWaitsForTheRelease":                          waitsForRelease,
	"AcquireTakesOverWhatExpiresWhileItWaits":            waitsForExpiry,
	"AcquireGivesUpAfterMaxWait":                         givesUp,
	"OfManyAcquiresOneWins":                              oneWinner,
	"OfManyTakeoversOneWins":                             oneTakeover,
	"WithNeverLetsTwoInAtOnce":                           neverTwo,
	"WithReleasesWhenTheBodyFails":                       releasesOnFailure,
	"WithLeavesTheHolderAloneWhenTheLeaseIsHeld":         leavesHolder,
	"WithKeepsTheLeaseAlivePastItsTTL":                   keepsAlive,
	"WithReportsTheLossAndLeavesTheNewHolderAlone":       reportsLoss,
	"WithSurvivesAPassingFailureToRenew":                 survivesFailure,
	"WithLosesTheLeaseWhenRenewalsFailUntilItsExpiry":    losesUnconfirmed,
	"LeaseChangesStandWhateverTheCallersTransactionDoes": independent,
	"EpochsGrowOverReleaseTakeoverAndBreak":              epochsGrow,
	"BreakFreesTheGrantItNamesAndNoOther":                breakFrees,
}

func ownerTracks(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	require.Empty(t, b.OwnerOf("job"))
	l := a.MustAcquire("job", long)
	require.Equal(t, "worker-a", b.OwnerOf("job"))
	require.NoError(t, l.Release())
	require.Empty(t, b.OwnerOf("job"))
	a.MustAcquire("job", 0)
	require.Empty(t, b.OwnerOf("job"))
	b.MustAcquire("job", long)
	require.Equal(t, "worker-b", a.OwnerOf("job"))
}

func heldNames(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	a.MustAcquire("job", long)
	_, err := b.Acquire("job", long, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	require.EqualError(t, err, "LOCK_HELD: job by worker-a")
	_, err = b.Hold("job", long, 0)
	require.EqualError(t, err, "LOCK_HELD: job by worker-a")
}

func exclusive(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	a.MustAcquire("job", long)
	_, err := b.Acquire("job", long, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	_, err = a.Acquire("job", long, 0)
	require.ErrorIs(t, err, leases.ErrHeld, "a lease is not re-entrant")
	b.MustAcquire("other-job", long)
}

func releaseFrees(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", long)
	require.NoError(t, l.Release())
	require.ErrorIs(t, l.Err(), leases.ErrReleased)
	require.ErrorIs(t, l.Extend(long), leases.ErrReleased)
	b.MustAcquire("job", long)
}

func releaseTwice(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", long)
	require.NoError(t, l.Release())
	next := b.MustAcquire("job", long)
	require.NoError(t, l.Release())
	require.NoError(t, next.Extend(2*long))
}

func takenOver(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	stale := a.MustAcquire("job", long)
	e.expire(a, "job")
	next := b.MustAcquire("job", long)
	require.ErrorIs(t, stale.Extend(2*long), leases.ErrLost)
	require.ErrorIs(t, stale.Release(), leases.ErrLost)
	_, err := a.Acquire("job", long, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	require.NoError(t, next.Extend(2*long))
}

func expiredNotExtended(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", long)
	e.expire(a, "job")
	require.ErrorIs(t, l.Extend(2*long), leases.ErrLost)
	require.Empty(t, b.OwnerOf("job"))

	released := a.MustAcquire("other-job", long)
	e.expire(a, "other-job")
	require.ErrorIs(t, released.Release(), leases.ErrLost)
}

func extensionKeeps(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", 5*short)
	first := l.Info.Expires
	require.NoError(t, l.Extend(long))
	require.True(t, l.Info.Expires.After(first))
	_, err := b.Acquire("job", long, 6*short) // past the first expiry
	require.ErrorIs(t, err, leases.ErrHeld)
	require.NoError(t, l.Err())
}

func waitsForRelease(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", long)
	granted := make(chan error)
	go func() {
		_, err := b.Acquire("job", long, long)
		granted <- err
	}()
	select {
	case err := <-granted:
		t.Fatalf("granted beside the holder: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, l.Release())
	require.NoError(t, <-granted)
}

func waitsForExpiry(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", 2*short)
	next, err := b.Acquire("job", long, long)
	require.NoError(t, err)
	require.False(t, next.Info.Acquired.Before(l.Info.Expires), "granted before the expiry")
}

func givesUp(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	a.MustAcquire("job", long)
	began := time.Now()
	_, err := b.Acquire("job", long, 300*time.Millisecond)
	require.EqualError(t, err, "LOCK_HELD: job by worker-a")
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
}

// compete lets both workers acquire at once, ten times each, and counts who
// got the lease.
func compete(t *testing.T, a, b *Worker) (winners int) {
	var won atomic.Int64
	var all sync.WaitGroup
	for range 10 {
		for _, w := range []*Worker{a, b} {
			all.Go(func() {
				_, err := w.Acquire("job", long, 0)
				if err == nil {
					won.Add(1)
				} else if !assertErrorIs(t, err, leases.ErrHeld) {
					return
				}
			})
		}
	}
	all.Wait()
	return int(won.Load())
}

func oneWinner(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	require.Equal(t, 1, compete(t, a, b))
}

func oneTakeover(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	a.MustAcquire("job", 0)
	require.Equal(t, 1, compete(t, a, b))
}

func neverTwo(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	var inside, most, completed atomic.Int64
	var all sync.WaitGroup
	for range 5 {
		for _, w := range []*Worker{a, b} {
			all.Go(func() {
				l, err := w.Hold("job", long, long)
				if !assertNoError(t, err) {
					return
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(5 * time.Millisecond) // so that a second one would be seen
				inside.Add(-1)
				_, err = l.Finish(false)
				if assertNoError(t, err) {
					completed.Add(1)
				}
			})
		}
	}
	all.Wait()
	require.EqualValues(t, 1, most.Load())
	require.EqualValues(t, 10, completed.Load())
}

func releasesOnFailure(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l, err := a.Hold("job", long, 0)
	require.NoError(t, err)
	_, err = l.Finish(true)
	require.ErrorIs(t, err, errBoom)
	b.MustAcquire("job", long)
}

func leavesHolder(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", long)
	_, err := b.Hold("job", long, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	require.NoError(t, l.Extend(2*long))
}

func keepsAlive(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l, err := a.Hold("job", 3*short, 0)
	require.NoError(t, err)
	_, err = b.Acquire("job", long, 5*short) // past the first expiry
	require.ErrorIs(t, err, leases.ErrHeld)
	require.NoError(t, l.Err())
	cause, err := l.Finish(false)
	require.NoError(t, err)
	require.Empty(t, cause)
	b.MustAcquire("job", long)
}

func reportsLoss(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l, err := a.Hold("job", 3*short, 0)
	require.NoError(t, err)
	e.expire(a, "job")
	next := b.MustAcquire("job", long)
	require.ErrorIs(t, l.Await(long), leases.ErrLost)
	cause, err := l.Finish(false)
	require.Contains(t, cause, "lost: superseded")
	require.ErrorIs(t, err, leases.ErrLost)
	require.NoError(t, next.Extend(2*long))
}

func survivesFailure(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l, err := a.Hold("job", 6*short, 0)
	require.NoError(t, err)
	require.NoError(t, a.AwaitEvent(leases.Granted, long))
	e.hideTable(b)
	require.Error(t, a.AwaitEvent(leases.RenewalFailed, long))
	e.showTable(b)
	require.NoError(t, a.AwaitEvent(leases.Renewed, long))
	require.NoError(t, l.Err())
	_, err = b.Acquire("job", long, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
	_, err = l.Finish(false)
	require.NoError(t, err)
}

func losesUnconfirmed(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l, err := a.Hold("job", 2*short, 0)
	require.NoError(t, err)
	e.hideTable(b)
	require.ErrorIs(t, l.Await(long), leases.ErrLost)
	e.showTable(b)
	cause, err := l.Finish(false)
	require.Contains(t, cause, "lost: unconfirmed")
	require.ErrorIs(t, err, leases.ErrLost)
}

// hideTable makes every operation fail until showTable.
func (e *env) hideTable(w *Worker) {
	e.Helper()
	require.NoError(e, w.Exec(`ALTER TABLE `+e.table()+` RENAME TO away`))
}

func (e *env) showTable(w *Worker) {
	e.Helper()
	require.NoError(e, w.Exec(`ALTER TABLE away RENAME TO `+e.table()))
}

func independent(t *testing.T, e *env) {
	db := e.open()
	m := e.manager(db, leases.Options{Owner: "worker-a"})
	if e.store.Dialect == leases.SQLite {
		var mode string
		require.NoError(t, db.QueryRow(`PRAGMA journal_mode`).Scan(&mode))
		if mode != "wal" {
			t.Skip("without WAL nobody can commit beside a reader")
		}
	}
	// On SQLite: beside a transaction that does not write, since a file has
	// one writer at a time.
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer tx.Rollback()
	var n int
	require.NoError(t, tx.QueryRow(`SELECT count(*) FROM `+e.table()).Scan(&n))
	l, err := m.Acquire(t.Context(), "job", long, 0)
	require.NoError(t, err)
	require.NoError(t, l.Extend(t.Context(), 2*long))
	require.NoError(t, tx.Rollback())
	_, err = m.Acquire(t.Context(), "job", long, 0)
	require.ErrorIs(t, err, leases.ErrHeld)
}

func epochsGrow(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	first := a.MustAcquire("job", long)
	require.EqualValues(t, 1, first.Info.Epoch)
	require.NoError(t, first.Release())
	second := b.MustAcquire("job", long)
	require.EqualValues(t, 2, second.Info.Epoch)
	e.expire(b, "job")
	third := a.MustAcquire("job", long)
	require.EqualValues(t, 3, third.Info.Epoch)
	require.NoError(t, b.Break("job", 3))
	require.EqualValues(t, 4, b.MustAcquire("job", long).Info.Epoch)
	require.EqualValues(t, 1, b.MustAcquire("other-job", long).Info.Epoch)
}

func breakFrees(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	l := a.MustAcquire("job", long)
	require.ErrorIs(t, b.Break("job", l.Info.Epoch+1), leases.ErrBounds)
	require.NoError(t, b.Break("job", l.Info.Epoch))
	require.NoError(t, b.Break("job", l.Info.Epoch), "again: there is nothing to break")
	next := b.MustAcquire("job", long)
	require.ErrorIs(t, a.Break("job", l.Info.Epoch), leases.ErrHeld)
	require.NoError(t, next.Extend(2*long))
	require.ErrorIs(t, l.Extend(2*long), leases.ErrLost)
}
