package leases_test

import (
	"flag"
	"log"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func TestMain(m *testing.M) {
	leasetest.Main()
	// Most of these tests wait, for one another and for leases to expire.
	if err := flag.Set("test.parallel", "4"); err != nil {
		log.Fatal(err)
	}
	m.Run()
}

func plain(t *testing.T) leasetest.Store {
	path := filepath.Join(t.TempDir(), "store.db")
	return leasetest.Store{Driver: "sqlite3", DSN: "file:" + path + "?_journal_mode=WAL&_busy_timeout=1000"}
}

func TestConformanceOnPlainSQLite(t *testing.T) {
	leasetest.Run(t, plain)
}

func TestConformanceOnPlainSQLiteWithProcesses(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Store {
		s := plain(t)
		s.Processes = true
		return s
	})
}
