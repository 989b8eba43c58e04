package leases

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

const (
	defaultMaxTTL = 24 * time.Hour
	defaultMargin = 10 * time.Millisecond
	maxNameBytes  = 255
	// releaseTimeout bounds a release, which goes on after its caller's
	// context has ended.
	releaseTimeout = 5 * time.Second
)

// Options of a Manager. The zero value is a Manager on SQLite with the
// defaults named below.
type Options struct {
	Dialect Dialect
	// Owner is who holds the leases of this Manager, as others read it: 1 to
	// 255 bytes of UTF-8 without NUL. Default: host:pid.
	Owner string
	// MaxTTL is the longest ttl that may be asked for. Default: 24 hours.
	MaxTTL time.Duration
	// MaxLifetime is how long one grant may last with all its renewals. Zero:
	// without limit.
	MaxLifetime time.Duration
	// Margin is how long before the stored expiry a holder considers its
	// lease lost, so that what it began last has ended by then. Default: 10
	// ms; negative: none.
	Margin time.Duration
	// OpTimeout is how long an operation may wait for the store. Default: 10
	// seconds.
	OpTimeout time.Duration
	// Clock is for tests. Nil: the real one.
	Clock Clock
	// Logger hears of losses and of renewals that fail. Nil: silence.
	Logger *slog.Logger
	// OnEvent is called for every event, on the goroutine it happens on: it
	// must return soon and must not call the Manager.
	OnEvent func(Event)
	// Table is the table's name, or schema.table. Default: coop_leases.
	Table string
}

// Info is a lease as the table has it. The times are the store's clock's.
type Info struct {
	Name  string
	Token string // random, 128 bits; of this grant alone
	Owner string
	// Epoch is the fencing token: each grant of the name has a greater one
	// than all before it.
	Epoch                      int64
	Acquired, Renewed, Expires time.Time
}

// Manager grants the leases of one table. It is safe for concurrent use; a
// process needs one per table.
type Manager struct {
	store *sqltx.Store
	table table
	clock sqltx.LocalClock
	opts  Options
	log   *slog.Logger

	mu     sync.Mutex
	lines  map[lineKey]*line
	closed chan struct{} // closed by Close
	bodies sync.WaitGroup
}

// New makes a Manager on db and creates its tables where they are missing.
// The Manager does not close db.
func New(db *sql.DB, o *Options) (*Manager, error) {
	opts, err := withDefaults(o)
	if err != nil {
		return nil, err
	}
	t, err := newTable(opts.Dialect, opts.Table)
	if err != nil {
		return nil, err
	}
	store, err := sqltx.New(db, opts.Dialect, opts.Clock)
	if err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), opts.OpTimeout)
	defer cancel()
	if err := store.Ensure(ctx, t.ddl); err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	return &Manager{
		store: store, table: t, clock: sqltx.NewLocalClock(opts.Clock), opts: opts, log: opts.Logger,
		lines: map[lineKey]*line{}, closed: make(chan struct{}),
	}, nil
}

func withDefaults(o *Options) (Options, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Owner == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		opts.Owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if err := checkName("Options.Owner", opts.Owner); err != nil {
		return opts, err
	}
	if opts.MaxTTL < 0 || opts.MaxLifetime < 0 || opts.OpTimeout < 0 {
		return opts, fmt.Errorf("%w: a negative duration in Options", ErrBounds)
	}
	opts.MaxTTL = cmp.Or(opts.MaxTTL, defaultMaxTTL)
	opts.OpTimeout = cmp.Or(opts.OpTimeout, sqltx.OpTimeout)
	opts.Margin = max(cmp.Or(opts.Margin, defaultMargin), 0)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts, nil
}

// Close ends the waiting of Acquire, and the contexts of the bodies of With
// and Elect, with ErrClosed as the cause; it waits for the bodies, whose
// leases are released, so it must not be called from one. Leases from Acquire
// remain their callers'. Further calls do nothing.
func (m *Manager) Close() error {
	m.mu.Lock()
	if !m.isClosed() {
		close(m.closed)
	}
	m.mu.Unlock()
	m.bodies.Wait()
	return nil
}

func (m *Manager) isClosed() bool {
	select {
	case <-m.closed:
		return true
	default:
		return false
	}
}

// ready reports why no operation may start with ctx, if so.
func (m *Manager) ready(ctx context.Context) error {
	if m.store.Inside(ctx) {
		return ErrInsideTx
	}
	return ctx.Err()
}

func checkName(what, name string) error {
	switch {
	case name == "" || len(name) > maxNameBytes:
		return fmt.Errorf("%w: %s has %d bytes, want 1 to %d", ErrBounds, what, len(name), maxNameBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s %q is not UTF-8", ErrBounds, what, name)
	}
	for i := range len(name) {
		if name[i] == 0 {
			return fmt.Errorf("%w: %s %q contains NUL", ErrBounds, what, name)
		}
	}
	return nil
}

// checkTTL checks a ttl that must give its holder time to use.
func (m *Manager) checkTTL(ttl time.Duration) error {
	switch {
	case ttl <= m.opts.Margin:
		return fmt.Errorf("%w: ttl %v, want more than Margin (%v)", ErrBounds, ttl, m.opts.Margin)
	case ttl > m.opts.MaxTTL:
		return fmt.Errorf("%w: ttl %v, want at most MaxTTL (%v)", ErrBounds, ttl, m.opts.MaxTTL)
	case m.opts.MaxLifetime > 0 && ttl > m.opts.MaxLifetime:
		return fmt.Errorf("%w: ttl %v, want at most MaxLifetime (%v)", ErrBounds, ttl, m.opts.MaxLifetime)
	}
	return nil
}

// op bounds an operation on the store.
func (m *Manager) op(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, m.opts.OpTimeout)
}
