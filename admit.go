package coopsqlite

import (
	"context"
	"errors"
	"fmt"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// findAndAdmit finds the statement on the connection that it will run on, takes the
// gate if it needs it, and refuses what may not run. On success the caller must
// call letGo before it gives the connection up.
func (c *conn) findAndAdmit(ctx context.Context, asked *statement) (*statement, error) {
	c.fresh = false
	s, err := c.here(ctx, asked)
	if err == nil {
		err = c.admitStatement(ctx, s)
	}
	if err == nil && !s.reads {
		err = c.enter(ctx)
		if err == nil && s.home != c.physical && s.home != nil {
			if s, err = c.here(ctx, asked); err != nil {
				s.letGo(asked)
				c.settle(nil, err)
				return nil, err
			}
		}
	}
	if err != nil {
		s.letGo(asked)
	}
	return s, err
}

// here returns the statement on the connection that is in use now.
func (c *conn) here(ctx context.Context, s *statement) (*statement, error) {
	if s.home == c.physical || s.home == nil {
		return s, nil
	}
	s, _, err := c.prepare(ctx, s.text)
	return s, err
}

// judgeMoved judges a statement anew whose names lead elsewhere now. The answer
// is ErrNamesMoved if it can be tried again.
func (c *conn) judgeMoved(s *statement) error {
	before := s.class
	if err := c.rejudge(s); err != nil {
		return err
	}
	if s.class == before {
		return fmt.Errorf("coopsqlite: %w", shim.ErrNamesMoved)
	}
	return shim.ErrNamesMoved
}

// errRollbackDone: the ROLLBACK of a transaction that SQLite had already rolled
// back.
var errRollbackDone = errors.New("already rolled back")

// admitStatement refuses what may not run now.
func (c *conn) admitStatement(ctx context.Context, s *statement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.resync()
	if err := c.admitInTx(s); err != nil {
		return err
	}
	if !s.writes {
		return nil
	}
	if c.tx != nil && c.tx.readOnly {
		c.own.counters.refused.Add(1)
		return readOnlyError()
	}
	if s.ddl && c.openWrites > 0 {
		return shim.NewError(sqlite3.ErrLocked, sqlite3.ErrNoExtended(sqlite3.ErrLocked),
			"the schema cannot be changed while rows of a RETURNING clause are open on the connection: close them first")
	}
	if s.onlyTemp {
		return nil
	}
	if c.own.mode == modeReader {
		if s.attached != "" || s.pragma || s.transactional() {
			return nil // SQLite decides
		}
		return readerError(c.own.name())
	}
	if err := c.own.writable(); err != nil {
		return err
	}
	if s.attached == "" {
		return nil
	}
	if c.refuseAttached(s.attached) == nil {
		return nil
	}
	// It may have been judged while a temporary trigger led there.
	if err := c.rejudge(s); err != nil {
		return err
	}
	if s.attached == "" {
		return c.admitStatement(ctx, s)
	}
	err := c.refuseAttached(s.attached)
	if err != nil {
		c.own.counters.refused.Add(1)
	}
	return err
}

// admitInTx refuses statements of a transaction that has ended without the
// caller's doing: they would run outside any.
func (c *conn) admitInTx(s *statement) error {
	if c.inSession && s.transactional() && !s.savepoint {
		return errors.New("coopsqlite: BEGIN, COMMIT and ROLLBACK are not allowed inside Write and Bulk: return an error to roll back")
	}
	if c.tx != nil && c.tx.ended {
		if s.opens && c.tx.cause == nil { // after a COMMIT of the caller's own
			c.tx.ended = false
			return nil
		}
		return &abortedError{c.tx.cause}
	}
	if c.aborted == nil {
		return nil
	}
	cause := c.aborted
	switch {
	case s.savepoint: // the caller believes it inside the transaction
	case s.opens:
		c.aborted = nil
		return nil
	case s.rollsBack:
		c.aborted = nil
		return errRollbackDone
	case s.commits:
		c.aborted = nil
	}
	return &abortedError{cause}
}

// refuseAttached keeps the owner of this store out of another that has an
// owner too: the fence there guards its rows, this its schema.
func (c *conn) refuseAttached(schema string) error {
	schemas := []string{schema}
	if schema == anyAttached {
		schemas = nil
		names, err := c.sh.Query("SELECT name FROM pragma_database_list WHERE name NOT IN ('main','temp')")
		if err != nil {
			return err
		}
		for _, name := range names {
			schemas = append(schemas, name.(string))
		}
	}
	for _, name := range schemas {
		has, err := c.sh.SchemaHasOwner(name)
		if err != nil {
			return err
		}
		if has {
			return &fencedError{sentinel: ErrFenced, path: c.own.name(), reason: fmt.Sprintf(
				"the attached database %q is a store with an owner of its own: write it through a sql.DB that owns it", name)}
		}
	}
	return nil
}
