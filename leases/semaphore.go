package leases

import (
	"context"
	"fmt"
	"time"
)

// maxSlots bounds a semaphore, since waiting for one reads all its slots.
const maxSlots = 1000

// Semaphore lets up to n holders in at once. Each slot is a lease of its own,
// name[0] to name[n-1], with epochs of its own: they order the holders of one
// slot, not those of different ones.
type Semaphore struct {
	m     *Manager
	name  string
	slots []string
	err   error
}

// Semaphore is the semaphore of that name with n slots, 1 to 1000. All its
// users should agree on n; it may grow and shrink with time. Bounds are
// checked by Acquire.
func (m *Manager) Semaphore(name string, n int) *Semaphore {
	s := &Semaphore{m: m, name: name}
	if n < 1 || n > maxSlots {
		s.err = fmt.Errorf("%w: semaphore %s has %d slots, want 1 to %d", ErrBounds, name, n, maxSlots)
		return s
	}
	if s.err = checkName("the name", name); s.err != nil {
		return s
	}
	for i := range n {
		s.slots = append(s.slots, fmt.Sprintf("%s%d]", slotPrefix(name), i))
	}
	s.err = checkName("the last slot's name", s.slots[n-1])
	return s
}

func slotPrefix(semaphore string) string { return semaphore + "[" }

// Acquire takes one slot, as [Manager.Acquire] takes a lease. The line for
// the semaphore is one for all its slots.
func (s *Semaphore) Acquire(ctx context.Context, ttl, maxWait time.Duration) (*Lease, error) {
	if s.err != nil {
		return nil, s.err
	}
	key := lineKey{name: s.name, slots: len(s.slots)}
	return s.m.acquire(ctx, claim{key: key, names: s.slots, ttl: ttl}, maxWait)
}

// With runs fn with one slot, as [Manager.With] does with a lease.
func (s *Semaphore) With(ctx context.Context, ttl, maxWait time.Duration, fn func(ctx context.Context, l *Lease) error) error {
	if err := s.m.checkTTL(ttl); err != nil {
		return err
	}
	l, err := s.Acquire(ctx, ttl, maxWait)
	if err != nil {
		return err
	}
	return s.m.hold(ctx, l, fn)
}
