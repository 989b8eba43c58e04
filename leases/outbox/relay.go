package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// RelayOptions say how a relay works. Zero fields have the defaults named here.
type RelayOptions struct {
	// Batch is how many events one claim takes: 16.
	Batch int
	// Workers is how many deliveries Run has under way at a time: 1. Events of
	// one aggregate are never delivered side by side, however many there are.
	Workers int
	// Lease is how long a claim lasts: 30 s. Run renews it for as long as it
	// works on the event; when the relay dies, that is how long its events wait.
	Lease time.Duration
	// Margin is the safety distance to the end of a claim: Lease/10. Run starts
	// no delivery with less left, and ends the context of one that has less.
	Margin time.Duration
	// Timeout ends the context of a delivery, and the renewal of its claim:
	// one minute.
	Timeout time.Duration
	// Grace is how long deliveries that are under way may go on when Run is
	// told to stop: 10 s.
	Grace time.Duration
	// MaxAttempts is how many deliveries of an event may fail before it is
	// dead: 20. An attempt counts from its claim, so that an event that kills
	// the process is dead one day too.
	MaxAttempts int
	// Backoff is how long an event waits after its n-th failed attempt; by
	// default about a second, doubled each time, ten minutes at most. The later
	// events of its aggregate wait with it.
	Backoff func(attempt int) time.Duration
	// SkipDead lets the events behind a dead one be delivered: order for
	// progress. Without it a dead event blocks its aggregate until somebody
	// decides.
	SkipDead bool
	// Poll is how often to look for events that another process has appended:
	// about once a second. Where the owner's own commits are all there are
	// (coopsqlite, exclusive or process), nothing polls.
	Poll time.Duration
	// Logger gets failed deliveries, dead events and trouble with the database;
	// nil for silence.
	Logger *slog.Logger
}

func (p *RelayOptions) setDefaults() error {
	for _, field := range []struct {
		name  string
		value *int
		usual int
	}{{"Batch", &p.Batch, 16}, {"Workers", &p.Workers, 1}, {"MaxAttempts", &p.MaxAttempts, 20}} {
		if *field.value == 0 {
			*field.value = field.usual
		}
		if *field.value < 0 {
			return fmt.Errorf("outbox: %s is negative", field.name)
		}
	}
	if p.Lease == 0 {
		p.Lease = 30 * time.Second
	}
	for _, field := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"Lease", &p.Lease, 0}, {"Margin", &p.Margin, p.Lease / 10}, {"Timeout", &p.Timeout, time.Minute},
		{"Grace", &p.Grace, 10 * time.Second}, {"Poll", &p.Poll, time.Second}} {
		if *field.value == 0 {
			*field.value = field.usual
		}
		if *field.value < 0 {
			return fmt.Errorf("outbox: %s is negative", field.name)
		}
	}
	if p.Margin > p.Lease/2 {
		return errors.New("outbox: Margin is more than half of Lease")
	}
	if p.Backoff == nil {
		p.Backoff = backoff
	}
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// backoff doubles from a second to ten minutes, give or take a fifth, so that
// what failed together does not come back together.
func backoff(attempt int) time.Duration {
	d := min(time.Second<<min(attempt-1, 10), 10*time.Minute)
	return d*4/5 + rand.N(d*2/5)
}

// A Relay takes events out of the outbox and hands them to a consumer, at
// least once each. Most programs call only [Relay.Run]; Claim, Ack, Nack and
// Extend are what it is made of, for those who deliver otherwise. It is safe
// for concurrent use, and any number of relays may work on one outbox.
type Relay struct {
	outbox  *Outbox
	options RelayOptions
	local   sqltx.LocalClock
	wake    chan struct{}
}

// Relay returns a relay for the outbox. It starts nothing.
func (o *Outbox) Relay(options *RelayOptions) (*Relay, error) {
	var own RelayOptions
	if options != nil {
		own = *options
	}
	if err := own.setDefaults(); err != nil {
		return nil, err
	}
	return &Relay{outbox: o, options: own, local: sqltx.NewLocalClock(o.clock), wake: make(chan struct{}, 1)}, nil
}

// Wake tells Run to look for events now. A process that has appended some, or
// heard that another did, need not wait for the next poll.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // it has been told already
	}
}
