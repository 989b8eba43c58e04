package reservations_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/reservations/reservationstest"
)

func TestMain(m *testing.M) {
	reservationstest.Main()
	os.Exit(m.Run())
}

func TestSixteenProcessesThatAreKilledLoseNothingAndMakeNothingUp(t *testing.T) {
	reservationstest.RunKills(t, leasetest.Store{Driver: "sqlite3", DSN: storeDSN(t)}, 16, 200, 150*time.Millisecond)
}

func TestSixteenProcessesOfASharedStoreThatAreKilledLoseNothingAndMakeNothingUp(t *testing.T) {
	reservationstest.RunKills(t, leasetest.Store{Driver: "coopsqlite", DSN: storeDSN(t) + "&_coop_owner=shared"}, 16, 200, 150*time.Millisecond)
}

func storeDSN(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "store.db") + "?_journal_mode=WAL&_busy_timeout=10000&_synchronous=NORMAL"
}
