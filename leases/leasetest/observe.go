package leasetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"

	"github.com/coopsqlite/coopsqlite/internal/hint"
)

// OpenObserved is sql.Open with step in between: it is called before each call
// to the database, with the statement's text, BEGIN or COMMIT, and may take
// its time. after is called after each COMMIT that succeeded, and its error, if
// there is one, takes the place of the answer. Either may be nil.
func OpenObserved(driverName, dsn string, step func(call string), after func(call string) error) (*sql.DB, error) {
	probe, err := sql.Open(driverName, "")
	if err != nil {
		return nil, err
	}
	real := probe.Driver()
	if err := probe.Close(); err != nil {
		return nil, err
	}
	var inner driver.Connector = dsnConnector{dsn, real}
	if d, ok := real.(driver.DriverContext); ok {
		if inner, err = d.OpenConnector(dsn); err != nil {
			return nil, err
		}
	}
	if step == nil {
		step = func(string) {}
	}
	if after == nil {
		after = func(string) error { return nil }
	}
	return sql.OpenDB(&observed{inner, step, after}), nil
}

type dsnConnector struct {
	dsn string
	d   driver.Driver
}

func (c dsnConnector) Driver() driver.Driver                        { return c.d }
func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.d.Open(c.dsn) }

// observed passes everything on to a real driver.
type observed struct {
	driver.Connector
	step  func(call string)
	after func(call string) error
}

func (o *observed) Driver() driver.Driver {
	d := observedDriver{o.Connector.Driver()}
	if owner, ok := d.Driver.(hint.Owner); ok {
		return ownerDriver{d, owner}
	}
	return d
}

// observedDriver hides whatever else the real driver can do.
type observedDriver struct{ driver.Driver }

type ownerDriver struct {
	observedDriver
	hint.Owner
}

func (o *observed) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := o.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &observedConn{conn, o}, nil
}

func (o *observed) Close() error {
	if c, ok := o.Connector.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

type observedConn struct {
	driver.Conn
	o *observed
}

func (c *observedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.o.step("BEGIN")
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return &observedTx{tx, c.o}, nil
}

func (c *observedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.o.step(query)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *observedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.o.step(query)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *observedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *observedConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *observedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type observedTx struct {
	driver.Tx
	o *observed
}

func (tx *observedTx) Commit() error {
	tx.o.step("COMMIT")
	if err := tx.Tx.Commit(); err != nil {
		return err
	}
	return tx.o.after("COMMIT")
}
