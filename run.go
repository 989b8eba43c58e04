package coopsqlite

import (
	"context"
	"database/sql/driver"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// result is what a statement changed, as mattn's driver reports it.
type result struct{ id, changes int64 }

func (r result) LastInsertId() (int64, error) { return r.id, nil }
func (r result) RowsAffected() (int64, error) { return r.changes, nil }

// run runs a statement to the end of its changes, and lets go of it.
func (c *conn) run(ctx context.Context, s *statement, args []driver.NamedValue) (driver.Result, error) {
	for {
		res, err := c.tryRun(ctx, s, args)
		if err != shim.ErrNamesMoved {
			return res, err
		}
	}
}

func (c *conn) tryRun(ctx context.Context, asked *statement, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.findAndAdmit(ctx, asked)
	if err != nil {
		if err == errRollbackDone {
			err = nil
		}
		return result{}, err
	}
	if c.implicit && s.opens && !s.savepoint {
		c.implicit = false // what the open rows have written belongs to it, as in SQLite
		s.letGo(asked)
		return result{}, nil
	}
	alone := c.canRunAlone(s)
	err = c.chooseTriggers(s)
	var stmt *shim.Stmt
	if err == nil {
		stmt, err = c.compiled(s, s.unguardable() && (alone && !c.plain || c.unguarded()))
	}
	if err == nil {
		err = c.setMetadata(ctx)
	}
	var res driver.Result = result{}
	if err == nil && stmt != nil {
		c.start(c.watch(ctx))
		res, err = c.runGuarded(s, stmt, args, alone)
		c.sh.Unwatch()
	}
	if err == shim.ErrNamesMoved {
		err = c.judgeMoved(s)
	}
	err = c.explain(ctx, err)
	s.drop(stmt)
	s.letGo(asked)
	c.settle(s, err)
	return res, err
}

// canRunAlone reports whether the statement can be a transaction of its own in
// one crossing into C, for which the fence is asked once, not for every row.
// That begins with BEGIN IMMEDIATE, which would lock attached databases too.
func (c *conn) canRunAlone(s *statement) bool {
	return s.unguardable() && !s.wrap && !c.inTx && c.openRows == 0 && !c.attached &&
		c.cfg.fence && c.cfg.epoch && !c.authorizerLost && c.cov.persisted.Load()
}

// note remembers what the statement has left behind in the connection.
func (c *conn) note(s *statement) {
	if s.dirties {
		c.dirty = true
	}
	if s.attaches {
		c.lookForAttached()
	}
}

// lookForAttached finds out whether databases are attached.
func (c *conn) lookForAttached() {
	found, err := c.sh.Query("SELECT 1 FROM pragma_database_list WHERE name NOT IN ('main', 'temp')")
	c.attached = err != nil || len(found) > 0
}

// compiled returns the statement in the form that is right now. It is compiled if
// it was only judged before, or needed in the other form; or if rows of it are open,
// for one use: see drop.
func (c *conn) compiled(s *statement, unguarded bool) (*shim.Stmt, error) {
	form := &s.stmt
	if unguarded {
		form = &s.inTx
	}
	stmt := *form
	if stmt == nil || stmt.Open() {
		p, err := c.sh.Prepare(s.text, s.cached, c.omit(s.text, unguarded))
		if err != nil {
			return nil, err
		}
		if p.Stmt != nil && (s.onlyTemp && p.Stmt.Seen&shim.WriteMain != 0 || s.sealed && p.Stmt.Seen&shim.WriteAttached != 0) {
			p.Stmt.Finalize() // it is not what was judged
			return nil, shim.ErrNamesMoved
		}
		if stmt = p.Stmt; *form == nil {
			*form = stmt
		}
	}
	if stmt != nil {
		stmt.Sealed, stmt.Temp = s.sealed, s.onlyTemp
	}
	return stmt, nil
}

// runGuarded runs the statement with what the fence needs before and after it.
func (c *conn) runGuarded(s *statement, stmt *shim.Stmt, args []driver.NamedValue, alone bool) (driver.Result, error) {
	wrapped := (s.wrap || s.dml && c.plain) && !c.inTx
	if alone {
		version := int64(-1)
		if c.plain {
			version = c.cov.version.Load()
		}
		rowid, changes, state, err := c.sh.RunAlone(stmt, &c.args, args, version)
		if err != nil || state == shim.Fenced {
			return result{rowid, changes}, err
		}
		wrapped = true // says why not, or puts right what is wrong
	}
	if wrapped {
		if err := c.begin(shim.BeginImmediate); err != nil {
			return nil, err
		}
	}
	if s.commits {
		if err := c.beforeCommit(); err != nil {
			c.rollBack()
			return nil, err
		}
	}
	if !wrapped { // then begin has asked
		if err := c.askFirst(s); err != nil {
			return nil, err
		}
	}
	rowid, changes, err := c.step(s, stmt, args)
	if err == nil && !wrapped && c.gated && !c.checked && !c.sh.Autocommit() {
		err = c.checkOnce()
	}
	if err == nil && s.ddl && !c.sh.Autocommit() {
		err = c.afterDDL(s)
	}
	if wrapped {
		err = c.unwrap(s, err)
	}
	if err != nil {
		return nil, err
	}
	c.note(s)
	return result{rowid, changes}, nil
}

// unwrap ends the transaction around a statement, which ended with err. As in
// autocommit, what ON CONFLICT FAIL keeps is kept.
func (c *conn) unwrap(s *statement, err error) error {
	if err == nil || s.dml && hasCode(err, sqlite3.ErrConstraint) && !c.sh.Autocommit() {
		failed := c.commit()
		if failed == nil {
			return err
		}
		err = first(err, failed)
	}
	c.rollBack()
	return err
}

// afterDDL does what cannot wait for the commit: changes of a new table are
// recorded from its first row on, and while coop_owner or coop_guard is missing
// SQLite refuses to rename anything, since the fences name them.
func (c *conn) afterDDL(s *statement) error {
	if c.cfg.changes.none() && !s.dropsOurs && !s.touchesOwner {
		return nil
	}
	return c.restoreOwner()
}

// askFirst asks the fence before a statement that no trigger guards and no
// transaction can be put around: VACUUM, and PRAGMAs such as journal_mode. It
// does so too before the first write of a transaction that was not begun by us
// with BEGIN IMMEDIATE, if that write may take the answer away with coop_owner,
// or if no trigger will ask. Other writes of such a transaction are judged when
// they have run.
func (c *conn) askFirst(s *statement) error {
	if s.reads || s.transactional() || c.checked || c.own.mode == modeReader {
		return nil
	}
	switch auto := c.sh.Autocommit(); {
	case auto && s.dml, !auto && !s.touchesOwner && !c.authorizerLost && !c.plain:
		return nil
	case !auto:
		// The question is a read, and behind a read SQLite does not wait for
		// the write lock. So that comes first.
		if err := c.sh.Control(shim.LockForWrite); err != nil && !hasCode(err, sqlite3.ErrError) {
			return err
		}
	}
	if c.plain && !c.sh.Autocommit() {
		return c.checkOnce()
	}
	state, err := c.sh.CheckFence()
	if err != nil || state == shim.NoOwner {
		return err
	}
	return c.admit(state)
}

// step runs the statement itself.
func (c *conn) step(s *statement, stmt *shim.Stmt, args []driver.NamedValue) (rowid, changes int64, err error) {
	if s.alters && !c.cfg.changes.none() {
		return c.runAltering(s, stmt, args)
	}
	return c.sh.Run(stmt, &c.args, args)
}

// checkOnce asks the fence after the first write of a transaction that was not
// begun by us with BEGIN IMMEDIATE.
func (c *conn) checkOnce() error {
	state, err := c.sh.CheckFence()
	if err == nil {
		err = c.admit(state)
	}
	if err == nil && c.plain {
		if _, err = c.sh.SchemaVersion(); err == nil {
			err = c.keepPlain()
		}
	}
	c.checked = err == nil
	return err
}

// settle brings the driver's idea of the transaction up to SQLite's after a
// statement, and passes the gate on when no transaction is left.
func (c *conn) settle(s *statement, err error) {
	auto := c.sh.Autocommit()
	if s != nil && s.rollsBack && err == nil {
		c.forget()
		if c.inTx && auto {
			c.own.counters.rollbacks.Add(1)
		}
	}
	switch {
	case !auto:
	case c.implicit:
		c.implicit, c.checked = false, false
		c.forget()
	case c.inTx:
		c.endOfTx(err)
	}
	c.inTx = !auto
	c.moved = c.moved && c.inTx
	if auto && c.openWrites == 0 {
		switch {
		case !c.gated || s != nil && s.rollsBack:
		case err == nil:
			c.committed()
		default:
			// ON CONFLICT FAIL keeps what came before the error.
			c.own.commits.fire()
		}
		c.leave()
	}
}

// endOfTx notes that a transaction is over that the caller may believe in.
func (c *conn) endOfTx(err error) {
	c.checked = false
	if err != nil {
		c.own.counters.aborted.Add(1)
		c.forget()
	}
	if c.tx != nil {
		c.tx.ended, c.tx.cause = true, err
	} else {
		c.aborted = err
	}
}

// committed records what a commit made true, and tells those who wait for one.
func (c *conn) committed() {
	c.record()
	c.own.counters.commits.Add(1)
	c.own.commits.fire()
}

// record keeps what cover found, now that it is committed.
func (c *conn) record() {
	if c.pending {
		c.cov.triggers.Store(c.pendingTriggers)
		c.cov.replaces.Store(c.pendingReplaces)
		c.cov.version.Store(c.pendingVersion)
		c.pending = false
	}
	if c.pendingOwner {
		c.cov.persisted.Store(true)
		c.pendingOwner = false
	}
}

// forget drops what cover found, after a rollback: also one to a savepoint may
// have undone it, and its schema version with it.
func (c *conn) forget() { c.pending, c.pendingOwner = false, false }

// beforeCommit completes the fences if the transaction has changed the schema
// or follows an outsider's change; the schema version tells. It also keeps an
// owner from committing that was closed meanwhile.
func (c *conn) beforeCommit() error {
	if !c.gated || c.own.mode == modeReader {
		return nil
	}
	if err := c.own.writable(); err != nil {
		return err
	}
	version, err := c.sh.SchemaVersion()
	if err != nil || !c.moved && version == c.cov.version.Load() || c.pending && version == c.pendingVersion {
		return err
	}
	return c.cover()
}

// commit ends a transaction of ours. On error it is still open.
func (c *conn) commit() error {
	if err := c.beforeCommit(); err != nil {
		return err
	}
	return c.sh.Control(shim.Commit)
}

// rollback ends whatever transaction is open and passes the gate on.
func (c *conn) rollback() {
	c.sh.Unwatch()
	c.rollBack()
	if c.openWrites == 0 {
		c.leave()
	}
}

// rollBack ends whatever transaction is open. The gate is kept for what is left
// to do on the connection: settle passes it on.
func (c *conn) rollBack() {
	c.sh.Refresh()
	if !c.sh.Autocommit() {
		_ = c.sh.Control(shim.Rollback)
		c.own.counters.rollbacks.Add(1)
	}
	c.forget()
	c.lifted, c.checked, c.implicit, c.moved = nil, false, false, false
	c.inTx = !c.sh.Autocommit()
}

// explain turns SQLite's error into what the caller should see: the context's
// error where that ended the statement, ours where the fence refused it.
func (c *conn) explain(ctx context.Context, err error) error {
	var e sqlite3.Error
	if err == nil || !asSQLite(err, &e) {
		return err
	}
	switch e.Code {
	case sqlite3.ErrInterrupt:
		if ctxErr := ctx.Err(); ctxErr != nil {
			return ctxErr
		}
	case sqlite3.ErrBusy:
		c.own.counters.busy.Add(1)
		// Where SQLite does not wait (a snapshot that is too old, say), its
		// error says more than ours could.
		if waited, asked := c.sh.BusyWaited(); asked || ctx.Err() != nil {
			busy := &BusyError{}
			if !c.gated { // a reader in rollback-journal mode, whom a writer keeps out
				busy = c.gate.busy()
			}
			busy.Path, busy.Waited, busy.cause, busy.sqlite = c.own.name(), waited, ctx.Err(), e
			return busy
		}
	case sqlite3.ErrConstraint:
		switch e.Error() {
		case ErrFenced.Error():
			c.own.counters.refused.Add(1)
			reason := "the sql.DB that owned the store was closed"
			if c.own.mode == modeReader {
				reason = "it was opened as a reader"
			}
			return &fencedError{ErrFenced, c.own.name(), reason, e}
		case ErrSuperseded.Error():
			c.own.counters.refused.Add(1)
			if state, err := c.sh.CheckFence(); err == nil && state == shim.NoOwner {
				return &fencedError{ErrSuperseded, c.own.name(), "the row of coop_owner is gone: it comes back with the next transaction", e}
			}
			lost := c.own.lose("a newer owner has taken the store over")
			return &fencedError{ErrSuperseded, c.own.name(), lost.reason, e}
		}
	}
	return err
}

// asSQLite finds an error of SQLite that is not wrapped yet.
func asSQLite(err error, e *sqlite3.Error) bool {
	found, ok := err.(sqlite3.Error)
	*e = found
	return ok
}
