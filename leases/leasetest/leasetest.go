// Package leasetest is the conformance suite of package leases: what a lease
// promises, as tests that run against any store, with workers in this process
// or in processes of their own. It also has the parts of such tests for tests
// of one's own: a [Clock] to inject, and [Worker].
package leasetest

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
)

// Store is an empty store to run a test against.
type Store struct {
	Dialect     leases.Dialect
	Driver, DSN string // as for sql.Open
	Table       string // as in leases.Options
	// Processes: the workers are processes of their own. The test binary's
	// TestMain must call Main.
	Processes bool
	// OnePool: the workers share one pool, since the store admits no second.
	OnePool bool
}

// Run runs the suite. fresh makes a store, anew for each test.
func Run(t *testing.T, fresh func(t *testing.T) Store) {
	for _, group := range []map[string]func(*testing.T, *env){renewalTests, lockTests, fenceTests} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, &env{T: t, store: fresh(t)})
			})
		}
	}
}

// env is what a test of the suite works with.
type env struct {
	*testing.T
	store Store
	pool  *sql.DB // see open
}

// open is a pool on the store in this process.
func (e *env) open() *sql.DB {
	e.Helper()
	if e.pool != nil && e.store.OnePool {
		return e.pool
	}
	db, err := sql.Open(e.store.Driver, e.store.DSN)
	require.NoError(e, err)
	e.Cleanup(func() { require.NoError(e, db.Close()) })
	e.pool = db
	return db
}

// worker starts a worker of the kind that the store asks for.
func (e *env) worker(owner string) *Worker {
	e.Helper()
	if e.store.Processes {
		return StartWorker(e.T, e.store, owner)
	}
	return LocalWorker(e.T, e.store, e.open(), owner)
}

func (e *env) twoWorkers() (a, b *Worker) {
	e.Helper()
	return e.worker("worker-a"), e.worker("worker-b")
}

// manager is a Manager in this process.
func (e *env) manager(db *sql.DB, o leases.Options) *leases.Manager {
	e.Helper()
	o.Dialect, o.Table = e.store.Dialect, e.store.Table
	m, err := leases.New(db, &o)
	require.NoError(e, err)
	e.Cleanup(func() { require.NoError(e, m.Close()) })
	return m
}

// table is the leases table as SQL names it.
func (e *env) table() string {
	if e.store.Table == "" {
		return "coop_leases"
	}
	return e.store.Table
}

// expire makes everybody's lease of name expired, behind the holder's back.
func (e *env) expire(w *Worker, name string) {
	e.Helper()
	require.NoError(e, w.Exec(`UPDATE `+e.table()+` SET expires = 1 WHERE name = '`+name+`'`))
}
