package reservations_test

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
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

func TestReservationsMadeAtTheSameTimeShareTheirCommits(t *testing.T) {
	const callers, each = 32, 10
	db := open(t, "coopsqlite", "&_synchronous=FULL")
	repo, err := reservations.New(db, nil)
	require.NoError(t, err)
	require.NoError(t, repo.SetStock(t.Context(), "seat", callers*each))
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	before := store.Stats().Commits
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := range each {
				receipt, err := repo.Reserve(t.Context(), reservations.Request{
					Key: fmt.Sprint(c, " ", n), Lines: []reservations.Line{{SKU: "seat", Quantity: 1}},
				})
				assert.NoError(t, err)
				assert.Equal(t, reservations.Accepted, receipt.Status)
			}
		})
	}
	wg.Wait()
	require.Less(t, store.Stats().Commits-before, int64(callers*each*9/10))
}

func open(t *testing.T, driver, more string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, storeDSN(t)+more)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
