package coopsqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// conn is one connection. database/sql lets one goroutine at a time use it and
// the statements and rows that belong to it.
type conn struct {
	*physical               // what is used now; nil between two uses, after a write
	home      *physical     // its own, while it writes on its pool's hot one
	wrote     bool          // on its own, since it had one last
	counters  shim.Counters // of that, while there is no physical connection

	connector *Connector
	cfg       *config
	own       *ownership
	args      shim.Args
	prepared  map[*stmt]struct{} // the open ones

	token  *token    // of the context used last
	txMeta *metadata // of the context that began the transaction

	fresh      bool // nothing has run since it was taken from the pool
	tx         *tx  // begun by BeginTx, until it ends
	inTx       bool
	implicit   bool  // the driver has begun it, around a RETURNING whose rows are open
	moved      bool  // a statement in it was not only about rows: the schema may be another
	gated      bool  // the gate is ours
	checked    bool  // the fence was asked in this transaction
	aborted    error // why SQLite rolled back a transaction begun by a statement
	grant      grant
	turn       func() // gives back the turn among the processes of a shared group
	openRows   int    // rows that are open,
	openWrites int    // and those of RETURNING among them

	// Set by cover, recorded when the transaction has committed.
	pending         bool
	pendingVersion  int64
	pendingTriggers bool
	pendingReplaces bool
	pendingOwner    bool
	repairs         int             // statements that completing the fences has taken
	lifted          map[string]bool // tables whose fences Bulk has taken away

	inSession bool    // a transaction of Write or Bulk is open
	live      []*rows // that are open in it

	alone bool // made by Driver.Open: closes its connector
}

var (
	_ driver.Conn               = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
)

func newConn(c *Connector, p *physical) *conn {
	p.user = nil
	return &conn{physical: p, connector: c, cfg: c.cfg, own: c.own, fresh: true, prepared: make(map[*stmt]struct{})}
}

// Ping answers whether the connection can be used.
func (c *conn) Ping(ctx context.Context) error {
	if found, ok := ctx.Value(probeKey{}).(**conn); ok {
		*found = c
		return nil
	}
	if err := c.attach(ctx); err != nil {
		return err
	}
	return c.source.Ping(ctx)
}

// Exec is the form without a context that mattn's connection has too.
func (c *conn) Exec(query string, args []driver.Value) (driver.Result, error) {
	return c.ExecContext(context.Background(), query, namedValues(args))
}

// Query is the form without a context that mattn's connection has too.
func (c *conn) Query(query string, args []driver.Value) (driver.Rows, error) {
	return c.QueryContext(context.Background(), query, namedValues(args))
}

// Prepare is the form without a context.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// Begin is the form without a context.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func namedValues(args []driver.Value) []driver.NamedValue {
	named := make([]driver.NamedValue, len(args))
	for i, v := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return named
}

// ExecContext runs all statements of query and returns the last one's result.
// When one fails, the error says which, and those before it have been run.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.attach(ctx); err != nil {
		return nil, err
	}
	var res driver.Result = result{}
	start := 0
	for n := 1; ; n++ {
		s, rest, err := c.prepare(ctx, query)
		if err == nil && rest == "" {
			err = surplus(args, start, s)
		}
		switch {
		case s == nil:
		case err != nil:
			s.discard()
		default:
			res, err = c.execNext(ctx, s, args, &start)
		}
		if err != nil {
			return nil, whichStatement(err, n, rest != "")
		}
		if rest == "" {
			return res, nil
		}
		query = rest
	}
}

// execNext runs one statement of several that share their arguments, and lets go
// of it.
func (c *conn) execNext(ctx context.Context, s *statement, args []driver.NamedValue, start *int) (driver.Result, error) {
	if err := s.enough(args, *start); err != nil {
		s.discard()
		return nil, err
	}
	own := s.arguments(args, *start)
	*start += s.params
	return c.run(ctx, s, own)
}

// whichStatement adds the statement's place to SQLite's error in a text of
// several. It stays a plain sqlite3.Error.
func whichStatement(err error, n int, more bool) error {
	if n == 1 && !more {
		return err
	}
	return shim.Annotate(err, func(message string) string {
		return fmt.Sprintf("%s (statement %d of the text; those before it were run, it and those after it were not)", message, n)
	})
}

// surplus refuses arguments that no statement has a parameter for, before the
// last one runs. Named ones may be more than are used, as in mattn's driver.
func surplus(args []driver.NamedValue, used int, last *statement) error {
	if last != nil {
		used += last.params
	}
	for used < len(args) && args[used].Name != "" {
		used++
	}
	if used >= len(args) {
		return nil
	}
	return fmt.Errorf("sql: expected %d arguments, got %d", used, len(args))
}

// QueryContext runs all statements of query and returns the rows of the last.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.attach(ctx); err != nil {
		return nil, err
	}
	start := 0
	for n := 1; ; n++ {
		s, rest, err := c.prepare(ctx, query)
		var rows driver.Rows
		switch {
		case err != nil || s == nil:
		case rest != "":
			_, err = c.execNext(ctx, s, args, &start)
		default:
			if err = s.enough(args, start); err == nil {
				err = surplus(args, start, s)
			}
			if err != nil {
				s.discard()
			} else {
				rows, err = c.query(ctx, s, s.arguments(args, start))
			}
		}
		if err != nil {
			return nil, whichStatement(err, n, rest != "")
		}
		switch {
		case rest != "":
			query = rest
		case rows == nil: // white space and comments
			return emptyRows(), nil
		default:
			return rows, nil
		}
	}
}

// PrepareContext prepares one statement; a text with more is refused, since
// all but the first would silently be left out.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.attach(ctx); err != nil {
		return nil, err
	}
	s, rest, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	if rest != "" {
		if s != nil {
			s.discard()
		}
		return nil, errors.New("coopsqlite: Prepare takes one statement, and this text has more: run it with Exec, or prepare each")
	}
	if s == nil {
		s = &statement{text: query, class: class{reads: true}}
	}
	s.retain()
	if s.pragma {
		// SQLite fixes some of their answers when they are compiled, and lets them
		// run once: the first time it would answer for now.
		s.finalize()
	}
	st := &stmt{c: c, s: s, text: s.text, params: s.params, writes: s.writes}
	c.prepared[st] = struct{}{}
	return st, nil
}

// ResetSession is called before the connection is used again.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.inTx || c.gated {
		return driver.ErrBadConn
	}
	c.fresh = true
	if c.physical == nil {
		// To open one is left to the first use, which can say what went wrong.
		if p, _ := c.connector.takeParked(); p != nil {
			c.comeBack(p)
		}
	}
	return nil
}

// IsValid is called when the connection goes back to the pool. One that comes
// back in a transaction that was begun by a statement is rolled back and
// dropped: whoever began it does not know what became of it.
func (c *conn) IsValid() bool {
	if c.physical == nil {
		return true
	}
	c.resync()
	c.aborted = nil
	c.unwatchLast()
	if c.inTx && c.tx == nil {
		c.rollback()
		c.dirty = true
		return false
	}
	if c.physical == c.gate.warm.Load() {
		c.detach()
	}
	return true
}

// detach parks the physical connection while nobody uses this one: whoever
// writes next, also in another pool on the same store, then does it where the
// pages are that were written last.
func (c *conn) detach() {
	if c.physical == nil || !c.canPark() {
		return
	}
	if c.wrote {
		c.counters, c.wrote = c.sh.Counters(), false
	}
	c.user = c
	if c.connector.park(c.physical) {
		c.physical = nil
	}
}

// attach ends what detach began.
func (c *conn) attach(ctx context.Context) error {
	if c.physical != nil {
		return nil
	}
	p, err := c.connector.take(ctx)
	if err == nil {
		c.comeBack(p)
	}
	return err
}

// comeBack makes p the connection's own, where it goes on.
func (c *conn) comeBack(p *physical) {
	if p.user != c {
		p.sh.Resume(c.counters)
	}
	p.user = nil
	c.physical = p
}

// canPark reports whether nothing ties the two together.
func (c *conn) canPark() bool {
	return c.clean() && !c.inTx && !c.gated && !c.alone && !c.own.private() && c.openRows == 0 && len(c.prepared) == 0
}

// resync learns what was done on mattn's connection directly.
func (c *conn) resync() {
	if !c.touched {
		return
	}
	c.touched = false
	c.sh.AdoptBusyTimeout()
	c.lookForAuthorizer()
	c.lookForAttached()
	c.sh.Refresh()
	c.settle(nil, nil)
	c.own.commits.fire() // for all that can be known
}

// Close parks the connection with its connector, or ends it.
func (c *conn) Close() error {
	if c.physical == nil {
		if c.connector.wrapped && closedWithPool() {
			return c.connector.Close()
		}
		return nil
	}
	if c.tx != nil || c.inTx || c.gated {
		c.rollback()
		c.dirty = true
	}
	c.unwatchLast()
	if c.connector.wrapped && closedWithPool() {
		return first(c.destroy(), c.connector.Close())
	}
	if c.canPark() && c.connector.park(c.physical) {
		return nil
	}
	err := c.destroy()
	if c.alone {
		err = first(err, c.connector.Close())
	}
	return err
}

// destroy ends the connection. database/sql does not know of all statements that
// are still open: not of those prepared on a sql.Conn.
func (c *conn) destroy() error {
	for st := range c.prepared {
		_ = st.Close()
	}
	c.unwatchLast()
	return c.physical.destroy()
}

// unwatchLast lets go of the context that was used last.
func (c *conn) unwatchLast() {
	if c.token != nil {
		c.unwatch(c.token)
		c.token = nil
	}
}

// enter takes the gate for a write, unless the store was drained.
func (c *conn) enter(ctx context.Context) error {
	if c.gated || c.own.mode == modeReader {
		return nil
	}
	if err := c.own.admitsNew(); err != nil {
		return err
	}
	if err := c.takeGate(ctx); err != nil {
		return err
	}
	if err := c.own.admitsNew(); err != nil { // Drain waits for who comes before it
		c.leave()
		return err
	}
	return nil
}

// takeGate takes the gate, and the turn in a shared group. Inside a transaction
// that has already read, it does not wait: SQLite would not either, since
// whoever it waits for may be waiting for that read to end
// (https://sqlite.org/c3ref/busy_handler.html).
func (c *conn) takeGate(ctx context.Context) error {
	c.grant.note()
	limit := time.Duration(c.sh.BusyLimit()) * time.Millisecond
	if c.reading() {
		limit = 0
	}
	if limit == 0 {
		if !c.gate.tryAcquire(&c.grant) {
			return c.busy(c.gate.busy())
		}
	} else if err := c.gate.acquire(ctx, &c.grant, limit, hint.IsUrgent(ctx)); err != nil {
		var busy *BusyError
		if errors.As(err, &busy) {
			return c.busy(busy)
		}
		return err
	}
	c.gated = true
	c.own.counters.transactions.Add(1)
	c.borrow()
	if c.own.mode == modeShared {
		c.turn = c.own.lock.TakeTurn(ctx, min(limit-c.grant.waited, turnLimit))
		c.grant.waited += time.Since(c.grant.since)
		if !c.cov.persisted.Load() {
			if _, err := c.adoptFirstWriter(); err != nil {
				c.leave()
				return err
			}
		}
	}
	return nil
}

// reading reports whether a snapshot of main is open on the connection.
func (c *conn) reading() bool {
	if !c.inTx && c.openRows == 0 {
		return false
	}
	return c.sh.TxnState() != shim.TxnNone
}

// turnLimit is how long a writer of a shared group waits for its turn before
// it leaves the matter to SQLite.
const turnLimit = time.Second

func (c *conn) busy(e *BusyError) error {
	e.Path = c.own.name()
	c.own.counters.busy.Add(1)
	return e
}

// leave passes the gate on.
func (c *conn) leave() {
	if !c.gated {
		return
	}
	if c.turn != nil {
		c.turn()
		c.turn = nil
	}
	c.giveBack()
	c.gated = false
	if c.gate.release() {
		if c.own.lock != nil && !c.alone {
			c.connector.openHot()
		}
		// Whoever holds the gate now may be waiting for this processor, and all
		// the others for him. What is left to do here concerns nobody.
		runtime.Gosched()
	}
}
