package coopsqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// Options are what a DSN cannot say. The zero value is fine.
type Options struct {
	Extensions  []string                        // see [Driver]
	ConnectHook func(*sqlite3.SQLiteConn) error // see [Driver]
	Logger      *slog.Logger                    // see [Driver]
}

// Connector opens the connections of one pool and holds its share of the
// ownership. Use it with sql.OpenDB; the pool's Close closes it.
type Connector struct {
	cfg     *config
	options Options
	own     *ownership
	store   *Store
	driver  *Driver
	actor   *metadata // of _coop_actor, or nil
	wrapped bool      // by something that may not pass Close on

	mu     sync.Mutex
	parked []*physical // last in, first out
	closed bool
	trim   *time.Timer
	round  int // of trimming

	hot       *physical // see hot.go
	hotTaken  bool
	hotFailed time.Time
}

var _ driver.Connector = (*Connector)(nil)

const (
	// maxParked bounds the physical connections that are kept when
	// database/sql drops them, which by default it does with all but two.
	maxParked = 64
	// trimEvery is the pause between two rounds of trimming, which close what
	// nobody has wanted for a whole one, but for alwaysParks, as many as
	// database/sql keeps by default. (Rounds, because to read the clock is dear
	// for what is done with every use of a connection.)
	trimEvery   = 20 * time.Second
	alwaysParks = 2
	// openRetry is the pause before a new try when another process is just
	// changing the journal mode.
	openRetry = 2 * time.Millisecond
	// openWait is how long one try to open waits for a lock. Before our busy
	// handler is in place nothing else can end that wait.
	openWait = 5 * time.Millisecond
)

// NewConnector takes the ownership that the DSN asks for and opens a first
// connection, so that a store that cannot be used is reported here. Options
// may be nil.
func NewConnector(dsn string, options *Options) (*Connector, error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if options == nil {
		options = &Options{}
	}
	return newConnector(context.Background(), cfg, options, false)
}

func newConnector(ctx context.Context, cfg *config, options *Options, wrapped bool) (*Connector, error) {
	c := &Connector{cfg: cfg, options: *options, wrapped: wrapped}
	if c.options.Logger == nil {
		c.options.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.actor != "" {
		c.actor = newMetadata([]pair{{"actor", cfg.actor}})
	}
	own, err := join(ctx, cfg, c.options.Logger)
	if err != nil {
		return nil, err
	}
	c.own = own
	c.store = &Store{own: own, connector: c}
	c.driver = &Driver{options.Extensions, options.ConnectHook, options.Logger, c.store}
	if cfg.path == "" && cfg.mode == modeMemory || cfg.mode == modeReader {
		// Either opened only to learn the driver, as instrumenting wrappers do,
		// or a reader, which takes nothing: there is nothing to report yet.
		return c, nil
	}
	first, err := c.takeOver(ctx)
	if err != nil {
		own.leave(true)
		return nil, err
	}
	c.parked = append(c.parked, first.physical)
	own.watch.join(c)
	return c, nil
}

// takeOver opens the first connection. The first pool of an ownership takes
// the store over with it; others wait for that.
func (c *Connector) takeOver(ctx context.Context) (*conn, error) {
	c.own.opening.Lock()
	defer c.own.opening.Unlock()
	first, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := first.sh.Verify(); err != nil {
		return nil, errors.Join(err, first.destroy())
	}
	if !c.own.taken {
		c.own.taken = true
		c.own.file, _ = os.Stat(c.own.path)
		if err := c.own.announce(); err != nil {
			return nil, errors.Join(err, first.destroy())
		}
	}
	return first, nil
}

// Driver returns the driver, bound to this connector's store.
func (c *Connector) Driver() driver.Driver { return c.driver }

// Store returns the store behind the pool.
func (c *Connector) Store() *Store { return c.store }

// Connect returns a parked connection or opens a new one.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dc, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return dc, nil
}

func (c *Connector) connect(ctx context.Context) (*conn, error) {
	p, err := c.take(ctx)
	if err != nil {
		return nil, err
	}
	return newConn(c, p), nil
}

// take returns the physical connection that was parked last, or a new one.
func (c *Connector) take(ctx context.Context) (*physical, error) {
	last, err := c.takeParked()
	if last != nil || err != nil {
		return last, err
	}
	dc, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return dc.physical, nil
}

// takeParked returns the physical connection that was parked last, or nil.
func (c *Connector) takeParked() (*physical, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%w: %s: the sql.DB was closed", ErrStopped, c.own.name())
	}
	n := len(c.parked)
	if n == 0 {
		return nil, nil
	}
	last := c.parked[n-1]
	c.parked[n-1] = nil
	c.parked = c.parked[:n-1]
	return last, nil
}

// park keeps a clean connection for the next Connect, if there is room.
func (c *Connector) park(p *physical) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.parked) >= maxParked {
		return false
	}
	p.parkedIn = c.round
	c.parked = append(c.parked, p)
	c.trimLater()
	return true
}

func (c *Connector) trimLater() {
	if c.trim == nil {
		c.trim = time.AfterFunc(trimEvery, c.trimParked)
	}
}

// trimParked closes what nobody has wanted for a while; the oldest lie first.
func (c *Connector) trimParked() {
	c.mu.Lock()
	n := 0
	for n < len(c.parked)-alwaysParks && c.parked[n].parkedIn < c.round {
		n++
	}
	old := append([]*physical(nil), c.parked[:n]...)
	c.parked = append(c.parked[:0], c.parked[n:]...)
	if c.hot != nil && c.hot.parkedIn < c.round {
		old = append(old, c.hot)
		c.hot = nil
	}
	c.round++
	c.trim = nil
	if (len(c.parked) > alwaysParks || c.hot != nil) && !c.closed {
		c.trimLater()
	}
	c.mu.Unlock()
	for _, p := range old {
		_ = p.destroy()
	}
}

// Close withdraws the permit and gives the lock back, if no other pool shares
// the ownership. Connections that are still in use can read; their writes are
// refused with [ErrFenced]. Closing again does nothing.
func (c *Connector) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	parked := c.parked
	if c.hot != nil {
		parked = append(parked, c.hot)
	}
	c.parked, c.hot = nil, nil
	if c.trim != nil {
		c.trim.Stop()
	}
	c.mu.Unlock()
	c.own.watch.leave(c)
	c.store.close()
	var errs []error
	for _, p := range parked {
		errs = append(errs, p.destroy())
	}
	c.own.leave(false)
	return errors.Join(errs...)
}

// open opens a physical connection through mattn's driver. That needs locks:
// to read the schema, to set the journal mode (which answers SQLITE_BUSY at
// once when another process does the same). So it is tried again until ctx
// ends, but no longer than the busy timeout.
func (c *Connector) open(ctx context.Context) (*conn, error) {
	start := time.Now()
	for {
		dc, hooked, err := c.tryOpen(ctx)
		if err == nil {
			return dc, nil
		}
		if hooked || !hasCode(err, sqlite3.ErrBusy) {
			return nil, c.describe(err)
		}
		waited := time.Since(start)
		if ctx.Err() != nil || waited >= c.cfg.busyTimeout {
			c.own.counters.busy.Add(1)
			busy := c.own.gate.busy()
			busy.Path, busy.Waited, busy.cause, busy.sqlite = c.own.name(), waited, ctx.Err(), err
			return nil, busy
		}
		select {
		case <-ctx.Done():
		case <-time.After(openRetry):
		}
	}
}

// tryOpen reports whether mattn's part was done when it failed.
func (c *Connector) tryOpen(ctx context.Context) (dc *conn, hooked bool, err error) {
	d := &sqlite3.SQLiteDriver{
		Extensions: c.options.Extensions,
		ConnectHook: func(source *sqlite3.SQLiteConn) error {
			hooked = true
			p, err := newPhysical(c, source)
			if err != nil {
				return err
			}
			dc = newConn(c, p)
			if err = dc.setUp(ctx); err != nil {
				dc.finalize() // mattn's driver closes the connection next
			}
			return err
		},
	}
	if err := c.own.lookAtFile(); err != nil {
		return nil, false, err
	}
	dsn := c.cfg.dsn
	if c.own.file != nil {
		dsn = c.cfg.existing
	}
	_, err = d.Open(dsn)
	lost := c.own.lookAtFile()
	switch {
	case err == nil && lost == nil:
		c.own.counters.opened.Add(1)
		dc.unwatchLast()
		return dc, true, nil
	case err == nil:
		_ = dc.destroy()
	case dc != nil:
		dc.unwatchLast()
		dc.free()
	}
	return nil, hooked, first(lost, err)
}

// setUp does on a new connection what must come before its first user.
func (dc *conn) setUp(ctx context.Context) error {
	c := dc.connector
	dc.start(dc.watch(ctx))
	defer dc.sh.Unwatch()
	if !c.own.taken && c.own.mode != modeReader {
		if err := dc.takeOver(); err != nil {
			return err
		}
	}
	if c.options.ConnectHook == nil {
		return nil
	}
	if err := c.options.ConnectHook(dc.source); err != nil {
		return err
	}
	dc.sh.AdoptBusyTimeout()
	dc.lookForAuthorizer()
	dc.lookForAttached()
	return dc.repairIfChanged(ctx) // the hook may have run DDL
}

// describe names the store in an error of SQLite that does not.
func (c *Connector) describe(err error) error {
	if c.own.path == "" {
		return err
	}
	if hasCode(err, sqlite3.ErrNotADB) {
		return fmt.Errorf("coopsqlite: store %s is not an SQLite database (or an encrypted one): %w", c.own.path, err)
	}
	return shim.Annotate(err, func(message string) string {
		hint := ""
		if hasCode(err, sqlite3.ErrReadonly) {
			hint = " (this user may not write it; open it with mode=ro to read)"
		}
		return "coopsqlite: store " + c.own.path + ": " + message + hint
	})
}
