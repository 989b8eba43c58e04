package coopsqlite

import (
	"errors"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// The fences are there for others. What they ask row by row, the driver asks
// once in every transaction that writes, under SQLite's write lock. So where a
// store has no triggers but the fences, an owner's connection runs with the
// triggers of main off, and SQLite compiles its statements as if there were none.
//
// That a trigger of the user's is never passed over rests on three things. In
// every transaction that writes, before its first write, the schema version
// must be one at which there was none: nobody else can change it until the
// transaction ends. Before any statement that may change the schema, triggers
// are on again for the rest of the transaction. And where somebody else can
// write on the connection, or its schema is not all that counts (a ConnectHook,
// an extension, SQLiteConn, ATTACH), they stay on.

// mayBePlain reports whether the connection can do without triggers, as long as
// the schema is the one that was covered last.
func (c *conn) mayBePlain() bool {
	return c.cfg.fence && c.cfg.epoch && c.own.mode != modeReader && c.cov.persisted.Load() && !c.cov.triggers.Load() &&
		!c.handedOut && !c.attached && !c.authorizerLost && triggersCanBeOff
}

var triggersCanBeOff = shim.TriggersCanBeOff()

// setTriggers turns the triggers of main on or off.
func (c *conn) setTriggers(on bool) error {
	if c.plain == !on {
		return nil
	}
	if err := c.sh.SetTriggers(on); err != nil {
		return err
	}
	c.plain = !on
	return nil
}

// chooseTriggers decides for a statement that is about to run. In autocommit it
// goes by the schema as it was covered last, which the statement's own
// transaction then compares; in a transaction that is settled already.
func (c *conn) chooseTriggers(s *statement) error {
	switch {
	case s.reads || s.transactional():
		return nil
	case !s.dml || s.attached != "":
		return c.setTriggers(true)
	case c.sh.Autocommit():
		return c.setTriggers(!c.mayBePlain())
	}
	return nil
}

// keepPlain decides at the beginning of a transaction that writes, for all of it
// up to a change of the schema. The fence has been asked, and found the schema's
// version.
func (c *conn) keepPlain() error {
	return c.setTriggers(!c.mayBePlain() || c.pending || c.sh.VersionAtBegin() != c.cov.version.Load())
}

// handOut prepares the connection for somebody who may do anything with it.
func (c *conn) handOut() {
	c.dirty, c.touched, c.handedOut = true, true, true
	_ = c.setTriggers(true) // cannot fail on an open connection
}

// errSchemaMoved: a statement has run without triggers under a schema that is
// not known.
var errSchemaMoved = errors.New("the schema has been changed by somebody else")

// askAfter asks for a statement that has changed its rows, and is going to
// commit by itself: whether this owner may write, and whether it was right to
// do so without triggers. The statement's transaction is still open.
func (c *conn) askAfter() error {
	state, err := c.sh.CheckFence()
	if err != nil {
		return err
	}
	version, err := c.sh.SchemaVersion()
	switch {
	case err != nil:
		return err
	case state == shim.Fenced && version == c.cov.version.Load():
		return nil
	case state == shim.NoOwner || state == shim.Fenced:
		return errSchemaMoved
	case state == shim.Superseded:
		c.own.counters.refused.Add(1)
		return c.own.lose(c.supersededBy())
	}
	return first(c.own.writable(), errSchemaMoved)
}

// undo takes back what an unfinished statement has written in autocommit: once a
// transaction is begun around it, its end does not commit.
func (c *conn) undo(rows *sqlite3.SQLiteRows) error {
	err := c.sh.Control(shim.Begin)
	_ = rows.Close()
	return first(err, c.sh.Control(shim.Rollback))
}
