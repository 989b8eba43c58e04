package reservations_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/coopsqlite/coopsqlite/compat/pgtest"
	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/reservations/reservationstest"
)

func TestMain(m *testing.M) {
	reservationstest.Main()
	os.Exit(pgtest.Main(m))
}

func TestReservationsKeepTheirPromisesOnPostgreSQL(t *testing.T) {
	reservationstest.Run(t, leases.Postgres, postgres)
}

func TestReservationsKeepTheirPromisesOnModernc(t *testing.T) {
	reservationstest.Run(t, leases.SQLite, modernc)
}

// postgres is a pool on a new database of a real server.
func postgres(t *testing.T) *sql.DB {
	return open(t, pgtest.Driver, pgtest.Database(t))
}

// modernc is a pool on a new file through the driver without cgo, whose
// transactions begin deferred.
func modernc(t *testing.T) *sql.DB {
	return open(t, "sqlite", moderncDSN(t))
}

func moderncDSN(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "store.db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_pragma=synchronous(normal)"
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestSixteenProcessesThatAreKilledLoseNothingAndMakeNothingUpOnPostgreSQL(t *testing.T) {
	reservationstest.RunKills(t, leasetest.Store{Dialect: leases.Postgres, Driver: pgtest.Driver, DSN: pgtest.Database(t)}, 16, 80, time.Second)
}

func TestSixteenProcessesThatAreKilledLoseNothingAndMakeNothingUpOnModernc(t *testing.T) {
	reservationstest.RunKills(t, leasetest.Store{Driver: "sqlite", DSN: moderncDSN(t)}, 16, 96, 150*time.Millisecond)
}
