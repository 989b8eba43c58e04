package coopsqlite

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
	"runtime"
	"strings"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// rows are those of one statement. Their values have the types that mattn's
// driver would give them.
type rows struct {
	c       *conn
	ctx     context.Context
	token   *token
	s       *statement
	stmt    *shim.Stmt
	cursor  *shim.Cursor
	columns *shim.Columns
	write   bool
	failed  error // of a step
	ahead   int   // how many rows the next fetch may take
	most    int   // and any
	closed  bool
}

var (
	_ driver.Rows                           = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
)

// emptyRows is the result of a statement that has none. mattn's rows without a
// statement are just that.
func emptyRows() driver.Rows { return &sqlite3.SQLiteRows{} }

// query runs a statement whose rows are wanted, and lets go of it; the rows keep
// it.
func (c *conn) query(ctx context.Context, s *statement, args []driver.NamedValue) (driver.Rows, error) {
	if s.columns == 0 || s.transactional() {
		if _, err := c.run(ctx, s, args); err != nil {
			return nil, err
		}
		return emptyRows(), nil
	}
	for {
		rows, err := c.tryQuery(ctx, s, args)
		if err != shim.ErrNamesMoved {
			return rows, err
		}
	}
}

func (c *conn) tryQuery(ctx context.Context, asked *statement, args []driver.NamedValue) (driver.Rows, error) {
	fresh := c.fresh
	s, err := c.findAndAdmit(ctx, asked)
	if err != nil {
		return nil, err
	}
	if s.pragmaBusy && s.params == 0 {
		s.letGo(asked)
		return c.queryBusyTimeout(ctx)
	}
	if err = c.chooseTriggers(s); err == nil {
		err = c.setMetadata(ctx)
	}
	r := &rows{c: c, ctx: ctx, s: s, write: !s.reads}
	if err == nil {
		r.stmt, err = c.compiled(s, false)
	}
	if err == nil {
		r.token = c.watch(ctx)
		c.start(r.token)
		err = r.begin(args)
		c.sh.Unwatch()
	}
	if err != nil {
		if err == shim.ErrNamesMoved {
			err = c.judgeMoved(s)
		}
		err = c.explain(ctx, err)
		s.drop(r.stmt)
		s.letGo(asked)
		if r.write || c.inTx {
			c.settle(s, err)
		}
		return nil, err
	}
	r.readAhead(fresh)
	c.note(s)
	c.openRows++
	if r.write {
		c.openWrites++
	}
	if r.token != nil {
		r.token.users++
	}
	s.retain()
	s.letGo(asked)
	if c.inSession {
		c.live = append(c.live, r)
	}
	return r, nil
}

// begin takes the first step, with what the fence needs before and after it. On
// error it has left nothing open.
//
// Where no trigger asks, a write in autocommit gets a transaction around it, which
// ends with the last rows of a write: SQLite would commit it as soon as it is done.
func (r *rows) begin(args []driver.NamedValue) (err error) {
	c, s := r.c, r.s
	if s.dml && c.plain && c.sh.Autocommit() {
		if err := c.begin(shim.BeginImmediate); err != nil {
			return err
		}
		c.implicit, c.inTx, c.checked = true, true, true
		defer func() {
			if err != nil {
				err = c.endImplicit(s, err)
			}
		}()
	}
	if err = c.askFirst(s); err == nil {
		err = r.open(args)
	}
	if err == nil && r.write && !c.checked && c.inTx {
		if err = c.checkOnce(); err != nil {
			_ = c.sh.End(r.cursor)
			r.giveBack()
		}
	}
	return err
}

// endImplicit ends the transaction around a RETURNING, which ended with err,
// unless SQLite has done so, or a BEGIN of the user's has made it his.
func (c *conn) endImplicit(s *statement, err error) error {
	if !c.implicit {
		return err
	}
	if !c.sh.Autocommit() {
		err = c.unwrap(s, err)
	}
	c.implicit, c.inTx, c.checked = false, false, false
	return err
}

// open runs the first step.
func (r *rows) open(args []driver.NamedValue) error {
	c := r.c
	if n := len(c.cursors); n > 0 {
		r.cursor = c.cursors[n-1]
		c.cursors = c.cursors[:n-1]
	} else {
		r.cursor = shim.NewCursor()
	}
	if err := c.sh.Open(r.cursor, r.stmt, &c.args, args); err != nil {
		r.giveBack()
		return err
	}
	r.columns = r.cursor.Columns()
	return nil
}

const (
	// mostAhead is how many rows are read in one crossing into C, at most, and
	// mostValues how many values.
	mostAhead  = 64
	mostValues = 1024
)

// readAhead decides how far the rows may be ahead of who reads them. Each crossing
// takes twice as many as the last, so that who stops early has not paid for more
// than he has got.
//
// What is written on the same connection while rows are open, they may or may not
// show (https://sqlite.org/isolation.html). In practice they do where each row is
// read when it is asked for, so that is done wherever something may be written: in
// a transaction, unless it is a ReadOnly one, and on a sql.Conn that has been used
// before. It is done, too, where rows may run functions of the user's.
func (r *rows) readAhead(fresh bool) {
	c, s := r.c, r.s
	r.ahead, r.most = 1, 1
	undisturbed := fresh && !c.inTx || c.tx != nil && c.tx.readOnly
	if s.reads && !s.writes && !s.pragma && !s.explains && undisturbed && !c.handedOut {
		r.most = max(1, min(mostAhead, mostValues/max(1, len(r.columns.Names))))
	}
}

// giveBack returns the cursor and what was compiled for these rows alone.
func (r *rows) giveBack() {
	r.c.cursors = append(r.c.cursors, r.cursor)
	r.cursor = nil
	r.s.drop(r.stmt)
}

// Columns are the names.
func (r *rows) Columns() []string { return r.columns.Names }

// ColumnTypeDatabaseTypeName is the type as it was declared.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string { return r.columns.Declared[i] }

// ColumnTypeNullable is always true: SQLite does not tell.
func (r *rows) ColumnTypeNullable(int) (nullable, ok bool) { return true, true }

// ColumnTypeScanType is the type that mattn's driver proposes for the declared one.
func (r *rows) ColumnTypeScanType(i int) reflect.Type { return scanType(r.columns.Declared[i]) }

// DeclTypes are the declared types in lower case, as mattn's rows tell them.
func (r *rows) DeclTypes() []string {
	types := make([]string, len(r.columns.Declared))
	for i, declared := range r.columns.Declared {
		types[i] = strings.ToLower(declared)
	}
	return types
}

// Next reads a row.
func (r *rows) Next(dest []driver.Value) error {
	c := r.c
	if r.token != nil && r.token.fired.Load() {
		if err := r.token.ended(); err != nil {
			return err
		}
	}
	if r.closed {
		return io.EOF
	}
	if !r.cursor.Ready() {
		if err := c.setMetadata(r.ctx); err != nil {
			return err
		}
		c.start(r.token)
		c.sh.Fetch(r.cursor, r.ahead)
		c.sh.Unwatch()
		r.ahead = min(2*r.ahead, r.most)
	}
	err := r.cursor.Next(dest, c.cfg.loc)
	if err == nil || err == io.EOF {
		return err
	}
	if e := (sqlite3.Error{}); asSQLite(err, &e) {
		r.failed = err
	}
	err = c.explain(r.ctx, err)
	if c.inTx {
		c.settle(nil, err)
	}
	return err
}

// Close ends the rows. Those of a write in autocommit commit here; the error is
// the commit's.
func (r *rows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	c := r.c
	c.start(r.token)
	err := c.sh.End(r.cursor)
	if c.implicit && r.write && c.openWrites == 1 {
		err = c.endImplicit(r.s, first(err, r.failed))
		if r.failed != nil {
			err = nil // which has been said
		}
	}
	err = c.explain(r.ctx, err)
	c.sh.Unwatch()
	r.giveBack()
	c.openRows--
	if r.token != nil {
		c.unwatch(r.token)
		r.token = nil
	}
	r.s.release()
	if r.write {
		c.openWrites--
		c.settle(r.s, err)
	}
	if r.s.pragma && c.authorizerLost {
		c.sh.AdoptBusyTimeout()
	}
	if !c.gated && c.gate.crowded.Load() {
		// A goroutine that reads all the time would keep its processor for 10 ms,
		// and of those who wait in line each for the one before.
		runtime.Gosched()
	}
	return err
}

// queryBusyTimeout answers PRAGMA busy_timeout: SQLite has forgotten the value,
// because the handler is ours.
func (c *conn) queryBusyTimeout(ctx context.Context) (driver.Rows, error) {
	s, _, err := c.prepare(ctx, "SELECT ? AS timeout")
	if err != nil {
		return nil, err
	}
	return c.query(ctx, s, []driver.NamedValue{{Ordinal: 1, Value: c.sh.BusyLimit()}})
}
