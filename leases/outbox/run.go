package outbox

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

const (
	// probePause is the least time between two looks at the outbox that found
	// nothing: a busy program commits more often than that.
	probePause = time.Millisecond
	// retryPause is how long to leave the database alone after an error, or
	// an aggregate that somebody is appending to.
	retryPause = 50 * time.Millisecond
	// maxStopTries bounds how often a relay that stops tries to write down the
	// last outcomes.
	maxStopTries = 50
)

// Run delivers events until ctx ends, then stops: it hands back what it has
// claimed and not started, waits for the deliveries under way (up to Grace
// with their contexts open), writes down their outcome, and returns the cause
// of ctx's end. Trouble with the database ends nothing; Run tries again.
//
// deliver is called for each event, from Workers goroutines. If it returns nil
// the event is done with. After an error, a panic included, the event comes
// back after a while; see [RelayOptions] and [Permanent]. Its context ends when
// the claim is lost or may be before long, with ErrClaimLost as its cause, and
// after Timeout. It may be called twice for an event, as when the relay died
// before it could write down the first delivery; so the consumer must be able
// to tell, by the Delivery's ID for example.
func (r *Relay) Run(ctx context.Context, deliver func(ctx context.Context, d Delivery) error) error {
	p := &pump{
		Relay:   r,
		deliver: deliver,
		ctx:     context.WithoutCancel(ctx),
		flying:  make(map[*flight]bool, r.options.Workers),
		landed:  make(chan landing, r.options.Workers),
	}
	p.run(ctx)
	return context.Cause(ctx)
}

// A pump is one Run. One goroutine does all its work on the database and owns
// its fields; the deliveries have goroutines of their own.
type pump struct {
	*Relay
	deliver func(context.Context, Delivery) error
	ctx     context.Context // of deliveries and of answers: has no end

	ready   []*flight        // claimed, not started
	flying  map[*flight]bool // started
	landed  chan landing     // has room for every flight
	answers []answer         // not yet written down

	// Pauses are real time, whatever clock is injected.
	retryAt time.Time // what failed is not tried again before
	lookAt  time.Time // no look at the outbox before
	misses  int       // claims in a row that found due events and got none
}

type landing struct {
	flight *flight
	err    error
}

func (p *pump) run(ctx context.Context) {
	for ctx.Err() == nil {
		committed := p.outbox.store.Committed() // asked for before looking, so that none is missed
		p.collect()
		p.settle()
		p.renew()
		wait, pause := p.fill(ctx)
		p.start()
		p.sleep(ctx.Done(), committed, wait, pause)
	}
	p.stop()
}

// collect takes the outcome of the deliveries that have ended.
func (p *pump) collect() {
	for {
		select {
		case l := <-p.landed:
			p.take(l)
		default:
			return
		}
	}
}

func (p *pump) take(l landing) {
	d := l.flight.delivery
	delete(p.flying, l.flight)
	a := answer{delivery: d, verdict: delivered}
	if l.err != nil {
		a.verdict, a.cause = failed, l.err
		p.options.Logger.Warn("delivery failed", "event", d.ID, "type", d.Type, "attempt", d.Attempt,
			"dead", p.isLast(d, l.err), "error", l.err)
	}
	p.answers = append(p.answers, a)
}

// settle writes down what is known. What cannot be written now is kept.
func (p *pump) settle() {
	if len(p.answers) == 0 || time.Until(p.retryAt) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, sqltx.OpTimeout)
	defer cancel()
	lost, busy, err := p.Relay.settle(ctx, p.answers, "{skip}")
	if err != nil {
		p.trouble(err)
		return
	}
	p.answers = busy
	if busy != nil {
		p.retryAt = time.Now().Add(retryPause)
	}
	if lost != nil {
		p.options.Logger.Warn("answer came after the claim was lost; expect another delivery", "events", lost)
	}
}

// renew extends the claims of which a third has passed.
func (p *pump) renew() {
	if time.Until(p.retryAt) > 0 {
		return
	}
	now := p.local.Elapsed()
	due := make(map[int64]*flight)
	var extend []answer
	for f := range p.claims() {
		if now >= f.renewAt(&p.options) {
			due[f.delivery.ID] = f
			extend = append(extend, answer{delivery: f.delivery, verdict: extended})
		}
	}
	if extend == nil {
		return
	}
	ctx, cancel := context.WithTimeout(hint.Urgent(p.ctx), sqltx.OpTimeout)
	defer cancel()
	lost, busy, err := p.Relay.settle(ctx, extend, "{skip}")
	if err != nil {
		p.trouble(err)
		return
	}
	for _, a := range busy { // its deadline stands
		delete(due, a.delivery.ID)
		p.retryAt = time.Now().Add(retryPause)
	}
	for _, id := range lost {
		p.options.Logger.Warn("claim lost", "event", id)
		due[id].lose()
		delete(due, id)
	}
	p.ready = slices.DeleteFunc(p.ready, func(f *flight) bool { return f.lost })
	for _, f := range due {
		f.since.Store(int64(now))
	}
}

// claims are all that the pump answers for.
func (p *pump) claims() iter.Seq[*flight] {
	return func(yield func(*flight) bool) {
		for _, f := range p.ready {
			if !yield(f) {
				return
			}
		}
		for f := range p.flying {
			if !yield(f) {
				return
			}
		}
	}
}

// hungry reports whether events could be started now that are not there.
func (p *pump) hungry() bool {
	return len(p.ready) == 0 && len(p.flying) < p.options.Workers
}

// fill claims events if there is somebody to deliver them, and returns how long
// it will be until there are some. If it must not look at the outbox before
// another moment, it returns that too.
func (p *pump) fill(ctx context.Context) (wait time.Duration, pause time.Time) {
	if !p.hungry() {
		return forever, time.Time{}
	}
	if time.Until(p.lookAt) > 0 {
		return forever, p.lookAt
	}
	haul, err := p.claim(ctx, p.options.Batch)
	if err != nil {
		if ctx.Err() == nil {
			p.trouble(err)
		}
		p.lookAt = p.retryAt
		return forever, p.lookAt
	}
	for _, d := range haul.deliveries {
		p.ready = append(p.ready, newFlight(d, haul.since))
	}
	switch {
	case len(p.ready) > 0:
		p.misses = 0
		return forever, time.Time{}
	case haul.wait == 0: // others have locked what is due, or it is dead now
		p.lookAt = time.Now().Add(probePause << p.misses)
		p.misses = min(p.misses+1, 6)
		return forever, p.lookAt
	}
	p.misses = 0
	p.lookAt = time.Now().Add(probePause)
	return haul.wait, time.Time{}
}

// start starts deliveries as long as there are workers. A claim that is too
// close to its end waits for its renewal.
func (p *pump) start() {
	for len(p.ready) > 0 && len(p.flying) < p.options.Workers {
		f := p.ready[0]
		if p.local.Elapsed() >= f.safeUntil(&p.options) {
			return
		}
		p.ready = p.ready[1:]
		p.flying[f] = true
		p.launch(f)
	}
}

// sleep waits for whatever comes first: an event that becomes due, a delivery
// that ends, a claim to renew, another try, a call of Wake, the end.
func (p *pump) sleep(stop, committed <-chan struct{}, wait time.Duration, pause time.Time) {
	wake := p.wake
	if !p.hungry() || !pause.IsZero() {
		wake, committed = nil, nil
	} else if committed == nil {
		wait = min(wait, p.options.Poll*4/5+rand.N(p.options.Poll*2/5+1))
	}
	now := p.local.Elapsed()
	overdue := len(p.answers) > 0
	for f := range p.claims() {
		at := f.renewAt(&p.options)
		overdue = overdue || at <= now
		wait = min(wait, max(at-now, 0))
	}
	if overdue { // since just now, or because it failed before
		wait = 0
		if time.Until(p.retryAt) > 0 {
			wait = forever
			if pause.IsZero() || p.retryAt.Before(pause) {
				pause = p.retryAt
			}
		}
	}
	timer, stopTimer := p.local.After(wait)
	defer stopTimer()
	if wait < forever && p.local.Elapsed() >= now+wait {
		return // an injected clock may have moved on before the timer was set
	}
	var paused <-chan time.Time
	if !pause.IsZero() {
		t := time.NewTimer(time.Until(pause))
		defer t.Stop()
		paused = t.C
	}
	select {
	case l := <-p.landed:
		p.take(l)
	case <-stop:
	case <-committed:
	case <-wake:
	case <-timer:
	case <-paused:
	}
}

// stop ends the Run in good order.
func (p *pump) stop() {
	for _, f := range p.ready {
		p.answers = append(p.answers, answer{delivery: f.delivery, verdict: handedBack})
	}
	p.ready = nil
	end := p.local.Elapsed() + p.options.Grace
	for tries := 0; len(p.flying) > 0 || len(p.answers) > 0 && tries < maxStopTries; {
		p.collect()
		p.settle()
		p.renew()
		if len(p.flying) == 0 {
			tries++
		}
		left := end - p.local.Elapsed()
		if left <= 0 {
			for f := range p.flying {
				f.cancel(errStopped)
			}
			left = forever
		}
		if len(p.flying) > 0 || len(p.answers) > 0 {
			p.sleep(nil, nil, left, time.Time{})
		}
	}
	if len(p.answers) > 0 {
		p.options.Logger.Error("relay stopped without writing down the outcome of deliveries", "count", len(p.answers))
	}
}

var errStopped = errors.New("outbox: the relay was stopped")

// trouble remembers to leave the database alone for a moment.
func (p *pump) trouble(err error) {
	p.retryAt = time.Now().Add(retryPause + rand.N(retryPause))
	p.options.Logger.Error("relay cannot reach its outbox", "error", err)
}
