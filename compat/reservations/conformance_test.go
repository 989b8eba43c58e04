package reservations_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/coopsqlite/coopsqlite/compat/pgtest"
	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
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

func TestHoldLastsFromWhenTheStockIsLockedNotFromWhenItWasAskedForOnPostgreSQL(t *testing.T) {
	db := postgres(t)
	repo, err := reservations.New(db, &reservations.Options{Dialect: leases.Postgres})
	require.NoError(t, err)
	require.NoError(t, repo.SetStock(t.Context(), "seat", 3))
	other, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer other.Rollback()
	_, err = other.Exec(`SELECT 1 FROM coop_stock FOR UPDATE`)
	require.NoError(t, err)

	reserved := make(chan reservations.Receipt, 1)
	go func() {
		receipt, err := repo.Reserve(t.Context(), reservations.Request{
			Key: "a", Lines: []reservations.Line{{SKU: "seat", Quantity: 1}}, Hold: time.Minute,
		})
		assert.NoError(t, err)
		reserved <- receipt
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := db.QueryRow(`SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&waiting)
		return err == nil && waiting > 0
	}, 30*time.Second, time.Millisecond)
	var unlocked int64
	require.NoError(t, db.QueryRow(`SELECT pg_sleep(0.05), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000`).Scan(new(any), &unlocked))
	require.NoError(t, other.Commit())
	receipt := <-reserved
	require.GreaterOrEqual(t, receipt.Reservation.Expires.UnixNano(), unlocked+int64(time.Minute))
	stored, err := repo.Get(t.Context(), "", "a")
	require.NoError(t, err)
	require.Equal(t, receipt.Reservation.Expires, stored.Expires)
}
