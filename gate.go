package coopsqlite

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// gate is the queue in which the writers of one owner wait, first come, first
// served. SQLite itself has no queue: its writers poll, and the unlucky starve.
type gate struct {
	mu     sync.Mutex
	holder *grant
	urgent waiters // before all others: what must not come late
	queue  waiters
	waits  histogram
	// crowded: somebody waits. Readers look at it without the mutex.
	crowded atomic.Bool

	// Who wrote last and how often in a row, and on what; but for reading the
	// last, of the holder alone.
	writer *conn
	streak int
	warm   atomic.Pointer[physical]
}

// grant is one passage through the gate, and who asked for it.
type grant struct {
	since  time.Time
	waited time.Duration
	pcs    [16]uintptr
	depth  int
}

// waiter is one place in a queue; its grant becomes the holder's when ready is
// sent.
type waiter struct {
	grant      *grant
	ready      chan struct{}
	limit      *time.Timer // runs while it waits
	prev, next *waiter
	in         *waiters
}

// waiters is a doubly linked list, so that a cancelled waiter leaves at once.
type waiters struct{ first, last *waiter }

func (l *waiters) push(w *waiter) {
	w.in, w.prev, w.next = l, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

func (l *waiters) remove(w *waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.in = nil
}

// waiterPool spares a wait what it would have to allocate.
var waiterPool = sync.Pool{New: func() any { return &waiter{ready: make(chan struct{}, 1), limit: stoppedTimer()} }}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// note records who asks: the program counters only, since they are looked at
// only when somebody waits in vain.
func (g *grant) note() { g.depth = runtime.Callers(3, g.pcs[:]) }

// site is the first frame outside this package and database/sql.
func (g *grant) site() string {
	frames := runtime.CallersFrames(g.pcs[:g.depth])
	for {
		frame, more := frames.Next()
		if !ownFrame(frame.Function) && frame.File != "" {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		if !more {
			return "a place that is not known"
		}
	}
}

func ownFrame(function string) bool {
	const self = "github.com/coopsqlite/coopsqlite."
	return function == "" || strings.HasPrefix(function, self) || strings.HasPrefix(function, "database/sql.")
}

// tryAcquire takes the gate if nobody holds or awaits it.
func (g *gate) tryAcquire(gr *grant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holder != nil {
		return false
	}
	gr.since, gr.waited = time.Now(), 0
	g.holder = gr
	return true
}

// acquire waits for the gate until ctx ends, but no longer than limit. The
// error is a *BusyError that names the holder.
func (g *gate) acquire(ctx context.Context, gr *grant, limit time.Duration, urgent bool) error {
	g.mu.Lock()
	if g.holder == nil {
		gr.since, gr.waited = time.Now(), 0
		g.holder = gr
		g.mu.Unlock()
		g.waits.add(0)
		return nil
	}
	start := time.Now()
	w := waiterPool.Get().(*waiter)
	w.grant = gr
	if urgent {
		g.urgent.push(w)
	} else {
		g.queue.push(w)
	}
	g.crowded.Store(true)
	g.mu.Unlock()

	w.limit.Reset(limit)
	var cause error
	select {
	case <-w.ready:
		w.limit.Stop()
		waiterPool.Put(w)
		gr.waited = time.Since(start)
		g.waits.add(gr.waited)
		return nil
	case <-ctx.Done():
		cause = ctx.Err()
	case <-w.limit.C:
	}
	w.limit.Stop()
	waited := time.Since(start)
	g.waits.add(waited)
	g.mu.Lock()
	if w.in == nil { // granted meanwhile
		<-w.ready
		waiterPool.Put(w)
		if cause == nil {
			g.mu.Unlock()
			gr.waited = waited
			return nil
		}
		g.hand()
		g.mu.Unlock()
		return cause
	}
	w.in.remove(w)
	g.crowded.Store(g.urgent.first != nil || g.queue.first != nil)
	busy := &BusyError{Holder: g.holder.site(), Since: g.holder.since, Waited: waited, cause: cause}
	g.mu.Unlock()
	waiterPool.Put(w)
	return busy
}

// release passes the gate to the next in line, and reports whether there is one.
func (g *gate) release() (contended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hand()
	return g.holder != nil
}

// hand gives the gate to the first waiter; g.mu is held.
func (g *gate) hand() {
	w := g.urgent.first
	if w == nil {
		w = g.queue.first
	}
	if w == nil {
		g.holder = nil
		return
	}
	w.in.remove(w)
	g.crowded.Store(g.urgent.first != nil || g.queue.first != nil)
	w.grant.since = time.Now()
	g.holder = w.grant
	w.ready <- struct{}{}
}

// waiting counts those in the queues.
func (g *gate) waiting() (n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range [...]waiters{g.urgent, g.queue} {
		for w := l.first; w != nil; w = w.next {
			n++
		}
	}
	return n
}

// busy describes the present holder to somebody who may not wait.
func (g *gate) busy() *BusyError {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holder == nil {
		return &BusyError{}
	}
	return &BusyError{Holder: g.holder.site(), Since: g.holder.since}
}
