package coopsqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
)

// stmt is a prepared statement. What it is prepared from stays in the
// connection's cache when it is closed.
type stmt struct {
	c      *conn
	s      *statement // nil: to be found again by its text
	text   string
	params int
	writes bool
	closed bool
}

var (
	_ driver.Stmt             = (*stmt)(nil)
	_ driver.StmtExecContext  = (*stmt)(nil)
	_ driver.StmtQueryContext = (*stmt)(nil)
)

// NumInput is the number of parameters.
func (st *stmt) NumInput() int { return st.params }

// Readonly reports whether SQLite considers the statement read-only.
func (st *stmt) Readonly() bool { return !st.writes }

// Close gives the statement back.
func (st *stmt) Close() error {
	if !st.closed {
		st.closed = true
		delete(st.c.prepared, st)
		if st.s != nil {
			st.s.release()
		}
	}
	return nil
}

// Exec is the form without a context.
func (st *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return st.ExecContext(context.Background(), namedValues(args))
}

// Query is the form without a context.
func (st *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return st.QueryContext(context.Background(), namedValues(args))
}

// ExecContext runs the statement.
func (st *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := st.check(args); err != nil {
		return nil, err
	}
	if err := st.find(ctx); err != nil {
		return nil, err
	}
	return st.c.run(ctx, st.s, args)
}

// QueryContext runs the statement and returns its rows.
func (st *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := st.check(args); err != nil {
		return nil, err
	}
	if blank(st.text) {
		return emptyRows(), nil
	}
	if err := st.find(ctx); err != nil {
		return nil, err
	}
	return st.c.query(ctx, st.s, args)
}

func (st *stmt) check(args []driver.NamedValue) error {
	if st.closed {
		return driver.ErrBadConn
	}
	if len(args) != st.params {
		return fmt.Errorf("sql: expected %d arguments, got %d", st.params, len(args))
	}
	return nil
}

// find compiles the statement again, if the connection that it was compiled on
// is not ours any more.
func (st *stmt) find(ctx context.Context) error {
	if st.s != nil {
		return nil
	}
	s, _, err := st.c.prepare(ctx, st.text)
	if err != nil {
		return err
	}
	s.retain()
	st.s = s
	return nil
}
