// Package testclock has a clock for tests that stands still unless it is told
// to move.
package testclock

import (
	"sync"
	"time"
)

// Clock is a leases.Clock.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	waiting map[chan time.Time]time.Time
}

// New returns a clock that shows some time on some day.
func New() *Clock {
	return &Clock{now: time.Date(2024, 5, 17, 12, 0, 0, 0, time.UTC), waiting: map[chan time.Time]time.Time{}}
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock and wakes those whose time has come.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ch, at := range c.waiting {
		if !at.After(c.now) {
			ch <- c.now
			delete(c.waiting, ch)
		}
	}
}

// After sends once the clock has been advanced by d.
func (c *Clock) After(d time.Duration) (<-chan time.Time, func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if d <= 0 {
		ch <- c.now
		return ch, func() bool { return false }
	}
	c.waiting[ch] = c.now.Add(d)
	return ch, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.waiting[ch]
		delete(c.waiting, ch)
		return waiting
	}
}
