package leases

import "time"

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
