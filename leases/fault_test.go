package leases_test

import (
	"testing"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func TestFaultsOnPlainSQLite(t *testing.T) {
	leasetest.RunFaults(t, plain)
}
