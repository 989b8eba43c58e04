package leases

import (
	"context"
	"errors"
	"time"
)

// Elect waits until the lease of that name is this Manager's and runs fn as
// the leader; after a loss it waits to be elected again. It returns when fn
// returns while it still leads, with fn's error; when ctx ends; or when the
// Manager is closed. Whatever else goes wrong, it keeps trying.
//
// fn's context ends with the leadership. Elect waits for fn before it stands
// for election again.
func (m *Manager) Elect(ctx context.Context, name string, ttl time.Duration, fn func(ctx context.Context, l *Lease) error) error {
	if err := m.checkTTL(ttl); err != nil {
		return err
	}
	for wait := firstPoll; ; wait = min(2*wait, ttl) {
		l, err := m.Acquire(ctx, name, ttl, -1)
		if err == nil {
			wait = firstPoll
			err = m.hold(ctx, l, fn)
			if !errors.Is(err, ErrLost) {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrBounds) || errors.Is(err, ErrClosed) || errors.Is(err, ErrInsideTx) {
			return err
		}
		m.log.Warn("standing for election again", "name", name, "err", err)
		timer, stop := m.clock.After(wait)
		select {
		case <-timer:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		case <-m.closed:
			stop()
			return ErrClosed
		}
	}
}
