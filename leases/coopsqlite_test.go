package leases_test

import (
	"path/filepath"
	"testing"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

// owned is a store of coopsqlite's with that kind of ownership.
func owned(t *testing.T, kind string) leasetest.Store {
	path := filepath.Join(t.TempDir(), "store.db")
	return leasetest.Store{Driver: "coopsqlite", DSN: "file:" + path + "?_journal_mode=WAL&_coop_owner=" + kind}
}

func exclusive(t *testing.T) leasetest.Store {
	s := owned(t, "exclusive")
	s.OnePool = true
	return s
}

func shared(t *testing.T) leasetest.Store {
	s := owned(t, "shared")
	s.Processes = true
	return s
}

func TestConformanceOnAnExclusiveStore(t *testing.T) {
	leasetest.Run(t, exclusive)
}

func TestConformanceOnAStoreOfOneProcess(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Store { return owned(t, "process") })
}

func TestConformanceOnASharedStoreWithProcesses(t *testing.T) {
	leasetest.Run(t, shared)
}

func TestFaultsOnASharedStore(t *testing.T) {
	leasetest.RunFaults(t, shared)
}
