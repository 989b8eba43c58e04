package coopsqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"runtime"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// rows are mattn's, whose business types, times and columns are, with the
// cancellation and, for a RETURNING clause, the gate of this driver.
type rows struct {
	*sqlite3.SQLiteRows
	c       *conn
	ctx     context.Context
	token   *token
	s       *statement
	write   bool
	wrapped bool  // the driver has begun a transaction for them
	failed  error // of a step
	shared  bool  // s.reader is lent to these rows
	own     driver.Stmt
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
	s, err := c.findAndAdmit(ctx, asked)
	if err != nil {
		return nil, err
	}
	if s.pragmaBusy && s.params == 0 {
		s.letGo(asked)
		return c.queryBusyTimeout()
	}
	if err = c.chooseTriggers(s); err == nil {
		err = c.setMetadata(ctx)
	}
	r := &rows{c: c, ctx: ctx, s: s, write: !s.reads}
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
		s.letGo(asked)
		if r.write || c.inTx {
			c.sh.Refresh()
			c.settle(s, err)
		}
		return nil, err
	}
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
// ends with the rows: SQLite would commit it as soon as it is done.
func (r *rows) begin(args []driver.NamedValue) (err error) {
	c, s := r.c, r.s
	if r.write {
		c.sh.NewStatement()
	}
	if s.dml && c.plain && c.sh.Autocommit() {
		if err := c.begin(shim.BeginImmediate); err != nil {
			return err
		}
		c.implicit, c.inTx, c.checked = true, true, true
		r.wrapped = true
	}
	if err = c.askFirst(s); err == nil {
		r.SQLiteRows, err = r.first(args)
	}
	if err == nil && r.write {
		c.sh.Wrote()
		if !c.checked && c.inTx {
			if err = c.checkOnce(); err != nil {
				_ = r.SQLiteRows.Close()
				r.giveBack()
			}
		}
	}
	if err != nil && r.wrapped {
		c.sh.Refresh()
		err = c.endImplicit(s, err)
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

// first runs the first step on mattn's connection, with a context that cannot
// end: mattn's way to end a statement ends others with it.
//
// mattn's statement is kept with ours. (Its own cache would lose the error of a
// write that fails at its end, when it commits.) A PRAGMA's is not, since
// SQLite fixes some of their answers when they are prepared.
func (r *rows) first(args []driver.NamedValue) (_ *sqlite3.SQLiteRows, err error) {
	ctx := context.Background()
	c, s := r.c, r.s
	if s.writes && s.sealed {
		// It may have to be compiled, and names may have moved since it was judged.
		c.sh.Seal(s.onlyTemp)
		defer func() {
			if c.sh.Unseal() && err != nil {
				err = shim.ErrNamesMoved
			}
		}()
	}
	if s.stmt != nil && s.plainRead() { // only judged by
		s.stmt.Finalize()
		s.stmt = nil
	}
	statement := s.reader
	if statement == nil || s.readerBusy {
		if statement, err = c.source.PrepareContext(ctx, s.text); err != nil {
			return nil, err
		}
		if s.pragma || s.reader != nil {
			r.own = statement
		} else {
			s.reader = statement
		}
	}
	if r.own == nil {
		r.shared, s.readerBusy = true, true
	}
	inner, err := statement.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		r.giveBack()
		return nil, err
	}
	return inner.(*sqlite3.SQLiteRows), nil
}

// giveBack returns or closes mattn's statement.
func (r *rows) giveBack() {
	if r.shared {
		r.s.readerBusy, r.shared = false, false
	}
	if r.own != nil {
		_ = r.own.Close()
		r.own = nil
	}
}

// Next reads a row.
func (r *rows) Next(dest []driver.Value) error {
	c := r.c
	if r.token != nil {
		if r.token.fired.Load() {
			if err := r.token.ended(); err != nil {
				return err
			}
		}
	}
	if err := c.setMetadata(r.ctx); err != nil {
		return err
	}
	c.start(r.token)
	err := r.SQLiteRows.Next(dest)
	c.sh.Unwatch()
	if err == nil || err == io.EOF {
		return err
	}
	if e := (sqlite3.Error{}); asSQLite(err, &e) {
		r.failed = err
	}
	err = c.explain(r.ctx, err)
	if c.inTx {
		c.sh.Refresh()
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
	err := r.SQLiteRows.Close()
	if r.write {
		c.sh.Wrote()
	}
	if r.wrapped {
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
func (c *conn) queryBusyTimeout() (driver.Rows, error) {
	inner, err := c.source.QueryContext(context.Background(), "SELECT ? AS timeout",
		[]driver.NamedValue{{Ordinal: 1, Value: c.sh.BusyLimit()}})
	if err != nil {
		return nil, err
	}
	rows, ok := inner.(*sqlite3.SQLiteRows)
	if !ok {
		return nil, errors.New("coopsqlite: mattn's driver returned rows of an unknown type")
	}
	return rows, nil
}
