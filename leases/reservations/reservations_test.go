package reservations_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/reservations/reservationstest"
)

func TestReservationsKeepTheirPromisesOnAnySQLiteDriver(t *testing.T) {
	reservationstest.Run(t, leases.SQLite, func(t *testing.T) *sql.DB {
		db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "store.db")+"?_journal_mode=WAL&_busy_timeout=10000&_synchronous=NORMAL")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}
