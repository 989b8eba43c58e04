package sqltx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/coopsqlite/coopsqlite/internal/hint"
)

// ErrInsideTx is the answer to who would wait for a transaction from inside its
// body.
var ErrInsideTx = errors.New("inside an open transaction, which this would wait for")

// WriteGrouped is [Store.Write] for bodies that need no *sql.Tx. Where the
// driver can, they share commits with others who write at the same time: each
// is undone by itself, and the answer comes after the commit as always.
func (s *Store) WriteGrouped(ctx context.Context, fn func(ctx context.Context, tx Querier) error) error {
	if s.Inside(ctx) {
		return ErrInsideTx
	}
	writer, ok := s.db.Driver().(hint.Writer)
	if !ok || s.owner == nil || s.owner.Mode() == "memory" { // there each connection may have a database of its own
		return s.Write(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) })
	}
	for attempt := 0; ; attempt++ {
		err := writer.Write(ctx, func(tx hint.DBTX) error { return fn(ctx, tx) })
		if err == nil || !s.dialect.Retryable(err) || ctx.Err() != nil || !pause(ctx, attempt) {
			return err
		}
	}
}

// Lock makes sure that tx holds SQLite's write lock, by a write that touches
// no row. As the first statement it makes a deferred transaction an immediate
// one, which is how one gets a *sql.Tx with the lock from a driver whose
// BeginTx says BEGIN. It has to come before anything in tx reads: after that
// SQLite no longer waits for the lock, and refuses it at once when somebody
// else has written since.
func (s *Store) Lock(ctx context.Context, tx Querier) error {
	if _, settled := s.settled(ctx); settled || s.dialect != SQLite {
		return nil
	}
	_, err := tx.ExecContext(ctx, `UPDATE "coop_clock" SET boot_id = boot_id WHERE 0`)
	return err
}

type settledKey struct{}

type settled struct {
	db  *sql.DB
	now int64
}

// Settle returns a context for those who work on in a transaction that has the
// write lock and has read the time: they need not do it again.
func (s *Store) Settle(ctx context.Context, now int64) context.Context {
	return context.WithValue(ctx, settledKey{}, settled{s.db, now})
}

func (s *Store) settled(ctx context.Context) (now int64, ok bool) {
	v, ok := ctx.Value(settledKey{}).(settled)
	return v.now, ok && v.db == s.db
}
