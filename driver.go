package coopsqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"slices"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// driverName is the name that sql.Open takes.
const driverName = "coopsqlite"

func init() {
	shim.Configure()
	register()
}

// register takes the name unless it is taken: a second registration would
// panic, and whoever came first meant it.
func register() {
	if !slices.Contains(sql.Drivers(), driverName) {
		sql.Register(driverName, &Driver{})
	}
}

// Driver is the database/sql driver. The zero value is what is registered as
// "coopsqlite"; register one of your own, under another name, to load
// extensions or to run a hook on every new connection.
type Driver struct {
	// Extensions are loaded into every connection, as by mattn's SQLiteDriver.
	Extensions []string
	// ConnectHook runs on every new connection, as in mattn's SQLiteDriver,
	// after the store has been taken over: it may read and write.
	ConnectHook func(*sqlite3.SQLiteConn) error
	// Logger receives what no caller is there to be told: repairs by the
	// watcher, and the end of an ownership. Nil is silent.
	Logger *slog.Logger

	store *Store // of the connector this driver value belongs to, or nil
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.DriverContext = (*Driver)(nil)
	_ hint.Owner           = (*Driver)(nil)
	_ hint.Writer          = (*Driver)(nil)
)

// OpenConnector takes the ownership that the DSN asks for. sql.Open calls it,
// so that an error comes from there, at start-up.
func (d *Driver) OpenConnector(dsn string) (driver.Connector, error) {
	wrapped := !openedBySQL()
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c, err := newConnector(context.Background(), cfg, &Options{d.Extensions, d.ConnectHook, d.Logger}, wrapped)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Open returns a single connection, for wrappers that know no connectors. Such
// connections share one ownership in the process, as with
// _coop_owner=process, which ends with the last of them.
func (d *Driver) Open(dsn string) (driver.Conn, error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if cfg.mode == modeExclusive {
		cfg.mode = modeProcess
	}
	connector, err := newConnector(context.Background(), cfg, &Options{d.Extensions, d.ConnectHook, d.Logger}, false)
	if err != nil {
		return nil, err
	}
	dc, err := connector.Connect(context.Background())
	if err != nil {
		return nil, errors.Join(err, connector.Close())
	}
	c := dc.(*conn)
	c.alone = true
	return c, nil
}

// Mode is the kind of ownership of the pool this driver value belongs to; empty
// for a driver value that belongs to none. See [Store.Mode].
func (d *Driver) Mode() string {
	if d.store == nil {
		return ""
	}
	return d.store.Mode()
}

// Committed returns a channel that is closed by the next commit in this
// process; nil for a driver value that belongs to no pool.
func (d *Driver) Committed() <-chan struct{} {
	if d.store == nil {
		return nil
	}
	return d.store.own.commits.wait()
}

// Identity is the same comparable value for every pool that shares an
// ownership; nil for a driver value that belongs to no pool.
func (d *Driver) Identity() any {
	if d.store == nil {
		return nil
	}
	return d.store.own
}

// probeKey finds our connection behind any number of wrappers: they pass the
// context on, whatever they hide.
type probeKey struct{}

// connOf unwraps a driver connection. Wrappers keep their inner connection to
// themselves, but all hand a Ping and its context through.
func connOf(driverConn any) *conn {
	if c, ok := driverConn.(*conn); ok {
		return c
	}
	pinger, ok := driverConn.(driver.Pinger)
	if !ok {
		return nil
	}
	var found *conn
	_ = pinger.Ping(context.WithValue(context.Background(), probeKey{}, &found))
	return found
}

// SQLiteConn returns the connection of mattn's driver below driverConn, the
// value that (*sql.Conn).Raw passes; also through wrappers such as otelsql.
// What is done with it bypasses the gate and the coverage check at commit, but
// not the fence. It must not be used after Raw's function has returned.
func SQLiteConn(driverConn any) (*sqlite3.SQLiteConn, bool) {
	if c, ok := driverConn.(*sqlite3.SQLiteConn); ok {
		return c, true
	}
	c := connOf(driverConn)
	if c == nil {
		return nil, false
	}
	if c.attach(context.Background()) != nil {
		return nil, false
	}
	c.handOut()
	return c.source, true
}

// Write is [Store.Write] of the pool this driver value belongs to, for packages
// that do not import this one.
func (d *Driver) Write(ctx context.Context, fn func(tx hint.DBTX) error) error {
	if d.store == nil {
		return ErrNotCoop
	}
	return d.store.Write(ctx, func(tx DBTX) error { return fn(tx) })
}
