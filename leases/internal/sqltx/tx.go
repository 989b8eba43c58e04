package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrOutcomeUnknown means that the connection broke during COMMIT, so that
// nobody here knows whether the transaction was committed.
var ErrOutcomeUnknown = errors.New("the outcome of the commit is unknown")

// Tx is a write transaction. On SQLite it holds the write lock from its
// beginning; on PostgreSQL it is READ COMMITTED.
type Tx struct {
	*sql.Tx
	store  *Store
	conn   *sql.Conn // SQLite: to clean up after the transaction
	over   bool
	end    context.CancelFunc // ends the transaction's own context
	detach func() bool        // takes the caller's context off it
	caller func() error       // the caller's context's Err
}

// Begin starts a write transaction that is rolled back if ctx ends before
// Commit. It waits for the write lock until ctx ends.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	for attempt := 0; ; attempt++ {
		tx, err := s.begin(ctx)
		if err == nil || !s.dialect.Retryable(err) {
			return tx, err
		}
		if !pause(ctx, attempt) {
			if !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return nil, err
		}
	}
}

func (s *Store) begin(ctx context.Context) (*Tx, error) {
	// The transaction gets a context of its own, which ctx ends until Commit
	// takes it off: a context that ended during COMMIT would leave open what
	// became of it.
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	own := txContext{inner, ctx}
	tx := &Tx{store: s, end: end, detach: context.AfterFunc(ctx, end), caller: ctx.Err}
	var err error
	if s.dialect == Postgres {
		tx.Tx, err = s.db.BeginTx(own, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	} else if tx.conn, err = s.db.Conn(ctx); err == nil {
		if tx.Tx, err = tx.conn.BeginTx(own, nil); err == nil {
			err = s.Lock(ctx, tx)
		}
	}
	if err == nil {
		return tx, nil
	}
	tx.Rollback()
	if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) {
		err = ctx.Err() // it was ended by that between two statements
	}
	return nil, err
}

// txContext is a transaction's own context. When the caller's ends it, it says
// what that says: a deadline is not a cancellation.
type txContext struct {
	context.Context
	caller context.Context
}

func (c txContext) Err() error {
	err := c.Context.Err()
	if err != nil && c.caller.Err() != nil {
		return c.caller.Err()
	}
	return err
}

// Rollback ends the transaction without its changes. After Commit it does
// nothing.
func (tx *Tx) Rollback() {
	if tx.over {
		return
	}
	tx.detach()
	if tx.Tx != nil {
		_ = tx.Tx.Rollback() // an error means that it is over already
	}
	tx.leave(true)
}

// Commit commits, or rolls back if that fails. Once it has begun the caller's
// context no longer matters; after [OpTimeout] without an answer, or when the
// connection breaks, the error is [ErrOutcomeUnknown].
func (tx *Tx) Commit() error {
	if tx.over {
		return sql.ErrTxDone
	}
	if !tx.detach() {
		tx.Rollback()
		return tx.caller()
	}
	limit := time.AfterFunc(OpTimeout, tx.end)
	err := tx.Tx.Commit()
	limit.Stop()
	tx.leave(err != nil)
	if err != nil && tx.store.dialect == Postgres && !rolledBack(err) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

// rolledBack reports whether a failed COMMIT's error says that PostgreSQL
// rolled back. Everything else leaves that open: a lost connection, but also
// a server that was shut down (class 57) or reports a connection error (08),
// which may happen after the commit became durable.
func rolledBack(err error) bool {
	if errors.Is(err, sql.ErrTxDone) || strings.Contains(err.Error(), "commit unexpectedly resulted in rollback") {
		return true
	}
	state := SQLState(err)
	return state != "" && !strings.HasPrefix(state, "57") && !strings.HasPrefix(state, "08")
}

// leave gives the connection back. Some drivers leave SQLite's transaction
// open when BEGIN is cancelled or COMMIT says BUSY; the pool must not get it
// back like that.
func (tx *Tx) leave(failed bool) {
	tx.over = true
	tx.end()
	if tx.conn == nil {
		return
	}
	if failed {
		_, err := tx.conn.ExecContext(context.Background(), "ROLLBACK")
		if err != nil && !strings.Contains(err.Error(), "no transaction is active") {
			_ = tx.conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool drops it
		}
	}
	_ = tx.conn.Close()
}

// Write runs fn in a write transaction and commits it. Where another
// transaction was in the way it starts over until ctx ends, so fn may run
// more than once and must keep its results to itself until Write returns.
//
// On PostgreSQL no lock is waited for longer than ctx allows, statements go by
// indexes, and the commit is durable whatever the session's synchronous_commit says.
func (s *Store) Write(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	for attempt := 0; ; attempt++ {
		err := s.writeOnce(ctx, fn)
		if err == nil || !s.dialect.Retryable(err) {
			return err
		}
		if ctx.Err() != nil || !pause(ctx, attempt) {
			return err // what was in the way says more than the context
		}
	}
}

func (s *Store) writeOnce(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if s.dialect == Postgres {
		if err := configure(ctx, tx.Tx); err != nil {
			return err
		}
	}
	if err := fn(ctx, tx.Tx); err != nil {
		return err
	}
	return tx.Commit()
}

// configure sets what holds for this transaction. The library's statements all
// have an index to go by, but PostgreSQL keeps plans: one made for a table of
// two rows would read all of it for a minute after it has become a million.
func configure(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `SELECT set_config('lock_timeout', $1, true), set_config('enable_seqscan', 'off', true),
set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)`,
		Milliseconds(ctx))
	return err
}

// Milliseconds is what is left of ctx, and at most [OpTimeout], as a setting
// of PostgreSQL takes it: never "0", which would mean without limit.
func Milliseconds(ctx context.Context) string {
	left := OpTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return fmt.Sprintf("%dms", max(left.Milliseconds(), 1))
}

// Read runs fn on the pool, in no transaction, and starts over where a writer
// was in the way: without WAL a reader meets them too.
func (s *Store) Read(ctx context.Context, fn func(ctx context.Context, q Querier) error) error {
	for attempt := 0; ; attempt++ {
		err := fn(ctx, s.db)
		if err == nil || !s.dialect.Retryable(err) || !pause(ctx, attempt) {
			return err
		}
	}
}
