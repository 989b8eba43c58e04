package leases

import (
	"context"
	"errors"
	"sync"
	"time"
)

// With acquires the lease as Acquire does, keeps it alive while fn runs, and
// releases it. fn's context ends when the lease is lost, with the
// [*LostError] as the cause, when the Manager is closed, and when ctx does; With
// waits for fn even then, and goes on renewing unless the lease is lost. The
// error is fn's; if the lease was lost before fn returned, it is ErrLost too,
// even if fn was content.
//
// The lease is renewed every third of ttl. A renewal that fails is tried
// again; only when the last confirmed expiry comes near is the lease lost.
func (m *Manager) With(ctx context.Context, name string, ttl, maxWait time.Duration, fn func(ctx context.Context, l *Lease) error) error {
	if err := m.checkTTL(ttl); err != nil {
		return err
	}
	l, err := m.Acquire(ctx, name, ttl, maxWait)
	if err != nil {
		return err
	}
	return m.hold(ctx, l, fn)
}

// hold runs fn while it keeps l alive. What it starts has ended when it
// returns, and when fn panics or calls runtime.Goexit.
func (m *Manager) hold(ctx context.Context, l *Lease, fn func(context.Context, *Lease) error) (err error) {
	if !m.enter() {
		return errors.Join(ErrClosed, l.Release(ctx))
	}
	defer m.bodies.Done()
	body, end := l.guard(ctx)
	// A body whose context has ended may take its time to clean up: the lease is
	// kept until it returns.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { l.keepAlive(keeping) })
	defer func() {
		lost := lostError(l.Err()) // before the release: that is when fn worked
		end()
		stop()
		keeper.Wait()
		if lost == nil {
			if rerr := l.Release(ctx); rerr != nil {
				lost = lostError(rerr)
				m.log.Warn("lease not released", "name", l.Info().Name, "err", rerr)
				l.end(ErrReleased) // it expires by itself; nobody has it in hand any more
			}
		} else if unconfirmed(lost) {
			// The store may have it as ours for longer than anybody told us.
			m.giveBack(ctx, l.key, l.Info().Name, l.Info().Token)
		}
		err = withLoss(err, lost)
	}()
	return fn(body, l)
}

func (m *Manager) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed() {
		return false
	}
	m.bodies.Add(1)
	return true
}

// guard derives a context that ends with the lease, or when the Manager is
// closed. end ends it and waits for what guard started.
func (l *Lease) guard(ctx context.Context) (guarded context.Context, end func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	done := l.Done()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-done:
			cancel(l.Err())
		case <-l.m.closed:
			cancel(ErrClosed)
		case <-guarded.Done():
		}
	})
	return guarded, func() {
		cancel(nil)
		watcher.Wait()
	}
}

// keepAlive renews the lease until ctx ends or the lease does.
func (l *Lease) keepAlive(ctx context.Context) {
	l.mu.Lock()
	ttl := l.ttl
	l.mu.Unlock()
	for wait := ttl / 3; ; {
		timer, stop := l.m.clock.After(wait)
		select {
		case <-timer:
		case <-l.done:
			stop()
			return
		case <-ctx.Done():
			stop()
			return
		}
		if l.m.opts.Dialect == SQLite && !l.untilClosed(ctx) {
			return
		}
		err := l.extend(ctx, ttl)
		switch {
		case err == nil || errors.Is(err, ErrNotExtended):
			wait = ttl / 3
		case errors.Is(err, ErrLost) || ctx.Err() != nil:
			return
		default:
			wait = ttl / 10
		}
	}
}

func lostError(err error) error {
	if errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

func unconfirmed(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) && lost.Reason == Unconfirmed
}

// withLoss is err, and ErrLost if the lease was lost.
func withLoss(err, lost error) error {
	switch {
	case lost == nil || errors.Is(err, ErrLost):
		return err
	case err == nil:
		return lost
	}
	return errors.Join(err, lost)
}

// untilClosed waits while a Tx of the lease holds the write lock: on SQLite a
// renewal would wait for that very transaction. A Tx that still waits for the
// lock itself is no reason, since renewals go first.
func (l *Lease) untilClosed(ctx context.Context) bool {
	l.mu.Lock()
	open := l.open
	begun := open != nil && open.tx != nil
	l.mu.Unlock()
	if begun {
		select {
		case <-open.closed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
