package coopsqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// hiding wraps the driver as instrumenting wrappers do that know nothing of a
// connector's Close.
type hiding struct{ inner *coopsqlite.Driver }

func (d hiding) Open(dsn string) (driver.Conn, error) { return d.inner.Open(dsn) }
func (d hiding) OpenConnector(dsn string) (driver.Connector, error) {
	c, err := d.inner.OpenConnector(dsn)
	return hidingConnector{c, d}, err
}

type hidingConnector struct {
	inner driver.Connector
	d     hiding
}

func (c hidingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	return c.inner.Connect(ctx)
}
func (c hidingConnector) Driver() driver.Driver { return c.d }

func openHidden(t *testing.T, path string) *sql.DB {
	t.Helper()
	connector, err := hiding{&coopsqlite.Driver{}}.OpenConnector(path)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS t (x)")
	require.NoError(t, err)
	return db
}

func TestClosingAPoolBehindAWrapperGivesTheStoreBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	for range 2 {
		db := openHidden(t, path)
		_, err := sql.Open("coopsqlite", path)
		require.ErrorIs(t, err, coopsqlite.ErrConflict)
		require.NoError(t, db.Close())
	}
	db, err := sql.Open("coopsqlite", path)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

func TestPoolBehindAWrapperOwnsTheStoreWhileItHasNoConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := openHidden(t, path)
	db.SetMaxIdleConns(-1)
	require.Zero(t, db.Stats().OpenConnections)
	_, err := sql.Open("coopsqlite", path)
	require.ErrorIs(t, err, coopsqlite.ErrConflict)
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
}
