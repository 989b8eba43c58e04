package coopsqlite

import (
	"context"
	"fmt"

	"github.com/coopsqlite/coopsqlite/internal/hint"
)

// Bulk runs fn in one write transaction in which the named tables have no
// fences, so that rows go in at plain speed, and DELETE FROM without WHERE
// keeps SQLite's truncate optimization
// (https://sqlite.org/lang_delete.html#the_truncate_optimization). The fences
// are put back before the commit: nobody outside ever sees the tables without.
// Where the owner's connections run without the fences anyhow, because the store
// has no other triggers, they are left alone.
//
// An error of fn rolls everything back and is returned as it is. For the
// DBTX, contexts and what is refused, see [Store.Write]; unlike there, nothing
// is shared with other calls.
func (s *Store) Bulk(ctx context.Context, tables []string, fn func(DBTX) error) (err error) {
	if s.own.mode == modeReader {
		return readerError(s.own.name())
	}
	if hint.IsInside(ctx, s.own) {
		return ErrNested
	}
	ctx = hint.Inside(ctx, s.own)
	session, err := s.newSession(ctx)
	if err != nil {
		return err
	}
	defer session.close()
	if err := session.begin(ctx); err != nil {
		return err
	}
	defer session.end() // after a commit there is nothing left to roll back
	if err := session.do(func(c *conn) error { return c.lift(tables) }); err != nil {
		return err
	}
	if err := session.call(ctx, fn); err != nil {
		return err
	}
	if err := session.do(func(c *conn) error { c.lower(); return nil }); err != nil {
		return err
	}
	return session.commit(ctx)
}

// call runs fn alone in the session's transaction.
func (s *session) call(ctx context.Context, fn func(DBTX) error) error {
	b := s.enter(ctx, false)
	left := false
	defer func() {
		if !left { // a panic
			_ = b.leave()
		}
	}()
	err := fn(b)
	left = true
	return first(err, b.leave())
}

// lift takes the fences of the named tables away until the commit.
func (c *conn) lift(names []string) error {
	if c.plain { // the fences are not in the way
		return c.exist(names)
	}
	s, err := readSchema(c.sh, c.cfg)
	if err != nil {
		return err
	}
	c.lifted = make(map[string]bool, len(names))
	for _, name := range names {
		t := s.byName[foldName(name)]
		if t == nil {
			return noSuchTable(name)
		}
		for _, fenced := range append([]string{name}, t.guards...) {
			c.lifted[foldName(fenced)] = true
			for _, f := range s.byName[foldName(fenced)].have {
				if err := c.sh.Exec(dropTrigger(f.name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func noSuchTable(name string) error { return fmt.Errorf("coopsqlite: Bulk: no such table: %s", name) }

// exist looks for the named tables.
func (c *conn) exist(names []string) error {
	for _, name := range names {
		found, err := c.sh.Query("SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = " + quoteText(name) + " COLLATE NOCASE")
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return noSuchTable(name)
		}
	}
	return nil
}

// lower lets the next look at the fences, at the latest the commit's, put back
// what lift took away.
func (c *conn) lower() {
	// DDL inside has completed the other fences, which is not enough any more.
	c.lifted, c.pending = nil, false
}
