package leasetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
)

// RunFaults runs what leases promise when processes are killed and stopped.
// fresh makes a store, anew for each test; its Processes is taken to be set.
// The test binary's TestMain must call Main.
func RunFaults(t *testing.T, fresh func(t *testing.T) Store) {
	for name, test := range map[string]func(*testing.T, func(*testing.T) *env){
		"KillAtEveryStepLosesNoCommitAndBlocksNobody":       killAtEveryStep,
		"HolderStoppedBetweenTransactionsFindsItsLeaseLost": stoppedBetween,
		"HolderStoppedInItsTransactionBlocksNobodyForEver":  stoppedInside,
		"HolderStoppedRightBeforeCommitIsNotOvertaken":      stoppedBeforeCommit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(t *testing.T) *env {
				s := fresh(t)
				s.Processes = true
				return &env{T: t, store: s}
			})
		})
	}
}

// killAtEveryStep lets a holder acquire, extend, write and release, and kills
// it before each call that it makes to the database, from the first statement
// of New to the last COMMIT.
func killAtEveryStep(t *testing.T, fresh func(*testing.T) *env) {
	finished := false
	for step := 1; !finished; step++ {
		require.Less(t, step, 200, "the holder never finishes")
		t.Run(fmt.Sprintf("Step%d", step), func(t *testing.T) {
			e := fresh(t)
			b := e.worker("worker-b")
			e.work(b)
			a := startWorker(t, workerConfig{Store: e.store, Owner: "worker-a", StopAt: step})
			var granted int64
			var wrote bool
			script := make(chan struct{})
			go func() {
				defer close(script)
				l, err := a.Acquire("job", long, 0)
				if err != nil {
					return
				}
				granted = l.Info.Epoch
				if l.Extend(2*long) != nil || l.Tx(e.insert(), false) != nil {
					return
				}
				wrote = true
				_ = l.Release()
			}()
			select {
			case <-a.stopped:
			case <-script:
				finished = true
			}
			a.Kill()
			<-script

			e.expire(b, "job")
			l, err := b.Acquire("job", long, long)
			require.NoError(t, err)
			require.Greater(t, l.Info.Epoch, granted)
			require.NoError(t, l.Tx(e.insert(), false))
			want := 1
			if wrote {
				want = 2
			}
			require.Equal(t, want, e.rows(e.open()), "the holder was told: %v", wrote)
		})
	}
}

func stoppedBetween(t *testing.T, fresh func(*testing.T) *env) {
	e := fresh(t)
	a, b := e.twoWorkers()
	e.work(a)
	extends := a.MustAcquire("extends", long)
	releases := a.MustAcquire("releases", long)
	writes := a.MustAcquire("writes", long)
	held, err := a.Hold("holds", long, 0)
	require.NoError(t, err)
	a.Stop()
	taken := map[string]*Held{}
	for _, name := range []string{"extends", "releases", "writes", "holds"} {
		e.expire(b, name)
		taken[name] = b.MustAcquire(name, 2*long)
	}
	a.Continue()
	require.ErrorIs(t, extends.Extend(2*long), leases.ErrLost)
	require.ErrorIs(t, releases.Release(), leases.ErrLost)
	require.ErrorIs(t, writes.Tx(e.insert(), false), leases.ErrLost)
	_, err = held.Finish(false)
	require.ErrorIs(t, err, leases.ErrLost)
	require.Zero(t, e.rows(e.open()))
	for name, l := range taken {
		require.Equal(t, "worker-b", a.OwnerOf(name))
		require.Equal(t, l.Info, b.infoOf(name), "the new holder's row is as it was")
	}
}

func (w *Worker) infoOf(name string) leases.Info {
	r, err := w.ask(request{Op: "owner", Name: name})
	require.NoError(w.t, err)
	return r.Info
}

// stoppedInside stops a holder within the body of its Tx. On SQLite that
// stops all writers, whose errors must be bounded, until the holder is killed;
// on PostgreSQL the row is not locked yet, and who takes over commits first.
func stoppedInside(t *testing.T, fresh func(*testing.T) *env) {
	e := fresh(t)
	a, b := e.twoWorkers()
	e.work(a)
	l := a.MustAcquire("job", 5*short)
	_, err := l.OpenTx(e.insert())
	require.NoError(t, err)
	a.Stop()
	if e.store.Dialect == leases.Postgres {
		next, err := b.Acquire("job", long, long)
		require.NoError(t, err)
		require.NoError(t, next.Tx(e.insert(), false))
		a.Continue()
		_, err = (&Held{a, l.handle + 1, l.Info}).Finish(false)
		require.Error(t, err)
		require.Equal(t, 1, e.rows(e.open()))
		return
	}
	began := time.Now()
	_, err = b.ask(request{Op: "acquire", Name: "job", TTL: long, MaxWait: -1, Timeout: 6 * short})
	require.Error(t, err, "taken over beside an open transaction")
	require.Less(t, time.Since(began), long)
	a.Kill()
	next, err := b.Acquire("job", long, long)
	require.NoError(t, err)
	require.Greater(t, next.Info.Epoch, l.Info.Epoch)
	require.Zero(t, e.rows(e.open()))
}

// stoppedBeforeCommit stops a holder between the check of its lease and the
// COMMIT: nobody may be granted the lease before that transaction is over. On
// PostgreSQL the server ends it when the lease does; on SQLite only the
// holder's death does.
func stoppedBeforeCommit(t *testing.T, fresh func(*testing.T) *env) {
	e := fresh(t)
	b := e.worker("worker-b")
	e.work(b)
	a := startWorker(t, workerConfig{Store: e.store, Owner: "worker-a", StopAtCommitOf: "INSERT INTO work_"})
	l := a.MustAcquire("job", 5*short)
	var tx sync.WaitGroup
	tx.Go(func() { _ = l.Tx(e.insert(), false) })
	<-a.stopped
	a.Stop()
	if e.store.Dialect == leases.SQLite {
		_, err := b.ask(request{Op: "acquire", Name: "job", TTL: long, MaxWait: 2 * short, Timeout: 6 * short})
		require.Error(t, err, "granted while the holder may still commit")
		a.Kill()
	}
	next, err := b.Acquire("job", long, long)
	require.NoError(t, err)
	require.Greater(t, next.Info.Epoch, l.Info.Epoch)
	require.False(t, next.Info.Acquired.Before(l.Info.Expires))
	a.Kill()
	tx.Wait()
	require.NoError(t, next.Tx(e.insert(), false))
	require.Equal(t, 1, e.rows(e.open()), "the stopped holder's transaction came to nothing")
}
