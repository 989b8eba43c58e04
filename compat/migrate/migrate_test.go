// Package migrate_test: golang-migrate on the driver coopsqlite, with an open
// pool and by URL.
package migrate_test

import (
	"context"
	"database/sql"
	"embed"
	"strings"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite3"
	migrations "github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

//go:embed migrations/*.sql
var embedded embed.FS

// byURL makes the scheme coopsqlite known: golang-migrate's own sqlite3 driver
// always opens the database/sql driver "sqlite3", but takes any pool.
type byURL struct{ database.Driver }

func (byURL) Open(url string) (database.Driver, error) {
	db, err := sql.Open(harness.Driver, "file:"+strings.TrimPrefix(url, "coopsqlite://"))
	if err != nil {
		return nil, err
	}
	driver, err := sqlite3.WithInstance(db, &sqlite3.Config{})
	if err != nil {
		db.Close()
	}
	return driver, err
}

func init() { database.Register("coopsqlite", byURL{}) }

func source(t *testing.T) migrations.Driver {
	t.Helper()
	s, err := iofs.New(embedded, "migrations")
	require.NoError(t, err)
	return s
}

func withInstance(t *testing.T, db *sql.DB) *migrate.Migrate {
	t.Helper()
	driver, err := sqlite3.WithInstance(db, &sqlite3.Config{})
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("iofs", source(t), "app", driver)
	require.NoError(t, err)
	return m
}

func TestWithInstanceUpDownAndUpAgain(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path, "_foreign_keys", "off"))
	m := withInstance(t, db)
	require.NoError(t, m.Up())
	harness.Exec(t, db, "INSERT INTO accounts (name) VALUES ('ada')")
	harness.Guarded(t, db, path)

	require.NoError(t, m.Steps(-1))
	harness.Guarded(t, db, path)
	require.NoError(t, m.Up())
	require.ErrorIs(t, m.Up(), migrate.ErrNoChange)
	var name string
	require.NoError(t, db.QueryRow("SELECT name FROM accounts").Scan(&name))
	require.Equal(t, "ada", name)
	require.NoError(t, m.Down())
	require.NoError(t, m.Up())
	harness.Guarded(t, db, path)
}

func TestPoolOfOneConnectionIsEnough(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path, "_foreign_keys", "off"))
	db.SetMaxOpenConns(1)
	m := withInstance(t, db)
	require.NoError(t, m.Up())
	require.NoError(t, m.Down())
	require.NoError(t, m.Up())
	harness.Guarded(t, db, path)
}

func TestByURLBesideTheServicesPool(t *testing.T) {
	path := harness.Path(t)
	service := harness.Open(t, harness.DSN(path, "_coop_owner", "process"))
	harness.Exec(t, service, "CREATE TABLE visits (id INTEGER PRIMARY KEY)")

	m, err := migrate.NewWithSourceInstance("iofs", source(t), "coopsqlite://"+path+"?_journal_mode=WAL&_coop_owner=process")
	require.NoError(t, err)
	require.NoError(t, m.Up())
	sourceErr, databaseErr := m.Close()
	require.NoError(t, sourceErr)
	require.NoError(t, databaseErr)

	harness.Exec(t, service, "INSERT INTO visits DEFAULT VALUES", "INSERT INTO accounts (name) VALUES ('ada')")
	harness.Guarded(t, service, path)
}

func TestByURLIsRefusedWhileAnotherProcessOwnsTheStore(t *testing.T) {
	path := harness.Path(t)
	stop := harness.AnotherOwner(t, harness.DSN(path, "_coop_app", "old-release"))
	_, err := migrate.NewWithSourceInstance("iofs", source(t), "coopsqlite://"+path)
	require.ErrorContains(t, err, "Another Coop writer owns this store")
	require.ErrorContains(t, err, "old-release")
	stop()
	m, err := migrate.NewWithSourceInstance("iofs", source(t), "coopsqlite://"+path)
	require.NoError(t, err)
	require.NoError(t, m.Up())
	_, err = m.Close()
	require.NoError(t, err)
}

// Drop drops every table it finds, coop_owner among them, and leaves a query
// open; afterwards the owner still owns, and what is created is fenced.
func TestDropLeavesAnOwnedAndWritableStore(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path, "_foreign_keys", "off", "_busy_timeout", "2000"))
	m := withInstance(t, db)
	require.NoError(t, m.Up())
	require.NoError(t, m.Drop())

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := db.ExecContext(ctx, "CREATE TABLE fresh (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "INSERT INTO fresh DEFAULT VALUES")
	require.NoError(t, err)
	harness.Guarded(t, db, path)

	again := withInstance(t, db)
	require.NoError(t, again.Up())
	harness.Guarded(t, db, path)
}

func TestFailedMigrationLeavesNothingBehind(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	driver, err := sqlite3.WithInstance(db, &sqlite3.Config{})
	require.NoError(t, err)
	err = driver.Run(strings.NewReader("CREATE TABLE half (id INTEGER PRIMARY KEY); INSERT INTO nowhere VALUES (1);"))
	require.ErrorContains(t, err, "no such table: nowhere")
	require.Error(t, db.QueryRow("SELECT count(*) FROM half").Scan(new(int)))
	harness.Exec(t, db, "CREATE TABLE half (id INTEGER PRIMARY KEY)")
	harness.Guarded(t, db, path)
}
