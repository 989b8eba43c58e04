package leases

import "slices"

// lineKey is what waiters queue up for: a lease, or a semaphore of so many
// slots.
type lineKey struct {
	name  string
	slots int
}

// line is the queue of one key, first come first served. Only the waiter at
// its head asks the store.
type line struct{ waiters []*waiter }

type waiter struct {
	key  lineKey
	head chan struct{} // closed once the waiter is the first
	wake chan struct{} // holds a token when something was freed here
}

func (m *Manager) join(key lineKey) *waiter {
	w := &waiter{key: key, head: make(chan struct{}), wake: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lines[key]
	if l == nil {
		l = &line{}
		m.lines[key] = l
	}
	l.waiters = append(l.waiters, w)
	if len(l.waiters) == 1 {
		close(w.head)
	}
	return w
}

func (m *Manager) leave(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lines[w.key]
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	switch {
	case len(l.waiters) == 0:
		delete(m.lines, w.key)
	case i == 0:
		close(l.waiters[0].head)
	}
}

func (m *Manager) hasLine(key lineKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines[key] != nil
}

// wake tells the first in line that something of that key was freed in this
// Manager.
func (m *Manager) wake(key lineKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.lines[key]; l != nil {
		l.waiters[0].rouse()
	}
}

func (m *Manager) wakeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lines {
		l.waiters[0].rouse()
	}
}

func (w *waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default: // it has been told already
	}
}
