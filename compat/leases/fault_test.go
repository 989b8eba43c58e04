package leases_test

import (
	"testing"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func TestFaultsOnModerncWithoutAnySettings(t *testing.T) {
	leasetest.RunFaults(t, moderncBare)
}

func TestFaultsOnPostgres(t *testing.T) {
	leasetest.RunFaults(t, postgres)
}
