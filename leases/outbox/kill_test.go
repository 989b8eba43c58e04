package outbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox/outboxtest"
)

func TestMain(m *testing.M) {
	outboxtest.Main()
	os.Exit(m.Run())
}

func TestNoEventIsLostHoweverOftenTheRelayIsKilled(t *testing.T) {
	kills := 1000
	if testing.Short() {
		kills = 50
	}
	outboxtest.RunKills(t, leasetest.Store{Driver: "sqlite3", DSN: storeDSN(t)}, kills)
}

func TestNoEventIsLostWhereRelaysOfASharedStoreAreKilled(t *testing.T) {
	outboxtest.RunKills(t, leasetest.Store{Driver: "coopsqlite", DSN: storeDSN(t) + "&_coop_owner=shared"}, 50)
}

func storeDSN(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "store.db") + "?_journal_mode=WAL&_busy_timeout=10000&_synchronous=NORMAL"
}
