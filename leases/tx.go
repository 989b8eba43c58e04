package leases

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// openTx is a transaction that Tx has open.
type openTx struct {
	tx     *sql.Tx       // nil until it has begun
	closed chan struct{} // closed when it is over
	// moved is what ExtendTx wrote in it, to be believed after the commit.
	moved *reading
	ttl   time.Duration
}

func (l *Lease) opened() *openTx {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Tx runs fn in a transaction that commits only while the lease is held. The
// promise: no Tx commits after a later grant of its name; the lease was
// unexpired when it was checked, right before COMMIT; COMMIT may finish after
// the expiry.
//
// If less than half of the ttl is left the lease is renewed first, in a
// transaction of its own. fn's context ends with the lease, and the
// transaction with it. fn must use that context: other operations on leases
// of the same store answer ErrInsideTx to it. On SQLite fn must take less
// than the ttl less Margin, since no renewal gets past an open transaction.
//
// If the connection breaks during COMMIT the error is ErrOutcomeUnknown.
func (l *Lease) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) (err error) {
	if err := l.usable(ctx); err != nil {
		return err
	}
	if err := l.refresh(ctx); err != nil {
		return err
	}
	open := &openTx{closed: make(chan struct{})}
	if !l.beginTx(open) {
		return ErrInsideTx
	}
	defer l.endTx(open)
	body, end := l.guard(ctx)
	defer end()
	tx, err := l.m.store.Begin(body)
	if err != nil {
		return withLoss(fmt.Errorf("leases: begin for %s: %w", l.Info().Name, err), lostError(l.Err()))
	}
	defer tx.Rollback()
	l.mu.Lock()
	open.tx = tx.Tx
	l.mu.Unlock()
	if err := l.boundIdle(body, tx.Tx); err != nil {
		return err
	}
	if err := fn(hint.Inside(body, l.m.store.Identity()), tx.Tx); err != nil {
		return withLoss(err, lostError(l.Err()))
	}
	if err := l.boundIdle(body, tx.Tx); err != nil { // less remains than at the beginning
		return withLoss(err, lostError(l.Err()))
	}
	if err := l.verify(body, tx.Tx); err != nil {
		return withLoss(err, lostError(l.Err()))
	}
	if err := tx.Commit(); err != nil {
		return withLoss(fmt.Errorf("leases: commit for %s: %w", l.Info().Name, err), lostError(l.Err()))
	}
	if open.moved != nil {
		return l.settle(ctx, *open.moved, open.ttl, nil)
	}
	return nil
}

// refresh renews the lease if less than half of its ttl is left.
func (l *Lease) refresh(ctx context.Context) error {
	l.mu.Lock()
	ttl := l.ttl
	l.mu.Unlock()
	if l.left() >= ttl/2 {
		return nil
	}
	if err := l.extend(ctx, ttl); err != nil && err != ErrNotExtended {
		return err
	}
	return nil
}

func (l *Lease) beginTx(open *openTx) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		return false
	}
	l.open = open
	return true
}

func (l *Lease) endTx(open *openTx) {
	l.mu.Lock()
	l.open = nil
	l.mu.Unlock()
	close(open.closed)
}

// boundIdle makes PostgreSQL end the transaction of a holder that vanished
// when its lease does, so that its locks go with it.
func (l *Lease) boundIdle(ctx context.Context, tx *sql.Tx) error {
	if l.m.opts.Dialect != Postgres {
		return nil
	}
	left := fmt.Sprintf("%dms", max(l.left().Milliseconds(), 1))
	_, err := tx.ExecContext(ctx, `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`, left)
	if err != nil {
		return fmt.Errorf("leases: bound the transaction of %s: %w", l.Info().Name, err)
	}
	return nil
}

// Verify makes tx depend on the lease: it fails with ErrLost unless the lease
// is held now, and if it succeeds no later grant of the name commits before
// tx ends. As tx's last statement it gives a transaction the promise of Tx.
//
// tx is a *sql.Tx, or what coopsqlite's Write passes to its body; it must not
// be read-only.
func (l *Lease) Verify(ctx context.Context, tx sqltx.Querier) error {
	if err := sqltx.CheckTx(tx); err != nil {
		return fmt.Errorf("leases: verify: %w", err)
	}
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.m.store.Lock(ctx, tx); err != nil {
		return fmt.Errorf("leases: verify %s: %w", l.Info().Name, err)
	}
	return l.verify(ctx, tx)
}

func (l *Lease) verify(ctx context.Context, tx sqltx.Querier) error {
	info := l.Info()
	r, err := l.m.judge(ctx, tx, l.m.table.share, info.Name)
	if err != nil {
		return fmt.Errorf("leases: verify %s: %w", info.Name, err)
	}
	if err := r.lostFor(info); err != nil {
		return l.end(err)
	}
	return nil
}

// ExtendTx is Extend inside tx, which it makes depend on the lease as Verify
// does. The holder believes in the new expiry once tx has committed: at once
// if tx is that of Tx; otherwise with the next Extend, which may then say
// ErrNotExtended. Until then no renewal gets past tx, so it is best called
// near the end of tx.
func (l *Lease) ExtendTx(ctx context.Context, tx sqltx.Querier, ttl time.Duration) error {
	if err := l.m.checkTTL(ttl); err != nil {
		return err
	}
	if err := sqltx.CheckTx(tx); err != nil {
		return fmt.Errorf("leases: extend: %w", err)
	}
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.m.store.Lock(ctx, tx); err != nil {
		return fmt.Errorf("leases: extend %s: %w", l.Info().Name, err)
	}
	r, err := l.move(ctx, tx, ttl)
	if err != nil {
		if lost := lostError(err); lost != nil {
			return l.end(lost)
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil && tx == sqltx.Querier(l.open.tx) {
		l.open.moved, l.open.ttl = &r, ttl
	}
	return nil
}
