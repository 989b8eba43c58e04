package coopsqlite

import (
	"context"
	"time"
)

// A commit makes the page caches of all connections but its own stale. Were
// writers to take turns on connections of their own, each would read anew what
// the one before has just written. So where many wait at the gate, whoever is
// let in writes on one connection, the pool's hot one, and returns to its own
// when it leaves. A writer that is alone stays on its own, whose cache then is
// good for its reads too.

const (
	// streakOfOne is how many times in a row a connection must have written for
	// its own cache to be worth more than the hot one's.
	streakOfOne = 4
	// hotRetry is the pause after a hot connection could not be opened.
	hotRetry = time.Second
)

// borrow makes the pool's hot connection the one in use, if that is known to
// help and nothing ties the caller to its own. The gate has just been taken.
func (c *conn) borrow() {
	g := c.gate
	if g.writer != c {
		g.writer, g.streak = c, 0
	} else {
		g.streak++
	}
	if c.physical == g.warm.Load() || g.streak >= streakOfOne || c.own.lock == nil || c.alone || c.inTx || c.openRows > 0 || !c.lendable() {
		return
	}
	hot := c.connector.takeHot()
	if hot == nil {
		return
	}
	hot.sh.Follow(c.sh)
	c.home, c.physical = c.physical, hot
}

// giveBack ends the use of the hot connection. Where the caller has left
// something behind in it, that one becomes its own. The gate is still held.
func (c *conn) giveBack() {
	c.gate.warm.Store(c.physical)
	if c.home == nil {
		c.wrote = true
		return
	}
	hot, home := c.physical, c.home
	c.home = nil
	if c.inTx || c.openRows > 0 || !hot.lendable() {
		c.forsake(home)
		c.connector.loseHot(home)
		return
	}
	c.forsake(hot)
	home.sh.Follow(hot.sh)
	c.physical = home
	c.connector.putHot(hot)
}

// forsake lets go of what the open prepared statements have on p. They are
// compiled again when they are next used.
func (c *conn) forsake(p *physical) {
	for st := range c.prepared {
		if st.s != nil && st.s.home == p {
			st.s.release()
			st.s = nil
		}
	}
}

// takeHot returns the hot connection, unless there is none or it is taken.
func (c *Connector) takeHot() *physical {
	c.mu.Lock()
	defer c.mu.Unlock()
	hot := c.hot
	if hot != nil {
		c.hot, c.hotTaken = nil, true
	}
	return hot
}

func (c *Connector) putHot(hot *physical) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hotTaken = false
	if c.closed {
		_ = hot.destroy()
		return
	}
	hot.parkedIn = c.round
	c.hot = hot
	c.trimLater()
}

// loseHot notes that a connection has kept the hot one, and left its own.
func (c *Connector) loseHot(left *physical) {
	c.mu.Lock()
	c.hotTaken = false
	c.mu.Unlock()
	if !c.park(left) {
		_ = left.destroy()
	}
}

// openHot provides the hot connection, now that writers wait for each other. It
// is called without the gate: opening runs the user's hook, which may write.
func (c *Connector) openHot() {
	c.mu.Lock()
	if c.closed || c.hot != nil || c.hotTaken || time.Since(c.hotFailed) < hotRetry {
		c.mu.Unlock()
		return
	}
	c.hotTaken = true
	c.mu.Unlock()
	hot, _, err := c.tryOpen(context.Background())
	if err == nil && hot.lendable() {
		c.putHot(hot.physical)
		return
	}
	if err == nil {
		_ = hot.destroy()
	}
	c.mu.Lock()
	c.hotTaken, c.hotFailed = false, time.Now()
	c.mu.Unlock()
}
