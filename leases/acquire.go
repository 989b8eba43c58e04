package leases

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

const (
	// firstPoll and lastPoll bound how long the head of a line sleeps between
	// two looks where nobody can wake it. Each sleep is half as long again as
	// the one before, and drawn at random around that.
	firstPoll = 10 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
	// commitGap is the least time between two looks that were prompted by
	// commits, which need not have to do with leases.
	commitGap = time.Millisecond
	// nap is the longest single sleep, since timers stand still while the
	// machine is suspended and leases do not.
	nap = 5 * time.Second
)

// Acquire grants the lease of that name for ttl, once it is free: released,
// expired, or never granted. It waits for that up to maxWait, in line behind
// those of this Manager who came before; with 0 it neither waits nor
// overtakes them, with a negative maxWait it waits until ctx ends. If the
// lease does not come free the error is a [*HeldError].
//
// A ttl of zero grants a lease that has expired already: it uses up an epoch.
//
// maxWait is about the lease; the store itself is waited for until ctx or
// Options.OpTimeout ends. A lease granted just when ctx ends, or with no more
// than Options.Margin left to use, is given back and the error says so.
func (m *Manager) Acquire(ctx context.Context, name string, ttl, maxWait time.Duration) (*Lease, error) {
	if err := checkName("the name", name); err != nil {
		return nil, err
	}
	return m.acquire(ctx, claim{key: lineKey{name: name}, names: []string{name}, ttl: ttl}, maxWait)
}

// claim is what an Acquire is after: one lease out of names.
type claim struct {
	key   lineKey
	names []string
	ttl   time.Duration
	began time.Duration
}

// view is what a look at the leases of a claim found.
type view struct {
	free   []string
	holder Info          // whose lease ends first; zero if none is held
	left   time.Duration // until then
}

func (v *view) add(r reading) {
	switch {
	case !r.held():
		v.free = append(v.free, r.name)
	case v.holder.Token == "" || r.left() < v.left:
		v.holder, v.left = r.info(), r.left()
	}
}

func (m *Manager) acquire(ctx context.Context, c claim, maxWait time.Duration) (*Lease, error) {
	if c.ttl != 0 {
		if err := m.checkTTL(c.ttl); err != nil {
			return nil, err
		}
	}
	if m.isClosed() {
		return nil, ErrClosed
	}
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	c.began = m.clock.Elapsed()
	if maxWait == 0 {
		if m.hasLine(c.key) {
			return nil, m.heldNow(ctx, c)
		}
		l, v, err := m.attempt(ctx, c, len(c.names) == 1)
		if l == nil && err == nil {
			err = &HeldError{c.key.name, v.holder}
		}
		return l, err
	}
	return m.wait(ctx, c, maxWait)
}

// wait acquires in line.
func (m *Manager) wait(ctx context.Context, c claim, maxWait time.Duration) (*Lease, error) {
	w := m.join(c.key)
	defer m.leave(w)
	var over <-chan time.Time
	if maxWait > 0 {
		timer, stop := m.clock.After(maxWait)
		defer stop()
		over = timer
	}
	select {
	case <-w.head:
	case <-over:
		return nil, m.heldNow(ctx, c)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.closed:
		return nil, ErrClosed
	}
	blind := len(c.names) == 1 // the first time, try without looking
	last := false
	for poll := firstPoll; ; poll = min(poll+poll/2, lastPoll) {
		committed := m.store.Committed() // before the look, or a commit between them goes unseen
		l, v, err := m.attempt(ctx, c, blind)
		if l != nil || err != nil {
			return l, err
		}
		if last {
			return nil, &HeldError{c.key.name, v.holder}
		}
		blind = false
		sleep := v.left
		if committed == nil {
			sleep = min(sleep, poll/2+mathrand.N(poll))
		}
		if last, err = m.sleep(ctx, w, over, committed, sleep); err != nil {
			return nil, err
		}
	}
}

// sleep returns when it is worth looking again: after d, or when something
// was freed or committed in this process. last says that maxWait is over.
func (m *Manager) sleep(ctx context.Context, w *waiter, over <-chan time.Time, committed <-chan struct{}, d time.Duration) (last bool, err error) {
	from := m.clock.Elapsed()
	for {
		timer, stop := m.clock.After(min(from+d-m.clock.Elapsed(), nap))
		select {
		case <-timer:
			if m.clock.Elapsed()-from < d {
				continue
			}
			return false, nil
		case <-committed:
			stop()
			if slept := m.clock.Elapsed() - from; slept < min(commitGap, d) {
				committed, d = nil, min(commitGap, d)
				continue
			}
			return false, nil
		case <-w.wake:
		case <-over:
			last = true
		case <-ctx.Done():
			err = ctx.Err()
		case <-m.closed:
			err = ErrClosed
		}
		stop()
		return last, err
	}
}

// attempt acquires one of the names if one is free. It looks first, with
// plain reads, and locks only what it saw free, unless blind.
func (m *Manager) attempt(ctx context.Context, c claim, blind bool) (*Lease, view, error) {
	v := view{free: c.names}
	if !blind {
		var err error
		if v, err = m.look(ctx, c); err != nil {
			return nil, v, err
		}
	}
	free := v.free
	for _, name := range free {
		l, r, err := m.grant(ctx, c, name)
		if l != nil || err != nil {
			return l, v, err
		}
		v.add(r)
	}
	return nil, v, nil
}

// look reads what is free.
func (m *Manager) look(ctx context.Context, c claim) (v view, err error) {
	read := m.lookAtOne
	if len(c.names) > 1 {
		read = m.lookAtSlots
	}
	if v, err = read(ctx, c); err != nil {
		return view{}, fmt.Errorf("leases: look at %s: %w", c.key.name, err)
	}
	return v, nil
}

func (m *Manager) lookAtOne(ctx context.Context, c claim) (v view, err error) {
	ctx, cancel := m.op(ctx)
	defer cancel()
	err = m.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) error {
		now, err := m.store.Peek(ctx)
		if err != nil {
			return err
		}
		r, _, err := m.table.get(ctx, q, m.table.read, c.names[0])
		if err != nil {
			return err
		}
		v = view{}
		v.add(reading{row: r, now: now})
		return nil
	})
	return v, err
}

// lookAtSlots reads a semaphore's part of the table at once, and names the
// free slots in an order that spreads claims over them.
func (m *Manager) lookAtSlots(ctx context.Context, c claim) (v view, err error) {
	found := map[string]reading{}
	for r, err := range m.scan(ctx, slotPrefix(c.key.name)) {
		if err != nil {
			return v, err
		}
		found[r.name] = r
	}
	from := mathrand.IntN(len(c.names))
	for i := range c.names {
		name := c.names[(from+i)%len(c.names)]
		r, granted := found[name]
		if !granted {
			r.name = name // never yet, so it is free
		}
		v.add(r)
	}
	return v, nil
}

// heldNow is the error of those who leave without a lease.
func (m *Manager) heldNow(ctx context.Context, c claim) error {
	v, err := m.look(ctx, c)
	if err != nil {
		return err
	}
	return &HeldError{c.key.name, v.holder}
}

var errNotFree = errors.New("leases: not free")

// grant takes the lease of that name if it is free; if not, r tells by whom
// it is held.
func (m *Manager) grant(ctx context.Context, c claim, name string) (l *Lease, r reading, err error) {
	token := rand.Text()
	opCtx, cancel := m.op(ctx)
	defer cancel()
	err = m.store.Write(opCtx, func(ctx context.Context, tx *sql.Tx) error {
		r, err = m.judgeOrAdd(ctx, tx, name)
		if err != nil {
			return err
		}
		if r.held() {
			return errNotFree
		}
		r.row = row{
			name: name, token: token, owner: m.opts.Owner, epoch: max(r.epoch, r.floor) + 1,
			acquired: r.now, renewed: r.now, expires: r.now + int64(c.ttl),
		}
		return m.table.write(ctx, tx, r.row)
	})
	switch {
	case err == errNotFree:
		return nil, r, nil
	case errors.Is(err, ErrOutcomeUnknown):
		m.giveBack(ctx, c.key, name, token)
		fallthrough
	case err != nil:
		return nil, r, fmt.Errorf("leases: acquire %s: %w", name, err)
	}
	l = newLease(m, c.key, c.ttl, r)
	if err := m.gone(ctx); err != nil {
		m.giveBack(ctx, c.key, name, token)
		return nil, r, err
	}
	if err := l.Err(); err != nil && c.ttl > 0 {
		m.giveBack(ctx, c.key, name, token)
		return nil, r, fmt.Errorf("leases: acquire %s: granted too late: %w", name, err)
	}
	m.emit(Event{Kind: Granted, Info: l.Info(), Waited: m.clock.Elapsed() - c.began})
	return l, r, nil
}

// gone reports why there is nobody to hand a grant to, if so.
func (m *Manager) gone(ctx context.Context) error {
	if m.isClosed() {
		return ErrClosed
	}
	return ctx.Err()
}

// judgeOrAdd judges a name under its lock, for which there must be a row.
func (m *Manager) judgeOrAdd(ctx context.Context, tx *sql.Tx, name string) (reading, error) {
	r, err := m.judge(ctx, tx, m.table.lock, name)
	if err != nil || r.found {
		return r, err
	}
	if _, err := tx.ExecContext(ctx, m.table.add, name); err != nil {
		return r, err
	}
	return m.judge(ctx, tx, m.table.lock, name)
}

// giveBack frees a lease that was granted, or may have been, but is not
// handed out. If that fails it expires by itself.
func (m *Manager) giveBack(ctx context.Context, key lineKey, name, token string) {
	ctx, cancel := context.WithTimeout(hint.Urgent(context.WithoutCancel(ctx)), releaseTimeout)
	defer cancel()
	if _, err := m.free(ctx, name, token); err != nil {
		m.log.Warn("lease not given back", "name", name, "err", err)
	}
	m.wake(key)
}

// free frees the row of name if it has that token, expired or not. The
// reading is of before.
func (m *Manager) free(ctx context.Context, name, token string) (r reading, err error) {
	err = m.store.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		r, err = m.judge(ctx, tx, m.table.lock, name)
		if err != nil || r.token != token {
			return err
		}
		freed := r.row
		freed.token, freed.owner, freed.expires = "", "", 0
		return m.table.write(ctx, tx, freed)
	})
	return r, err
}
