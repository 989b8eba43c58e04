package coopsqlite

import (
	"context"
	"slices"
	"sync"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// maxGroup bounds how many calls share a commit, so that the first of them is
// not kept waiting by those who come later.
const maxGroup = 128

// member is one call of Write.
type member struct {
	store *Store
	ctx   context.Context
	fn    func(DBTX) error
	baton chan struct{} // received: it is this call's turn
	done  chan error    // received: the outcome of the shared commit
	limit *time.Timer   // runs while it waits for the baton
}

// memberPool spares a call what it would have to allocate.
var memberPool = sync.Pool{New: func() any {
	return &member{baton: make(chan struct{}, 1), done: make(chan error, 1), limit: stoppedTimer()}
}}

// recycle ends a call that nobody else knows of any more.
func (m *member) recycle() {
	m.store, m.ctx, m.fn = nil, nil, nil
	memberPool.Put(m)
}

// group is the transaction that calls of Write share. A baton passes from call
// to call: who holds it may use the session, and the last one commits.
type group struct {
	mu    sync.Mutex
	queue []*member
	taken bool // somebody holds the baton
	ended bool // the pool was closed

	// Touched only with the baton in hand.
	session *session
	open    bool
	shared  []*member // have run in the open transaction and await its commit
}

func (g *group) write(m *member) error {
	if err := g.await(m); err != nil {
		return err
	}
	if err := g.begin(m); err != nil {
		g.pass()
		return err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked, or called runtime.Goexit
			_ = g.undo(nil)
			g.pass()
		}
	}()
	err := g.call(m)
	returned = true
	if err != nil {
		err = g.undo(err)
		g.pass()
		return err
	}
	g.shared = append(g.shared, m)
	g.pass()
	return <-m.done
}

// await returns when the baton is m's.
func (g *group) await(m *member) error {
	g.mu.Lock()
	if !g.taken {
		g.taken = true
		g.mu.Unlock()
		return nil
	}
	if hint.IsUrgent(m.ctx) {
		g.queue = slices.Insert(g.queue, 0, m)
	} else {
		g.queue = append(g.queue, m)
	}
	g.mu.Unlock()
	start := time.Now()
	m.limit.Reset(m.store.connector.cfg.busyTimeout)
	defer m.limit.Stop()
	select {
	case <-m.baton:
		return nil
	case <-m.ctx.Done():
	case <-m.limit.C:
	}
	g.mu.Lock()
	at := slices.Index(g.queue, m)
	if at >= 0 {
		g.queue = slices.Delete(g.queue, at, at+1)
	}
	g.mu.Unlock()
	if at < 0 {
		<-m.baton // it was handed over just now
		return nil
	}
	busy := m.store.own.gate.busy()
	busy.Path, busy.Waited, busy.cause = m.store.own.name(), time.Since(start), m.ctx.Err()
	m.store.own.counters.busy.Add(1)
	return busy
}

// hand gives the baton to the next in line, or lays it down if nobody waits.
// While a transaction is open it is kept instead: the holder has to commit.
func (g *group) hand() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open && (len(g.queue) == 0 || len(g.shared) >= maxGroup) {
		return false
	}
	if len(g.queue) == 0 {
		g.taken = false
		g.closeSession()
		if g.session != nil {
			_ = g.session.do(func(c *conn) error { c.detach(); return nil })
		}
		return true
	}
	next := g.queue[0]
	g.queue = slices.Delete(g.queue, 0, 1)
	next.baton <- struct{}{}
	return true
}

// shut lets go of the session, now or when the call that uses it is done.
func (g *group) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if !g.taken {
		g.closeSession()
	}
}

// closeSession is called with g.mu held and nobody else near the session.
func (g *group) closeSession() {
	if g.ended && g.session != nil {
		g.session.close()
		g.session = nil
	}
}

// pass ends a call's use of the session: the next call joins the transaction,
// or, when there is none, it is committed.
func (g *group) pass() {
	if g.hand() {
		return
	}
	var err error
	if len(g.shared) > 0 {
		err = g.session.commit(g.shared[0].ctx)
	} else {
		g.session.rollback()
	}
	g.close(err)
	g.hand()
}

// close tells all that have shared the transaction what became of it.
func (g *group) close(err error) {
	g.open = false
	for i, m := range g.shared {
		m.done <- err
		g.shared[i] = nil
	}
	g.shared = g.shared[:0]
	if g.session.leaked {
		g.session.close()
		g.session = nil
	}
}

// begin opens the transaction, or a savepoint in the one that is open. The
// first call needs none: undoing it is undoing everything.
func (g *group) begin(m *member) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if g.session == nil {
		session, err := m.store.newSession(m.ctx)
		if err != nil {
			return err
		}
		g.session = session
	}
	if g.open {
		if err := m.store.own.admitsNew(); err != nil {
			return err
		}
		return g.session.control(m.ctx, shim.Savepoint)
	}
	if err := g.session.begin(m.ctx); err != nil {
		if g.session.broken {
			g.session.close()
			g.session = nil
		}
		return err
	}
	g.open = true
	return nil
}

// call runs fn and sees to it that what it did can be committed.
func (g *group) call(m *member) error {
	company := len(g.shared) > 0
	body := g.session.enter(m.ctx, company)
	left := false
	defer func() {
		if !left {
			body.leave()
		}
	}()
	err := m.fn(body)
	left = true
	if aborted := body.leave(); err == nil {
		err = aborted
	}
	if err != nil {
		return err
	}
	if g.session.conn.sh.DeferredViolations() {
		// COMMIT would fail, and for everybody.
		return shim.NewError(sqlite3.ErrConstraint, sqlite3.ErrConstraintForeignKey, "FOREIGN KEY constraint failed")
	}
	if company {
		return g.session.control(m.ctx, shim.Release)
	}
	return nil
}

// undo takes back what the call at hand has done, and returns its error. If
// SQLite has already taken back everything, those who had run before learn it.
func (g *group) undo(err error) error {
	if aborted := g.session.aborted(); aborted != nil {
		g.session.rollback()
		g.close(&abortedError{aborted})
		if err == nil {
			err = &abortedError{aborted}
		}
		return err
	}
	if len(g.shared) == 0 {
		g.session.rollback()
		g.close(nil)
		return err
	}
	undo := g.session.control(context.Background(), shim.RollbackTo)
	if undo == nil {
		undo = g.session.control(context.Background(), shim.Release)
	}
	if undo != nil {
		g.session.rollback()
		g.close(&abortedError{undo})
	}
	return err
}
