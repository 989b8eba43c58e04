// Package harness is what the compatibility tests share: a store in a
// temporary directory, pools on it, and the two questions each test ends with.
// Is every tracked table fenced, and is an outside process refused?
package harness

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Driver is the name under which the driver that is tested is registered.
const Driver = "coopsqlite"

// Path returns the path of a store that does not exist yet.
func Path(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "app.db")
}

// DSN returns the data source name of the store at path: WAL and foreign keys,
// as services use them, and then params, alternating names and values.
func DSN(path string, params ...string) string {
	query := url.Values{"_journal_mode": {"WAL"}, "_foreign_keys": {"on"}}
	for i := 0; i < len(params); i += 2 {
		query.Set(params[i], params[i+1])
	}
	return "file:" + path + "?" + query.Encode()
}

// Open opens a pool that is closed when the test ends.
func Open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(Driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, db.Ping())
	return db
}

// Exec runs statements, each of which must succeed.
func Exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
}

// Guarded is the end of a test: every tracked table of db's store is fenced,
// and no outside process can write to any of them.
func Guarded(t testing.TB, db *sql.DB, path string) {
	t.Helper()
	Covered(t, db)
	OutsiderIsRefused(t, path)
}
