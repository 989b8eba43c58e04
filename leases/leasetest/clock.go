package leasetest

import (
	"sync"
	"time"
)

// Clock is a [leases.Clock] that stands still until it is told to move.
type Clock struct {
	mu      sync.Mutex
	changed *sync.Cond // the number of timers, for AwaitTimers
	wall    time.Time
	elapsed time.Duration
	timers  map[*timer]struct{}
}

type timer struct {
	at time.Duration
	c  chan time.Time
}

// NewClock is a Clock that shows now.
func NewClock(now time.Time) *Clock {
	c := &Clock{wall: now, timers: map[*timer]struct{}{}}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Now is the wall clock's reading.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Elapsed is the monotonic clock's reading.
func (c *Clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// After is a timer on the monotonic clock.
func (c *Clock) After(d time.Duration) (<-chan time.Time, func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.elapsed + d, c: make(chan time.Time, 1)}
	c.timers[t] = struct{}{}
	c.fireLocked()
	c.changed.Broadcast()
	return t.c, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, pending := c.timers[t]
		delete(c.timers, t)
		return pending
	}
}

// Advance moves both clocks by d, and fires the timers that are due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
	c.elapsed += d
	c.fireLocked()
}

// Step moves the wall clock alone: as when somebody sets it, or when the
// machine was suspended for d.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// AwaitTimers returns when at least n timers are pending: when what runs on
// the clock has gone to sleep.
func (c *Clock) AwaitTimers(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.timers) < n {
		c.changed.Wait()
	}
}

func (c *Clock) fireLocked() {
	for t := range c.timers {
		if t.at <= c.elapsed {
			t.c <- c.wall
			delete(c.timers, t)
		}
	}
}
