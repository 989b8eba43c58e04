package reservations_test

import (
	"database/sql"
	"testing"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/reservations/reservationstest"
)

func TestReservationsKeepTheirPromisesOnAnySQLiteDriver(t *testing.T) {
	reservationstest.Run(t, leases.SQLite, func(t *testing.T) *sql.DB {
		return open(t, "sqlite3", "")
	})
}

func TestReservationsKeepTheirPromisesOnCoopSQLite(t *testing.T) {
	for _, owner := range []string{"exclusive", "process", "shared"} {
		t.Run(owner, func(t *testing.T) {
			reservationstest.Run(t, leases.SQLite, func(t *testing.T) *sql.DB {
				return open(t, "coopsqlite", "&_coop_owner="+owner)
			})
		})
	}
}

func open(t *testing.T, driver, more string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, storeDSN(t)+more)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
