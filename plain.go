package coopsqlite

import (
	"strconv"
	"strings"

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
// must be one at which there was none, or the schema is looked at: nobody else
// can change it until the transaction ends. After any statement that may have
// changed it, it is looked at again. And where somebody else can write on the
// connection, or its schema is not all that counts (a ConnectHook, an extension,
// SQLiteConn, ATTACH), they stay on.

// mayBePlain reports whether the connection can do without triggers, if main has
// none but the fences.
func (c *conn) mayBePlain() bool {
	return c.cfg.fence && c.cfg.epoch && c.own.mode != modeReader && c.cov.persisted.Load() &&
		!c.handedOut && !c.attached && !c.authorizerLost && triggersCanBeOff
}

var triggersCanBeOff = shim.TriggersCanBeOff()

// setTriggers turns the triggers of main on or off. That would abort rows that are
// open, wherever they have another table to open yet. To turn them off can wait.
func (c *conn) setTriggers(on bool) error {
	switch {
	case c.plain == !on, c.openRows > 0 && !on:
		return nil
	case c.openRows > 0:
		return shim.NewError(sqlite3.ErrLocked, sqlite3.ErrNoExtended(sqlite3.ErrLocked),
			"a trigger was created while rows are open on the connection: close them before the next write")
	}
	if err := c.sh.SetTriggers(on); err != nil {
		return err
	}
	c.plain = !on
	return nil
}

// chooseTriggers decides for a statement that is about to run. In autocommit it
// goes by the schema as it was covered last, which the statement's own
// transaction then compares. In a transaction that is settled, unless the schema
// may have changed in it.
func (c *conn) chooseTriggers(s *statement) error {
	switch {
	case s.reads || s.transactional():
		if c.plain && c.openRows == 0 && c.cov.triggers.Load() {
			return c.setTriggers(true) // before rows stand in the way
		}
		return nil
	case c.attached:
		c.moved = c.moved || !s.dml
		return c.setTriggers(true)
	case !s.dml:
		c.moved = true
		return nil
	case c.sh.Autocommit():
		return c.setTriggers(!c.mayBePlain() || c.cov.triggers.Load())
	case c.plain && c.moved:
		return c.keepPlain()
	}
	return nil
}

// keepPlain decides in a transaction that writes. The fence has been asked, and
// found the schema's version.
func (c *conn) keepPlain() error {
	if !c.mayBePlain() {
		return c.setTriggers(true)
	}
	triggers := c.cov.triggers.Load()
	if c.moved || c.pending || c.sh.VersionAtBegin() != c.cov.version.Load() {
		found, err := c.sh.Query("SELECT 1 FROM main.sqlite_schema WHERE type = 'trigger' AND substr(name, 1, " +
			strconv.Itoa(len(fencePrefix)) + ") != '" + fencePrefix + "' COLLATE NOCASE LIMIT 1")
		if err != nil {
			return err
		}
		if triggers = len(found) > 0; triggers {
			c.cov.triggers.Store(true) // until the fences are looked at again
		}
	}
	return c.setTriggers(triggers)
}

// isView reports whether SQLite knows of no trigger by which to write a view.
func isView(err error) bool {
	return hasCode(err, sqlite3.ErrError) && strings.HasSuffix(err.Error(), "because it is a view")
}

// seeTriggers makes SQLite look for triggers that have come since it read the
// schema, and lets them run.
func (c *conn) seeTriggers() error {
	if _, err := c.sh.Query("SELECT 1 FROM main.sqlite_schema LIMIT 1"); err != nil {
		return err
	}
	return c.setTriggers(true)
}

// handOut prepares the connection for somebody who may do anything with it.
func (c *conn) handOut() {
	c.dirty, c.touched, c.handedOut = true, true, true
	if c.plain {
		_ = c.sh.SetTriggers(true) // cannot fail on an open connection
		c.plain = false
	}
}
