package coopsqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/coopsqlite/coopsqlite/internal/hint"
)

// DBTX runs statements inside a transaction: what *sql.DB, *sql.Conn, *sql.Tx
// and the functions of Write and Bulk have in common, and what sqlc calls by
// this name.
//
// The value that Write and Bulk pass has one method more, Context, which
// returns the context of the call, marked as belonging to the open
// transaction: whoever is given it (package leases, say) can refuse at once
// what would wait for that very transaction.
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// ErrNested says that Write or Bulk was called with the context of a
// transaction that is open on the same store; it would wait for itself.
var ErrNested = errors.New("coopsqlite: a write transaction is open in this context already: use the DBTX it was given")

// Write runs fn in a transaction and returns once that is committed. Calls that
// arrive while another's commit is under way share the next one, which is what
// makes many small durable transactions fast (group commit: DeWitt et al.,
// Implementation Techniques for Main Memory Database Systems, 1984). Nobody
// waits for others to come.
//
// Each fn runs on its caller's goroutine, in order of arrival, in a savepoint
// of its own: an error or a panic undoes that one alone. Write returns fn's
// error as it is. When the commit fails, all that shared it get the error. When
// SQLite rolls the whole transaction back by itself (a full disk, ON CONFLICT
// ROLLBACK), all of them get [ErrTxAborted] and can try again.
//
// While fn runs, everybody else who writes waits: a slow function delays its
// neighbours, so do no more in it than statements. Its statements must use the
// DBTX; BEGIN, COMMIT and ROLLBACK are refused. Rows that fn leaves open are
// closed. When ctx ends before fn's turn, the call leaves the queue with the
// context's error; a statement that is running is interrupted only while
// nobody else's work is in the same transaction.
func (s *Store) Write(ctx context.Context, fn func(DBTX) error) error {
	if s.own.mode == modeReader {
		return readerError(s.own.name())
	}
	if hint.IsInside(ctx, s.own) {
		return ErrNested
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m := memberPool.Get().(*member)
	m.store, m.ctx, m.fn = s, hint.Inside(ctx, s.own), fn
	err := s.group.write(m)
	m.recycle() // after a panic, it is left to the garbage collector
	return err
}
