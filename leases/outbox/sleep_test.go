package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

// A claim can fall due between the look at it and the sleep, too short a moment to
// be met from outside.
func TestRelayDoesNotSleepOverAClaimThatHasJustFallenDue(t *testing.T) {
	for _, moves := range []func(*leasetest.Clock) injected{dueAlready, dueWhileSleepIsPrepared} {
		clock := leasetest.NewClock(time.Now())
		p := &pump{
			Relay:  &Relay{options: RelayOptions{Lease: time.Minute, Workers: 1, Poll: time.Hour}, local: sqltx.NewLocalClock(moves(clock)), wake: make(chan struct{})},
			flying: map[*flight]bool{newFlight(Delivery{}, 0): true},
			landed: make(chan landing, 1),
		}
		returned := make(chan struct{})
		go func() {
			p.sleep(nil, nil, forever, time.Time{})
			close(returned)
		}()
		select {
		case <-returned:
		case <-time.After(30 * time.Second):
			require.Fail(t, "it sleeps")
		}
	}
}

// injected is a clock as a program may give it.
type injected interface {
	Now() time.Time
	After(time.Duration) (<-chan time.Time, func() bool)
}

func dueAlready(c *leasetest.Clock) injected {
	c.Advance(20 * time.Second)
	return c
}

// jumping is a clock that moves on in the moment in which a timer is set.
type jumping struct{ *leasetest.Clock }

func dueWhileSleepIsPrepared(c *leasetest.Clock) injected { return jumping{c} }

func (j jumping) After(d time.Duration) (<-chan time.Time, func() bool) {
	j.Advance(20 * time.Second)
	return j.Clock.After(d)
}
