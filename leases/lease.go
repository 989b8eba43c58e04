package leases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// Lease is one grant of a name. It is safe for concurrent use.
//
// The holder judges by its own monotonic clock whether it still holds the
// lease, from the expiry that the store last confirmed and less
// Options.Margin; it need not ask. Whoever must be sure at the moment of a
// write uses Tx or Verify.
type Lease struct {
	m   *Manager
	key lineKey

	releasing sync.Mutex // held by Release from end to end

	mu       sync.Mutex
	info     Info
	ttl      time.Duration // last asked for
	deadline time.Duration // by m.clock.Elapsed
	doubt    error         // what the last renewal met, if it went unanswered
	err      error         // why it is over: *LostError or ErrReleased
	done     chan struct{} // closed when err is set
	unwatch  func()        // ends the watch that closes done at the deadline
	open     *openTx       // of Tx
	freed    bool          // a release was tried whose outcome is unknown
}

func newLease(m *Manager, key lineKey, ttl time.Duration, r reading) *Lease {
	return &Lease{
		m: m, key: key, info: r.info(), ttl: ttl,
		deadline: r.local + r.left() - m.opts.Margin, done: make(chan struct{}),
	}
}

// Info is the lease as the store last confirmed it.
func (l *Lease) Info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// Err is nil while the lease is held, then a [*LostError] or [ErrReleased].
func (l *Lease) Err() error {
	l.mu.Lock()
	err := l.judgeLocked()
	l.mu.Unlock()
	return l.report(err)
}

// Done returns a channel that is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unwatch == nil && l.err == nil {
		l.watchLocked()
	}
	return l.done
}

// watchLocked ends the lease at its deadline, wherever that has moved to by
// then.
func (l *Lease) watchLocked() {
	left := l.deadline - l.m.clock.Elapsed()
	l.unwatch = l.m.clock.AfterFunc(min(left, nap), func() {
		if l.Err() != nil {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			l.watchLocked()
		}
	})
}

// left is how long the holder may still count on the lease.
func (l *Lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline - l.m.clock.Elapsed()
}

// verdict is the end of a lease, to be reported when no mutex is held.
type verdict struct {
	err   error
	fresh bool // it was found out just now
}

// judgeLocked is why the lease is over, if it is.
func (l *Lease) judgeLocked() verdict {
	if l.err != nil {
		return verdict{err: l.err}
	}
	if l.m.clock.Elapsed() < l.deadline {
		return verdict{}
	}
	lost := &LostError{Name: l.info.Name, Epoch: l.info.Epoch, Reason: Expired}
	if l.doubt != nil {
		lost.Reason, lost.Err = Unconfirmed, l.doubt
	}
	return l.endLocked(lost)
}

func (l *Lease) endLocked(err error) verdict {
	if l.err != nil {
		return verdict{err: l.err}
	}
	l.err = err
	close(l.done)
	if l.unwatch != nil {
		l.unwatch()
	}
	return verdict{err: err, fresh: true}
}

func (l *Lease) report(v verdict) error {
	if v.fresh && v.err != ErrReleased {
		l.m.emit(Event{Kind: Lost, Info: l.Info(), Err: v.err})
	}
	return v.err
}

// end ends the lease with err, unless it is over already, and returns the
// error that stands from now on.
func (l *Lease) end(err error) error {
	l.mu.Lock()
	v := l.endLocked(err)
	l.mu.Unlock()
	return l.report(v)
}

// confirm takes over what the store said about the lease. Expiry only ever
// moves forward, so of two answers the later deadline is the newer.
func (l *Lease) confirm(r reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt = nil
	if deadline := r.local + r.left() - l.m.opts.Margin; deadline > l.deadline {
		l.deadline = deadline
	}
	if info := r.info(); info.Expires.After(l.info.Expires) {
		l.info = info
	}
}

// usable reports why the lease cannot be worked with, if so.
func (l *Lease) usable(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.opened() != nil {
		return ErrInsideTx
	}
	return l.m.ready(ctx)
}

// Extend moves the expiry to ttl from now. It succeeds only for the holder,
// only before the expiry, and only forward: else it is an error and nothing
// has changed. Out of several the error is ErrBounds, then ErrLost, then
// ErrNotExtended.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := l.m.checkTTL(ttl); err != nil {
		return err
	}
	if err := l.usable(ctx); err != nil {
		return err
	}
	return l.extend(ctx, ttl)
}

var errUnanswered = errors.New("a renewal has not been answered")

func (l *Lease) extend(ctx context.Context, ttl time.Duration) error {
	opCtx, cancel := l.m.op(hint.Urgent(ctx))
	defer cancel()
	l.mu.Lock()
	l.doubt = errUnanswered // until there is an answer
	l.mu.Unlock()
	var r reading
	err := l.m.store.Write(opCtx, func(ctx context.Context, tx *sql.Tx) (err error) {
		r, err = l.move(ctx, tx, ttl)
		return err
	})
	return l.settle(ctx, r, ttl, err)
}

// move is the body of a renewal: the one place that decides about it.
func (l *Lease) move(ctx context.Context, tx sqltx.Querier, ttl time.Duration) (reading, error) {
	info := l.Info()
	r, err := l.m.judge(ctx, tx, l.m.table.lock, info.Name)
	if err != nil {
		return r, err
	}
	if err := r.lostFor(info); err != nil {
		return r, err
	}
	expires := r.now + int64(ttl)
	lifetime := l.m.opts.MaxLifetime
	if expires <= r.expires || lifetime > 0 && expires > r.acquired+int64(lifetime) {
		return r, ErrNotExtended
	}
	r.renewed, r.expires = r.now, expires
	return r, l.m.table.write(ctx, tx, r.row)
}

// lostFor is a *LostError if the row no longer belongs to that grant or its
// time was over.
func (r reading) lostFor(info Info) error {
	lost := &LostError{Name: info.Name, Epoch: info.Epoch}
	switch {
	case r.token != info.Token:
		lost.Reason = Superseded
	case r.expires <= r.now:
		lost.Reason = Expired
	default:
		return nil
	}
	return lost
}

// settle draws the local consequences of a renewal that ended with err.
func (l *Lease) settle(ctx context.Context, r reading, ttl time.Duration, err error) error {
	switch {
	case err == nil:
		l.confirm(r)
		l.mu.Lock()
		l.ttl = ttl
		l.mu.Unlock()
		l.m.emit(Event{Kind: Renewed, Info: l.Info()})
		return nil
	case errors.Is(err, ErrLost):
		return l.end(err)
	case errors.Is(err, ErrNotExtended):
		l.confirm(r)
		return ErrNotExtended
	}
	err = fmt.Errorf("leases: extend %s: %w", l.Info().Name, err)
	l.mu.Lock()
	l.doubt = err
	l.mu.Unlock()
	if ctx.Err() == nil { // else it was called off
		l.m.emit(Event{Kind: RenewalFailed, Info: l.Info(), Err: err})
	}
	return err
}

// Release gives the lease back, so that the next may have it at once. It goes
// on for up to 5 seconds after ctx has ended. A lease that had expired or was
// taken is ErrLost; a second Release does nothing. After any other error the
// lease is still this holder's, and Release may be called again.
func (l *Lease) Release(ctx context.Context) error {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	switch err := l.Err(); {
	case err == ErrReleased:
		return nil
	case err != nil:
		return err
	case l.opened() != nil || l.m.store.Inside(ctx):
		return ErrInsideTx
	}
	return l.release(ctx)
}

func (l *Lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(hint.Urgent(context.WithoutCancel(ctx)), releaseTimeout)
	defer cancel()
	info := l.Info()
	r, err := l.m.free(ctx, info.Name, info.Token)
	if errors.Is(err, ErrOutcomeUnknown) {
		l.freed = true
		r, err = l.m.free(ctx, info.Name, info.Token)
	}
	if err != nil {
		return fmt.Errorf("leases: release %s: %w", info.Name, err)
	}
	l.m.wake(l.key)
	if err := r.lostFor(info); err != nil && !(l.freed && r.token == "" && r.epoch == info.Epoch) {
		return l.end(err)
	}
	l.end(ErrReleased)
	l.m.emit(Event{Kind: Released, Info: info})
	return nil
}
