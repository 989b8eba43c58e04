package coopsqlite

import (
	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// physical is one connection of SQLite, and all that cannot leave it. A [conn]
// has one of its own, and may write on its pool's hot one: see hot.go.
type physical struct {
	source  *sqlite3.SQLiteConn // mattn's connection
	sh      *shim.Conn
	cov     *coverState
	gate    *gate
	cache   *stmtCache
	tokens  []*token       // to be used again,
	cursors []*shim.Cursor // and these
	meta    metaSource     // what coop_context answers from now

	busyLimit      int64 // as it was opened, in milliseconds
	plain          bool  // the triggers of main are off: see plain.go
	handedOut      bool  // somebody has had mattn's connection
	authorizerLost bool
	attached       bool  // there are attached databases
	dirty          bool  // not as it was opened
	touched        bool  // somebody used mattn's connection directly
	parkedIn       int   // the round of trimming in which it was parked
	user           *conn // who has parked it, if nobody has had it since
}

func newPhysical(c *Connector, source *sqlite3.SQLiteConn) (*physical, error) {
	p := &physical{
		source: source, cov: &c.own.coverage, gate: &c.own.gate, cache: newStmtCache(c.cfg.stmtCache),
		busyLimit: c.cfg.busyTimeout.Milliseconds(),
	}
	if c.own.private() {
		// Every connection has a database of its own, empty now.
		p.cov, p.gate = &coverState{}, &gate{}
	}
	// A hook or an extension may keep the connection, and write on it any time.
	p.handedOut = c.options.ConnectHook != nil || len(c.options.Extensions) > 0
	var err error
	p.sh, err = shim.Attach(source, c.own.shim, p.busyLimit)
	return p, err
}

// clean reports whether it is as it was opened, so that anybody may have it.
func (p *physical) clean() bool { return !p.dirty && !p.touched && p.sh.BusyLimit() == p.busyLimit }

// lendable reports whether anybody may write on it in place of his own.
func (p *physical) lendable() bool { return p.clean() && !p.attached && !p.authorizerLost }

// finalize ends the statements, which must precede mattn's Close: it would leave
// the handle open for those that come later.
func (p *physical) finalize() {
	p.cache.clear()
	p.sh.Close()
}

func (p *physical) destroy() error {
	p.finalize()
	err := p.source.Close()
	p.free()
	return err
}

// free gives the memory back, once mattn's connection is closed.
func (p *physical) free() {
	p.sh.Free()
	for _, t := range p.tokens {
		t.Free()
	}
	for _, cursor := range p.cursors {
		cursor.Free()
	}
	p.tokens, p.cursors = nil, nil
}
