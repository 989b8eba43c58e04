package leases_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases"
)

func TestOperationsInsideWriteAndBulkAreRefusedAtOnce(t *testing.T) {
	db := open(t, exclusive(t))
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	m := manager(t, db, leases.Options{})
	l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
	body := func(tx coopsqlite.DBTX) error {
		ctx := tx.(interface{ Context() context.Context }).Context()
		require.ErrorIs(t, l.Extend(ctx, 2*time.Hour), leases.ErrInsideTx)
		_, err := m.Acquire(ctx, "other", time.Hour, 0)
		require.ErrorIs(t, err, leases.ErrInsideTx)
		require.NoError(t, l.Verify(ctx, tx))
		return l.ExtendTx(ctx, tx, 2*time.Hour)
	}
	before := l.Info()
	require.NoError(t, store.Write(t.Context(), body))
	require.Equal(t, before, l.Info(), "not before it is confirmed")
	require.ErrorIs(t, l.Extend(t.Context(), time.Hour), leases.ErrNotExtended)
	require.True(t, l.Info().Expires.After(before.Expires))
	require.NoError(t, store.Bulk(t.Context(), []string{"coop_leases"}, func(tx coopsqlite.DBTX) error {
		ctx := tx.(interface{ Context() context.Context }).Context()
		require.ErrorIs(t, l.Release(ctx), leases.ErrInsideTx)
		return l.Verify(ctx, tx)
	}))
}

func TestBusyStoreNamesTheLineThatHoldsIt(t *testing.T) {
	db := open(t, exclusive(t))
	m := manager(t, db, leases.Options{})
	tx, err := db.BeginTx(t.Context(), nil) // no mark says that this is inside
	require.NoError(t, err)
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = m.Acquire(ctx, "job", time.Hour, -1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, coopsqlite.ErrBusy)
	require.ErrorContains(t, err, "write_test.go:")
	require.NoError(t, tx.Rollback())
	_, err = m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
}
