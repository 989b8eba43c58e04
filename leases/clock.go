package leases

import (
	"time"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// Clock is time as a repository sees it. Programs leave it nil: expiry is then
// judged by the store's own clock, which no caller's wall clock can disturb
// (the boot-time clock on SQLite, the server's on PostgreSQL), and waiting
// goes by the machine's. Tests inject one to stand still, step and jump.
//
// A Clock may also have a method
//
//	Elapsed() time.Duration
//
// the reading of a monotonic clock, by which a holder judges its own deadline.
// Without it the injected Now serves for that too.
type Clock interface {
	// Now is the time that leases are granted and expire by. A Manager never
	// lets it go back.
	Now() time.Time
	// After sends on c once d has passed. stop ends the wait early and
	// reports whether it did, as (*time.Timer).Stop does.
	After(d time.Duration) (c <-chan time.Time, stop func() bool)
}

// localClock is what a Manager measures its own waits and deadlines with.
type localClock struct {
	injected Clock // nil for the real one
	started  time.Time
}

func newLocalClock(injected Clock) localClock {
	return localClock{injected: injected, started: time.Now()}
}

// elapsed is a monotonic reading. The real one counts suspended time where the
// system can tell, for the store's clock does.
func (c localClock) elapsed() time.Duration {
	if c.injected == nil {
		if sinceBoot, ok := sqltx.BootTime(); ok {
			return sinceBoot
		}
		return time.Since(c.started)
	}
	if monotonic, ok := c.injected.(interface{ Elapsed() time.Duration }); ok {
		return monotonic.Elapsed()
	}
	return c.injected.Now().Sub(c.started)
}

func (c localClock) after(d time.Duration) (<-chan time.Time, func() bool) {
	if c.injected != nil {
		return c.injected.After(d)
	}
	timer := time.NewTimer(d)
	return timer.C, timer.Stop
}
