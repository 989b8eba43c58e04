package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// A flight is a claimed event on its way to the consumer.
type flight struct {
	delivery Delivery
	since    atomic.Int64  // local time from which the claim's Lease counts
	limit    time.Duration // local time at which Timeout is over; forever before the start
	lost     bool          // somebody else has the claim
	cancel   context.CancelCauseFunc
}

func newFlight(d Delivery, since time.Duration) *flight {
	f := &flight{delivery: d, limit: forever}
	f.since.Store(int64(since))
	return f
}

// safeUntil is the local time at which the claim is too close to its end.
func (f *flight) safeUntil(options *RelayOptions) time.Duration {
	return time.Duration(f.since.Load()) + options.Lease - options.Margin
}

// renewAt is the local time at which the claim is to be renewed; forever if it
// is not to be.
func (f *flight) renewAt(options *RelayOptions) time.Duration {
	at := time.Duration(f.since.Load()) + options.Lease/3
	if f.lost || at >= f.limit {
		return forever
	}
	return at
}

func (f *flight) lose() {
	f.lost = true
	if f.cancel != nil {
		f.cancel(ErrClaimLost)
	}
}

var errGoexit = errors.New("deliver ended its goroutine")

// launch starts the delivery. However it ends, panic and Goexit included, its
// outcome arrives at p.landed, and the goroutines are gone then.
func (p *pump) launch(f *flight) {
	f.limit = p.local.Elapsed() + p.options.Timeout
	ctx, cancel := context.WithCancelCause(p.ctx)
	f.cancel = cancel
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.watch(f, over)
	}()
	go func() {
		err := errGoexit
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("deliver panicked: %v\n%s", v, debug.Stack())
			}
			close(over)
			cancel(nil)
			<-watched
			p.landed <- landing{f, err}
		}()
		err = p.deliver(ctx, f.delivery)
	}()
}

// watch ends the delivery's context when its time is over or its claim is no
// longer safe. It does not depend on the pump, which may be waiting for the
// database.
func (p *pump) watch(f *flight, over <-chan struct{}) {
	for {
		safe := f.safeUntil(&p.options)
		left := min(safe, f.limit) - p.local.Elapsed()
		if left <= 0 {
			if safe < f.limit {
				f.cancel(ErrClaimLost)
			} else {
				f.cancel(context.DeadlineExceeded)
			}
			return
		}
		timer, stop := p.local.After(left)
		select {
		case <-timer:
		case <-over:
			stop()
			return
		}
	}
}
