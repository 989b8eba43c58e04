package leasetest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
)

// fenceTests are what makes a write depend on a lease.
var fenceTests = map[string]func(*testing.T, *env){
	"TxCommitsForTheHolder":                    txCommits,
	"TxOfAFailedBodyIsRolledBack":              txFails,
	"TxDoesNotCommitAfterALaterGrant":          txSuperseded,
	"TxDoesNotCommitOnceTheLeaseHasExpired":    txExpired,
	"VerifyMakesAnOwnTransactionDepend":        verifyOwn,
	"VerifyRefusesAPool":                       verifyPool,
	"ExtendTxIsBelievedAfterTheCommit":         extendTxCommit,
	"ExtendTxThatIsRolledBackIsNotBelieved":    extendTxRollback,
	"OperationsInsideATxAreRefusedAtOnce":      insideTx,
	"LeaseWhoseTxIsOpenIsNotReleasedMeanwhile": openTxHeld,
}

func assertNoError(t *testing.T, err error) bool { return assert.NoError(t, err) }

func assertErrorIs(t *testing.T, err, target error) bool { return assert.ErrorIs(t, err, target) }

func (e *env) work(w *Worker) {
	e.Helper()
	require.NoError(e, w.Exec(`CREATE TABLE work_`+e.suffix()+` (n INTEGER)`))
}

// suffix keeps the tables of tests on one server apart.
func (e *env) suffix() string {
	if e.store.Table == "" {
		return "t"
	}
	return e.store.Table
}

func (e *env) insert() string { return `INSERT INTO work_` + e.suffix() + ` VALUES (1)` }

func (e *env) rows(db *sql.DB) (n int) {
	e.Helper()
	require.NoError(e, db.QueryRow(`SELECT count(*) FROM work_`+e.suffix()).Scan(&n))
	return n
}

func txCommits(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	e.work(a)
	l := a.MustAcquire("job", long)
	require.NoError(t, l.Tx(e.insert(), false))
	require.NoError(t, l.Release())
	require.ErrorIs(t, l.Tx(e.insert(), false), leases.ErrReleased)
	next := b.MustAcquire("job", long)
	require.NoError(t, next.Tx(e.insert(), false))
	require.Equal(t, 2, e.rows(e.reader(a)))
}

// reader is a pool to read with.
func (e *env) reader(*Worker) *sql.DB { return e.open() }

func txFails(t *testing.T, e *env) {
	a, _ := e.twoWorkers()
	e.work(a)
	l := a.MustAcquire("job", long)
	require.ErrorIs(t, l.Tx(e.insert(), true), errBoom)
	require.NoError(t, l.Tx(e.insert(), false))
	require.Equal(t, 1, e.rows(e.reader(a)))
}

func txSuperseded(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	e.work(a)
	l := a.MustAcquire("job", long)
	e.expire(b, "job")
	next := b.MustAcquire("job", long)
	require.ErrorIs(t, l.Tx(e.insert(), false), leases.ErrLost)
	require.ErrorIs(t, l.Err(), leases.ErrLost)
	require.NoError(t, next.Tx(e.insert(), false))
	require.Equal(t, 1, e.rows(e.reader(a)))
}

func txExpired(t *testing.T, e *env) {
	a, b := e.twoWorkers()
	e.work(a)
	l := a.MustAcquire("job", long)
	e.expire(b, "job")
	require.ErrorIs(t, l.Tx(e.insert(), false), leases.ErrLost)
	require.Zero(t, e.rows(e.reader(a)))
}

func verifyOwn(t *testing.T, e *env) {
	db := e.open()
	m := e.manager(db, leases.Options{Owner: "worker-a"})
	l, err := m.Acquire(t.Context(), "job", long, 0)
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, l.Verify(t.Context(), tx))
	require.NoError(t, tx.Commit())

	require.NoError(t, m.Break(t.Context(), "job", l.Info().Epoch))
	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.ErrorIs(t, l.Verify(t.Context(), tx), leases.ErrLost)
}

func verifyPool(t *testing.T, e *env) {
	db := e.open()
	m := e.manager(db, leases.Options{Owner: "worker-a"})
	l, err := m.Acquire(t.Context(), "job", long, 0)
	require.NoError(t, err)
	require.Error(t, l.Verify(t.Context(), db))
	require.Error(t, l.ExtendTx(t.Context(), db, 2*long))
	require.NoError(t, l.Err())
}

func extendTxCommit(t *testing.T, e *env) {
	m := e.manager(e.open(), leases.Options{Owner: "worker-a"})
	l, err := m.Acquire(t.Context(), "job", long, 0)
	require.NoError(t, err)
	before := l.Info()
	require.NoError(t, l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, l.ExtendTx(ctx, tx, 2*long))
		require.Equal(t, before, l.Info(), "not before the commit")
		return nil
	}))
	require.True(t, l.Info().Expires.After(before.Expires))
	require.Equal(t, l.Info(), stored(t, m, "job"))
}

func extendTxRollback(t *testing.T, e *env) {
	m := e.manager(e.open(), leases.Options{Owner: "worker-a"})
	l, err := m.Acquire(t.Context(), "job", long, 0)
	require.NoError(t, err)
	before := l.Info()
	require.ErrorIs(t, l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, l.ExtendTx(ctx, tx, 2*long))
		return errBoom
	}), errBoom)
	require.Equal(t, before, l.Info())
	require.Equal(t, before, stored(t, m, "job"))
}

func insideTx(t *testing.T, e *env) {
	m := e.manager(e.open(), leases.Options{Owner: "worker-a"})
	l, err := m.Acquire(t.Context(), "job", long, 0)
	require.NoError(t, err)
	other, err := m.Acquire(t.Context(), "other-job", long, 0)
	require.NoError(t, err)
	require.NoError(t, l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := m.Acquire(ctx, "third-job", long, 0)
		require.ErrorIs(t, err, leases.ErrInsideTx)
		require.ErrorIs(t, other.Extend(ctx, 2*long), leases.ErrInsideTx)
		require.ErrorIs(t, other.Release(ctx), leases.ErrInsideTx)
		require.ErrorIs(t, other.Tx(ctx, func(context.Context, *sql.Tx) error { return nil }), leases.ErrInsideTx)
		require.ErrorIs(t, m.Break(ctx, "other-job", 1), leases.ErrInsideTx)
		require.ErrorIs(t, l.Extend(t.Context(), 2*long), leases.ErrInsideTx, "with whatever context")
		return nil
	}))
	require.NoError(t, other.Release(t.Context()))
}

func openTxHeld(t *testing.T, e *env) {
	a, _ := e.twoWorkers()
	e.work(a)
	l := a.MustAcquire("job", long)
	open, err := l.OpenTx(e.insert())
	require.NoError(t, err)
	require.ErrorIs(t, l.Release(), leases.ErrInsideTx)
	require.ErrorIs(t, l.Extend(2*long), leases.ErrInsideTx)
	cause, err := open.Finish(false)
	require.NoError(t, err)
	require.Empty(t, cause)
	require.NoError(t, l.Release())
	require.Equal(t, 1, e.rows(e.reader(a)))
}
