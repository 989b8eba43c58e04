// Package sqlmw_test: sqlmw, the intercepting wrapper, around the driver
// coopsqlite. It stands for wrappers that know neither Raw nor a connector's
// Close.
package sqlmw_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"sync"
	"testing"

	"github.com/ngrok/sqlmw"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// recorder is an interceptor that writes down what passes it.
type recorder struct {
	sqlmw.NullInterceptor
	mu   sync.Mutex
	seen []string
}

func (r *recorder) record(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, what)
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func (r *recorder) ConnExecContext(ctx context.Context, conn driver.ExecerContext, query string, args []driver.NamedValue) (driver.Result, error) {
	r.record("exec " + query)
	return conn.ExecContext(ctx, query, args)
}

func (r *recorder) ConnQueryContext(ctx context.Context, conn driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	r.record("query " + query)
	rows, err := conn.QueryContext(ctx, query, args)
	return ctx, rows, err
}

func (r *recorder) StmtExecContext(ctx context.Context, stmt driver.StmtExecContext, query string, args []driver.NamedValue) (driver.Result, error) {
	r.record("prepared " + query)
	return stmt.ExecContext(ctx, args)
}

func (r *recorder) TxCommit(_ context.Context, tx driver.Tx) error {
	r.record("commit")
	return tx.Commit()
}

// open wraps the driver as sql.Register and sql.Open do with a wrapped one.
func open(t *testing.T, path string) (*sql.DB, *recorder) {
	t.Helper()
	r := &recorder{}
	wrapped := sqlmw.Driver(&coopsqlite.Driver{}, r)
	connector, err := wrapped.(driver.DriverContext).OpenConnector(harness.DSN(path))
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db, r
}

func work(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx := t.Context()
	_, err := db.ExecContext(ctx, "CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT)")
	require.NoError(t, err)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	insert, err := tx.PrepareContext(ctx, "INSERT INTO foo (name) VALUES (?)")
	require.NoError(t, err)
	_, err = insert.ExecContext(ctx, "ada")
	require.NoError(t, err)
	require.NoError(t, insert.Close())
	require.NoError(t, tx.Commit())
	var name string
	require.NoError(t, db.QueryRowContext(ctx, "SELECT name FROM foo WHERE id = :id", sql.Named("id", 1)).Scan(&name))
	require.Equal(t, "ada", name)
}

func TestCallbacksArriveAndTheStoreIsFenced(t *testing.T) {
	path := harness.Path(t)
	db, r := open(t, path)
	work(t, db)
	require.Equal(t, []string{
		"exec CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT)",
		"prepared INSERT INTO foo (name) VALUES (?)",
		"commit",
		"query SELECT name FROM foo WHERE id = :id",
	}, r.all())
	harness.Guarded(t, db, path)
}

func TestConnectionIsFoundThroughAWrapperWithoutRaw(t *testing.T) {
	path := harness.Path(t)
	db, _ := open(t, path)
	work(t, db)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(driverConn any) error {
		found, ok := coopsqlite.SQLiteConn(driverConn)
		require.True(t, ok, "%T", driverConn)
		require.Equal(t, path, found.GetFilename("main"))
		return nil
	}))
	require.NoError(t, conn.Close())
	harness.Guarded(t, db, path)
}

func TestClosingTheWrappedPoolGivesTheStoreBack(t *testing.T) {
	path := harness.Path(t)
	db, _ := open(t, path)
	work(t, db)
	_, err := sql.Open(harness.Driver, harness.DSN(path))
	require.ErrorIs(t, err, coopsqlite.ErrConflict)
	require.NoError(t, db.Close())

	again := harness.Open(t, harness.DSN(path, "_coop_wait", "10s"))
	harness.Exec(t, again, "INSERT INTO foo DEFAULT VALUES")
	harness.Guarded(t, again, path)
}

// The driver must open a connection to look through the wrapper; where the only
// one is taken, that ends with an error.
func TestStoreOfAWrappedPoolWithoutAFreeConnectionIsAnError(t *testing.T) {
	path := harness.Path(t)
	db, _ := open(t, path)
	db.SetMaxOpenConns(1)
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = coopsqlite.StoreOf(db)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, held.Close())
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	require.Equal(t, path, store.Path())
}
