package coopsqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// session is a connection on which the driver itself opens transactions, for
// Write and Bulk. It is reached through database/sql, whose rows and statements
// the caller gets; what the driver does beside that happens under the same lock.
type session struct {
	sqlConn *sql.Conn
	conn    *conn
	broken  bool
	// leaked: a sql.Row was never scanned. It keeps a lock in the sql.Conn for
	// ever, so that Close would never return.
	leaked bool
}

// inside is a connector for the store's own pool: the same connections, without
// a share in the ownership.
type inside struct{ *Connector }

// Close leaves the ownership to the pool that has it.
func (inside) Close() error { return nil }

// pool returns the store's own pool, for the sessions of Write and Bulk.
func (s *Store) pool() (*sql.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // nobody would close it
		return nil, s.usable()
	}
	if s.db == nil {
		s.db = sql.OpenDB(inside{s.connector})
	}
	return s.db, nil
}

func (s *Store) newSession(ctx context.Context) (*session, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	pool, err := s.pool()
	if err != nil {
		return nil, err
	}
	sqlConn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	out := &session{sqlConn: sqlConn}
	_ = sqlConn.Raw(func(driverConn any) error {
		out.conn = driverConn.(*conn)
		return nil
	})
	return out, nil
}

// do runs fn while nothing else uses the connection: database/sql may be
// closing rows whose context has ended.
func (s *session) do(fn func(c *conn) error) error {
	err := s.sqlConn.Raw(func(any) error { return fn(s.conn) })
	if errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) {
		s.broken = true
	}
	return err
}

// begin takes the gate and opens a write transaction.
func (s *session) begin(ctx context.Context) error {
	return s.do(func(c *conn) error {
		if err := first(c.own.writable(), c.attach(ctx)); err != nil {
			return err
		}
		if err := c.enter(ctx); err != nil {
			return err
		}
		c.start(c.watch(ctx))
		err := c.begin(shim.BeginImmediate)
		if err == nil {
			err = c.keepPlain()
		}
		c.sh.Unwatch()
		c.settle(nil, err)
		c.aborted = nil
		c.checked = err == nil
		c.inSession = err == nil
		return c.explain(ctx, err)
	})
}

// commit ends the transaction; on error it has been rolled back.
func (s *session) commit(ctx context.Context) error {
	err := s.do(func(c *conn) error {
		err := c.commit()
		if err == nil {
			c.inTx = false
			c.committed()
		}
		return c.explain(ctx, err)
	})
	s.end()
	return err
}

func (s *session) rollback() { s.end() }

// end rolls back what is still open and frees the connection for the next.
func (s *session) end() {
	_ = s.do(func(c *conn) error {
		c.rollback()
		c.inSession, c.aborted, c.txMeta, c.checked = false, nil, nil, false
		if c.token != nil {
			c.unwatch(c.token)
			c.token = nil
		}
		return nil
	})
}

// control runs a savepoint statement of ours.
func (s *session) control(ctx context.Context, kind shim.Kind) error {
	return s.do(func(c *conn) error {
		if kind == shim.RollbackTo {
			c.forget()
		}
		return c.explain(ctx, c.sh.Control(kind))
	})
}

// aborted is why SQLite rolled the transaction back, if it did.
func (s *session) aborted() error {
	var cause error
	if err := s.do(func(c *conn) error {
		cause = c.aborted
		if cause == nil && !c.inTx {
			cause = errors.New("the transaction is over")
		}
		return nil
	}); err != nil {
		return err
	}
	return cause
}

// close gives the connection back to the store's own pool, or ends it if that
// is not possible any more.
func (s *session) close() {
	if !s.leaked {
		_ = s.sqlConn.Close()
		return
	}
	_ = s.do(func(c *conn) error { return c.destroy() })
}

// body is what a function of Write or Bulk runs its statements on.
type body struct {
	session *session
	ctx     context.Context
	// company: others have work in the same transaction. An interrupted
	// statement would roll theirs back too, so none is interrupted.
	company bool
	over    bool
	stmts   []*sql.Stmt
	rows    []*sql.Rows
}

// enter lets a function in.
func (s *session) enter(ctx context.Context, company bool) *body {
	b := &body{session: s, ctx: ctx, company: company}
	_ = s.do(func(c *conn) error {
		c.txMeta = metadataOf(ctx)
		return nil
	})
	return b
}

// leave closes what the function has left open, and reports if SQLite has
// rolled the transaction back meanwhile.
func (b *body) leave() error {
	b.over = true
	for _, rows := range b.rows {
		_ = rows.Close()
	}
	for _, st := range b.stmts {
		_ = st.Close()
	}
	return b.session.do(func(c *conn) error {
		for _, r := range c.live {
			b.session.leaked = b.session.leaked || !r.closed
			_ = r.Close()
		}
		clear(c.live)
		c.live = c.live[:0]
		c.txMeta = nil
		if c.aborted != nil {
			return &abortedError{c.aborted}
		}
		return nil
	})
}

// Context returns the context of the call, marked as inside the transaction.
func (b *body) Context() context.Context { return b.ctx }

// guard returns the context a statement may run with.
func (b *body) guard(ctx context.Context) (context.Context, error) {
	if b.over {
		return nil, sql.ErrTxDone
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	if b.company {
		return context.WithoutCancel(ctx), nil
	}
	return ctx, nil
}

func (b *body) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, err := b.guard(ctx)
	if err != nil {
		return nil, err
	}
	return b.session.sqlConn.ExecContext(ctx, query, args...)
}

func (b *body) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, err := b.guard(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := b.session.sqlConn.QueryContext(ctx, query, args...)
	if err == nil {
		b.rows = append(b.rows, rows)
	}
	return rows, err
}

func (b *body) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	guarded, err := b.guard(ctx)
	if err != nil {
		// Only database/sql can make a Row, so let it fail by its context.
		failed, cancel := context.WithCancel(context.WithoutCancel(b.ctx))
		cancel()
		guarded = failed
	}
	return b.session.sqlConn.QueryRowContext(guarded, query, args...)
}

func (b *body) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	ctx, err := b.guard(ctx)
	if err != nil {
		return nil, err
	}
	st, err := b.session.sqlConn.PrepareContext(ctx, query)
	if err == nil {
		b.stmts = append(b.stmts, st)
	}
	return st, err
}
