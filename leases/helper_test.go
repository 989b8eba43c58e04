package leases_test

import (
	"context"
	"database/sql"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func open(t *testing.T, s leasetest.Store) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.Driver, s.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// observed is open with calls to the database observed.
func observed(t *testing.T, s leasetest.Store, before func(string), after func(string) error) *sql.DB {
	t.Helper()
	db, err := leasetest.OpenObserved(s.Driver, s.DSN, before, after)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func manager(t *testing.T, db *sql.DB, o leases.Options) *leases.Manager {
	t.Helper()
	m, err := leases.New(db, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// eachStore runs a test on an exclusive store and on plain SQLite.
func eachStore(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	t.Run("Exclusive", func(t *testing.T) { test(t, open(t, exclusive(t))) })
	t.Run("Plain", func(t *testing.T) { test(t, open(t, plain(t))) })
}

func insertWork(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES (1)`)
	return err
}

// settle waits until a count has stopped moving.
func settle(count *atomic.Int64) int64 {
	for last := count.Load(); ; {
		time.Sleep(200 * time.Millisecond)
		now := count.Load()
		if now == last {
			return now
		}
		last = now
	}
}

// awaitWaiters waits until n goroutines are in line for a lease: inside wait and
// asleep there, since one that has only entered it has no place yet.
func awaitWaiters(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		asleep := 0
		for goroutine := range strings.SplitSeq(stacks(), "\n\n") {
			state, _, _ := strings.Cut(goroutine, "\n")
			if strings.Contains(goroutine, "(*Manager).wait(") && strings.Contains(state, "[select") {
				asleep++
			}
		}
		return asleep == n
	}, 30*time.Second, time.Millisecond)
}

// requireNoGoroutines waits until no goroutine of the package is left.
func requireNoGoroutines(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		all := stacks()
		return !strings.Contains(all, "leases.(*Lease)") && !strings.Contains(all, "leases.(*Manager)")
	}, 30*time.Second, time.Millisecond, "goroutines of the package are left")
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
