// Package pgtest gives tests a real PostgreSQL, one server for a test binary.
package pgtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // registers Driver
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/internal/pgserver"
)

// Driver is the driver's name for sql.Open.
const Driver = "pgx"

// shared is the one server of a test binary, started when first asked for.
var shared struct {
	once   sync.Once
	server *pgserver.Server
	err    error
	count  atomic.Int64
}

// Main is for TestMain: it runs the tests and stops the server that they
// started, if they did.
func Main(m *testing.M) int {
	defer func() {
		if shared.server != nil {
			shared.server.Stop()
		}
	}()
	return m.Run()
}

// Database is the DSN of a new, empty database on the test binary's server.
// Without PostgreSQL on the machine the test is skipped.
func Database(t testing.TB) string {
	t.Helper()
	s := Shared(t)
	name := fmt.Sprintf("test%d", shared.count.Add(1))
	require.NoError(t, s.CreateDatabase(name))
	return s.DSN(name)
}

// Shared is the test binary's server. Without PostgreSQL on the machine the
// test is skipped.
func Shared(t testing.TB) *pgserver.Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = pgserver.Start() })
	if errors.Is(shared.err, pgserver.ErrMissing) {
		t.Skip("needs PostgreSQL: ", shared.err)
	}
	require.NoError(t, shared.err)
	return shared.server
}
