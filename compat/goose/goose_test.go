// Package goose_test: goose on the driver coopsqlite, with SQL and Go
// migrations from an embedded file system.
package goose_test

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

//go:embed migrations/*.sql
var embedded embed.FS

// goMigrations are the third and the fourth: one in a transaction of goose's,
// one that uses the pool itself.
func goMigrations() goose.ProviderOption {
	return goose.WithGoMigrations(
		goose.NewGoMigration(3,
			&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "CREATE TABLE tags (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO tags (name) VALUES ('first')")
				return err
			}},
			&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "DROP TABLE tags")
				return err
			}}),
		goose.NewGoMigration(4,
			&goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error {
				_, err := db.ExecContext(ctx, "ALTER TABLE tags ADD COLUMN color TEXT")
				return err
			}},
			&goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error {
				_, err := db.ExecContext(ctx, "ALTER TABLE tags DROP COLUMN color")
				return err
			}}),
	)
}

func provider(t *testing.T, db *sql.DB) *goose.Provider {
	t.Helper()
	migrations, err := fs.Sub(embedded, "migrations")
	require.NoError(t, err)
	p, err := goose.NewProvider(goose.DialectSQLite3, db, migrations, goMigrations())
	require.NoError(t, err)
	return p
}

func TestUpDownAndUpAgain(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	p := provider(t, db)

	results, err := p.Up(t.Context())
	require.NoError(t, err)
	require.Len(t, results, 4)
	harness.Guarded(t, db, path)
	harness.Exec(t, db, "INSERT INTO accounts (name) VALUES ('ada')", "INSERT INTO tags (name, color) VALUES ('second', 'red')")

	_, err = p.Down(t.Context()) // redo of the last one
	require.NoError(t, err)
	_, err = p.UpByOne(t.Context())
	require.NoError(t, err)
	_, err = p.DownTo(t.Context(), 0)
	require.NoError(t, err)
	harness.Guarded(t, db, path)

	_, err = p.Up(t.Context())
	require.NoError(t, err)
	version, err := p.GetDBVersion(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, version)
	harness.Guarded(t, db, path)
}

func TestClassicFunctionsRedo(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	goose.SetBaseFS(embedded)
	defer goose.SetBaseFS(nil)
	goose.SetLogger(goose.NopLogger())
	require.NoError(t, goose.SetDialect("sqlite3"))
	require.NoError(t, goose.UpTo(db, "migrations", 1))
	require.NoError(t, goose.Redo(db, "migrations"))

	harness.Exec(t, db, "INSERT INTO accounts (name) VALUES ('ada')", "INSERT INTO ledger (account_id, amount) VALUES (1, 5)")
	_, err := db.Exec("INSERT INTO ledger (account_id, amount) VALUES (1, -6)")
	require.ErrorContains(t, err, "overdrawn; refused")
	harness.Guarded(t, db, path)
}

func TestMigrationsRunWhileTheServicesPoolIsOpen(t *testing.T) {
	path := harness.Path(t)
	dsn := harness.DSN(path, "_coop_owner", "process")
	service := harness.Open(t, dsn)
	harness.Exec(t, service, "CREATE TABLE visits (id INTEGER PRIMARY KEY)")

	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, err := service.Exec("INSERT INTO visits DEFAULT VALUES"); err != nil {
				stopped <- err
				return
			}
		}
	}()
	migrator := harness.Open(t, dsn)
	_, err := provider(t, migrator).Up(t.Context())
	close(stop)
	require.NoError(t, err)
	require.NoError(t, <-stopped)
	require.NoError(t, migrator.Close())

	harness.Exec(t, service, "INSERT INTO tags (name) VALUES ('after the migration')")
	harness.Guarded(t, service, path)
}

// A deploy log needs to say why the migration did not run and who is in the
// way.
func TestMigrationsAreRefusedWhileAnotherProcessOwnsTheStore(t *testing.T) {
	path := harness.Path(t)
	stop := harness.AnotherOwner(t, harness.DSN(path, "_coop_app", "old-release"))
	db, err := sql.Open(harness.Driver, harness.DSN(path))
	if err == nil {
		defer db.Close()
		err = db.Ping()
	}
	require.ErrorContains(t, err, "Another Coop writer owns this store")
	require.ErrorContains(t, err, "old-release")
	stop()

	db = harness.Open(t, harness.DSN(path))
	_, err = provider(t, db).Up(t.Context())
	require.NoError(t, err, "the old release has gone")
	harness.Guarded(t, db, path)
}

func TestPoolOfOneConnectionIsEnoughForTransactions(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	db.SetMaxOpenConns(1)
	p := provider(t, db)
	_, err := p.UpTo(t.Context(), 3)
	require.NoError(t, err)
	_, err = p.DownTo(t.Context(), 0)
	require.NoError(t, err)
	_, err = p.UpTo(t.Context(), 3)
	require.NoError(t, err)
	harness.Guarded(t, db, path)
}

// goose keeps one connection for its bookkeeping while a Go migration without a
// transaction asks the pool for another one. With a pool of one connection
// nothing can give it; the context ends the wait.
func TestGoMigrationBehindAOneConnectionPoolEndsWithItsContext(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	p := provider(t, db)
	_, err := p.UpTo(t.Context(), 3)
	require.NoError(t, err)

	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = p.Up(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	db.SetMaxOpenConns(2)
	_, err = p.Up(t.Context())
	require.NoError(t, err)
	harness.Guarded(t, db, path)
}

// A Go migration that writes through the pool while goose's own transaction is
// open waits for itself; the error says where that transaction was begun.
func TestMigrationThatWaitsForItselfIsToldByWhom(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path, "_busy_timeout", "100"))
	p, err := goose.NewProvider(goose.DialectSQLite3, db, nil, goose.WithGoMigrations(goose.NewGoMigration(1,
		&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := db.ExecContext(ctx, "CREATE TABLE other (id INTEGER PRIMARY KEY)")
			return err
		}}, nil)))
	require.NoError(t, err)
	_, err = p.Up(t.Context())
	require.ErrorContains(t, err, "goose")
	require.ErrorContains(t, err, ".go:")
	harness.Exec(t, db, "CREATE TABLE other (id INTEGER PRIMARY KEY)")
	harness.Guarded(t, db, path)
}
