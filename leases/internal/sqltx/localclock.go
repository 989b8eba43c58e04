package sqltx

import (
	"sync"
	"time"
)

// WaitingClock is an injected clock that can also be waited on.
type WaitingClock interface {
	Clock
	After(d time.Duration) (c <-chan time.Time, stop func() bool)
}

// LocalClock is what a process measures its own waits and deadlines with.
type LocalClock struct {
	injected WaitingClock // nil for the real one
	started  time.Time
}

// NewLocalClock makes one; injected is nil for the real one.
func NewLocalClock(injected WaitingClock) LocalClock {
	return LocalClock{injected: injected, started: time.Now()}
}

// Elapsed is a monotonic reading. The real one counts suspended time where the
// system can tell, for the store's clock does.
func (c LocalClock) Elapsed() time.Duration {
	if c.injected == nil {
		if sinceBoot, ok := BootTime(); ok {
			return sinceBoot
		}
		return time.Since(c.started)
	}
	if monotonic, ok := c.injected.(interface{ Elapsed() time.Duration }); ok {
		return monotonic.Elapsed()
	}
	return c.injected.Now().Sub(c.started)
}

// farAway is what an injected clock, other than time.NewTimer, can add to its
// reading without an overflow, which would make of a wait for ever one for nothing.
const farAway = 100 * 365 * 24 * time.Hour

// After sends on the channel once d has passed; stop ends the wait.
func (c LocalClock) After(d time.Duration) (_ <-chan time.Time, stop func() bool) {
	if c.injected != nil {
		return c.injected.After(min(d, farAway))
	}
	timer := time.NewTimer(d)
	return timer.C, timer.Stop
}

// AfterFunc calls f, on a goroutine of its own, once d has passed; stop
// prevents that. On the real clock no goroutine waits meanwhile.
func (c LocalClock) AfterFunc(d time.Duration, f func()) (stop func()) {
	if c.injected == nil {
		timer := time.AfterFunc(d, f)
		return func() { timer.Stop() }
	}
	timer, stopTimer := c.injected.After(d)
	stopped := make(chan struct{})
	go func() {
		select {
		case <-timer:
			f()
		case <-stopped:
		}
	}()
	return sync.OnceFunc(func() { stopTimer(); close(stopped) })
}
