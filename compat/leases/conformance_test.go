// Package leases_test runs what leases promise on drivers and servers that the
// root module does not depend on: modernc's SQLite and PostgreSQL.
package leases_test

import (
	"flag"
	"log"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"
	_ "modernc.org/sqlite"

	"github.com/coopsqlite/coopsqlite/compat/pgtest"
	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func TestMain(m *testing.M) {
	leasetest.Main()
	// Most of these tests wait, for one another and for leases to expire.
	if err := flag.Set("test.parallel", "4"); err != nil {
		log.Fatal(err)
	}
	os.Exit(pgtest.Main(m))
}

func modernc(t *testing.T) leasetest.Store {
	path := filepath.Join(t.TempDir(), "store.db")
	return leasetest.Store{Driver: "sqlite", DSN: "file:" + path + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)"}
}

// moderncBare is what a user has who sets nothing: a rollback journal, and no
// busy timeout at all.
func moderncBare(t *testing.T) leasetest.Store {
	return leasetest.Store{Driver: "sqlite", DSN: "file:" + filepath.Join(t.TempDir(), "store.db")}
}

func postgres(t *testing.T) leasetest.Store {
	return leasetest.Store{Dialect: leases.Postgres, Driver: pgtest.Driver, DSN: pgtest.Database(t)}
}

func inProcesses(fresh func(*testing.T) leasetest.Store) func(*testing.T) leasetest.Store {
	return func(t *testing.T) leasetest.Store {
		s := fresh(t)
		s.Processes = true
		return s
	}
}

func TestConformanceOnModernc(t *testing.T) {
	leasetest.Run(t, modernc)
}

func TestConformanceOnModerncWithProcesses(t *testing.T) {
	leasetest.Run(t, inProcesses(modernc))
}

func TestConformanceOnModerncWithoutAnySettings(t *testing.T) {
	leasetest.Run(t, inProcesses(moderncBare))
}

func TestConformanceOnPostgres(t *testing.T) {
	leasetest.Run(t, postgres)
}

func TestConformanceOnPostgresWithProcesses(t *testing.T) {
	leasetest.Run(t, inProcesses(postgres))
}
