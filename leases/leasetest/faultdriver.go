package leasetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// faultDriver passes everything on to a real driver and tells step about each
// call to the database before it is made.
type faultDriver struct {
	driver.Driver
	step func(call string)
}

// openWithSteps is sql.Open with step in between.
func openWithSteps(driverName, dsn string, step func(call string)) (*sql.DB, error) {
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		return nil, err
	}
	real := db.Driver()
	if err := db.Close(); err != nil {
		return nil, err
	}
	return sql.OpenDB(faultConnector{dsn, &faultDriver{real, step}}), nil
}

type faultConnector struct {
	dsn string
	d   *faultDriver
}

func (c faultConnector) Driver() driver.Driver { return c.d }

func (c faultConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.d.Driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &faultConn{conn, c.d.step}, nil
}

type faultConn struct {
	driver.Conn
	step func(string)
}

func (c *faultConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.step("BEGIN")
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return &faultTx{tx, c.step}, nil
}

func (c *faultConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.step(query)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *faultConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.step(query)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *faultConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *faultConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *faultConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type faultTx struct {
	driver.Tx
	step func(string)
}

func (tx *faultTx) Commit() error {
	tx.step("COMMIT")
	return tx.Tx.Commit()
}
