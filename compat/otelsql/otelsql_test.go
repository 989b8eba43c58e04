// Package otelsql_test: the tracing wrapper otelsql around the driver
// coopsqlite.
package otelsql_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/XSAM/otelsql"
	"github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// traced returns otelsql's option and the recorder that the spans arrive in.
func traced(t *testing.T) (otelsql.Option, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	t.Cleanup(func() { provider.Shutdown(context.WithoutCancel(t.Context())) })
	return otelsql.WithTracerProvider(provider), recorder
}

func statements(recorder *tracetest.SpanRecorder) []string {
	var found []string
	for _, span := range recorder.Ended() {
		for _, a := range span.Attributes() {
			if a.Key == attribute.Key("db.query.text") || a.Key == attribute.Key("db.statement") {
				found = append(found, a.Value.AsString())
			}
		}
	}
	return found
}

// work writes and reads through the wrapped pool in every way there is.
func work(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx := t.Context()
	_, err := db.ExecContext(ctx, "CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT)")
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "INSERT INTO foo (name) VALUES (:name)", sql.Named("name", "ada"))
	require.NoError(t, err)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	insert, err := tx.PrepareContext(ctx, "INSERT INTO foo (name) VALUES (?) RETURNING id")
	require.NoError(t, err)
	var id int
	require.NoError(t, insert.QueryRowContext(ctx, "bob").Scan(&id))
	require.Equal(t, 2, id)
	require.NoError(t, insert.Close())
	require.NoError(t, tx.Commit())
}

func TestSpansArriveAndTheStoreIsFenced(t *testing.T) {
	path := harness.Path(t)
	option, recorder := traced(t)
	db, err := otelsql.Open(harness.Driver, harness.DSN(path), option)
	require.NoError(t, err)
	defer db.Close()
	work(t, db)
	require.Subset(t, statements(recorder), []string{
		"CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT)",
		"INSERT INTO foo (name) VALUES (:name)",
		"INSERT INTO foo (name) VALUES (?) RETURNING id",
	})
	harness.Guarded(t, db, path)
}

func TestRegisteredNameWorks(t *testing.T) {
	path := harness.Path(t)
	option, recorder := traced(t)
	name, err := otelsql.Register(harness.Driver, option)
	require.NoError(t, err)
	db, err := sql.Open(name, harness.DSN(path))
	require.NoError(t, err)
	defer db.Close()
	work(t, db)
	require.NotEmpty(t, statements(recorder))
	harness.Guarded(t, db, path)
}

func TestConnectorIsWrapped(t *testing.T) {
	path := harness.Path(t)
	option, recorder := traced(t)
	connector, err := coopsqlite.NewConnector(harness.DSN(path), nil)
	require.NoError(t, err)
	db := otelsql.OpenDB(connector, option)
	defer db.Close()
	work(t, db)
	require.NotEmpty(t, statements(recorder))
	harness.Guarded(t, db, path)
}

func TestClosingTheWrappedPoolGivesTheStoreBack(t *testing.T) {
	path := harness.Path(t)
	option, _ := traced(t)
	db, err := otelsql.Open(harness.Driver, harness.DSN(path), option)
	require.NoError(t, err)
	work(t, db)
	_, err = sql.Open(harness.Driver, harness.DSN(path))
	require.ErrorIs(t, err, coopsqlite.ErrConflict)
	require.NoError(t, db.Close())

	again := harness.Open(t, harness.DSN(path))
	harness.Exec(t, again, "INSERT INTO foo DEFAULT VALUES")
	harness.Guarded(t, again, path)
}

// The functions of mattn/go-sqlite3's connection, its online backup among
// them, are reached through the wrapper.
func TestConnectionIsFoundAndBackedUpThroughTheWrapper(t *testing.T) {
	path := harness.Path(t)
	option, _ := traced(t)
	db, err := otelsql.Open(harness.Driver, harness.DSN(path), option)
	require.NoError(t, err)
	defer db.Close()
	work(t, db)

	copied := filepath.Join(t.TempDir(), "copy.db")
	destination, err := (&sqlite3.SQLiteDriver{}).Open(copied)
	require.NoError(t, err)
	defer destination.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(driverConn any) error {
		source, ok := coopsqlite.SQLiteConn(driverConn)
		require.True(t, ok, "%T", driverConn)
		backup, err := destination.(*sqlite3.SQLiteConn).Backup("main", source, "main")
		require.NoError(t, err)
		done, err := backup.Step(-1)
		require.NoError(t, err)
		require.True(t, done)
		return backup.Finish()
	}))
	require.NoError(t, conn.Close())

	reader, err := sql.Open("sqlite3", "file:"+copied+"?mode=ro")
	require.NoError(t, err)
	defer reader.Close()
	var n int
	require.NoError(t, reader.QueryRow("SELECT count(*) FROM foo").Scan(&n))
	require.Equal(t, 2, n)
	harness.Guarded(t, db, path)
}
