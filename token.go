package coopsqlite

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// token ends the statements of one connection that run with one context, and
// no others. It serves one context at a time, and is used again for the next.
type token struct {
	*shim.Token
	ctx   context.Context
	stop  func() bool
	fire  func() // when ctx ends
	fired atomic.Bool
	users int
}

func newToken() *token {
	t := &token{Token: shim.NewToken()}
	t.fire = func() {
		t.Cancel()
		t.fired.Store(true)
	}
	return t
}

// watch returns the token of ctx, or nil if ctx cannot end.
func (c *conn) watch(ctx context.Context) *token {
	done := ctx.Done()
	if done == nil {
		return nil
	}
	if c.token != nil {
		// Contexts with the same Done channel end together.
		if c.token.ctx.Done() == done {
			return c.token
		}
		c.unwatch(c.token)
		c.token = nil
	}
	var t *token
	if n := len(c.tokens); n > 0 {
		t = c.tokens[n-1]
		c.tokens = c.tokens[:n-1]
	} else {
		t = newToken()
	}
	t.ctx, t.users = ctx, 1
	t.stop = context.AfterFunc(ctx, t.fire)
	c.token = t
	return t
}

// unwatch gives up one use of the token. The caller must forget it.
func (c *conn) unwatch(t *token) {
	if t == nil {
		return
	}
	if t.users--; t.users > 0 {
		return
	}
	if !t.stop() {
		for !t.fired.Load() { // it is two stores long
			runtime.Gosched()
		}
	}
	t.Reset()
	t.fired.Store(false)
	t.ctx, t.stop = nil, nil
	c.tokens = append(c.tokens, t)
}

// start makes t what can end the statements that follow. A wait for the gate
// just before counts as part of the first one's wait for SQLite's locks.
func (c *conn) start(t *token) {
	waited := c.grant.waited
	c.grant.waited = 0
	if t == nil {
		c.sh.Watch(nil, waited)
		return
	}
	c.sh.Watch(t.Token, waited)
}

// ended is the context's error, if that is what ended a statement.
func (t *token) ended() error {
	if t == nil {
		return nil
	}
	return t.ctx.Err()
}
