// Package sqltx is what leases, reservations and the outbox share below their
// own SQL: write transactions that begin with the write lock in hand, on any
// SQLite driver and on PostgreSQL; the time in the store's clock domain;
// tables that are created only where they are missing.
package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/hint"
)

// Querier is what a transaction, a connection and a pool have in common, and
// what coopsqlite's Write passes to its body.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// Clock is the part of an injected clock that a store's time needs.
type Clock interface{ Now() time.Time }

// OpTimeout is how long an operation may take for whose context nothing else
// was decided.
const OpTimeout = 10 * time.Second

// Store is a database to run library transactions on.
type Store struct {
	db      *sql.DB
	dialect Dialect
	owner   hint.Owner // nil unless the pool is coopsqlite's

	anchored atomic.Pointer[anchorage] // nil unless the anchor cannot change

	clock  Clock // nil for the real one
	lastMu sync.Mutex
	last   int64 // the injected clock's highest reading, Unix ns
}

// New makes a Store of db. clock is nil except where a test injects one. New
// does no I/O.
func New(db *sql.DB, dialect Dialect, clock Clock) (*Store, error) {
	if db == nil {
		return nil, errors.New("the database is nil")
	}
	if !dialect.valid() {
		return nil, fmt.Errorf("unknown dialect %d", int(dialect))
	}
	s := &Store{db: db, dialect: dialect, clock: clock}
	if owner, ok := db.Driver().(hint.Owner); ok && owner.Mode() != "" {
		s.owner = owner
	}
	return s, nil
}

// DB is the pool, for reads.
func (s *Store) DB() *sql.DB { return s.db }

// Dialect is the kind of database.
func (s *Store) Dialect() Dialect { return s.dialect }

// Identity is what [hint.Inside] marks a context with while a transaction on
// this store is open.
func (s *Store) Identity() any {
	if s.owner != nil {
		return s.owner.Identity()
	}
	return s.db
}

// Inside reports whether ctx belongs to the body of a write transaction that
// is open on this store.
func (s *Store) Inside(ctx context.Context) bool {
	return hint.IsInside(ctx, s.Identity())
}

// Committed returns a channel that is closed by the next commit of a write
// transaction. It is nil where other processes may commit unseen, and whoever
// waits for a change has to poll.
func (s *Store) Committed() <-chan struct{} {
	if s.owner == nil {
		return nil
	}
	switch s.owner.Mode() {
	case "exclusive", "process", "memory":
		return s.owner.Committed()
	}
	return nil
}

// alone reports whether no other process writes to the store.
func (s *Store) alone() bool {
	return s.owner != nil && (s.owner.Mode() == "exclusive" || s.owner.Mode() == "process")
}

// Rebind writes the placeholders of query, given as ?, as the dialect wants
// them.
func (s *Store) Rebind(query string) string { return s.dialect.Rebind(query) }

// ErrNotATransaction is the answer to a pool where a transaction is needed:
// each statement of a pool may run on another connection.
var ErrNotATransaction = errors.New("need a transaction, not a *sql.DB")

// CheckTx refuses what cannot be an open transaction.
func CheckTx(tx Querier) error {
	switch tx := tx.(type) {
	case nil:
		return fmt.Errorf("%w: got nil", ErrNotATransaction)
	case *sql.DB:
		return ErrNotATransaction
	case *sql.Tx:
		if tx == nil {
			return fmt.Errorf("%w: got a nil *sql.Tx", ErrNotATransaction)
		}
	}
	return nil
}
