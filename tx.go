package coopsqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// tx is a transaction begun by BeginTx.
type tx struct {
	c        *conn
	token    *token
	ctx      context.Context
	readOnly bool
	// ended: SQLite has no transaction any more, because of cause, or because
	// the user sent a COMMIT or ROLLBACK of his own.
	ended bool
	cause error
}

// BeginTx begins a transaction. One that may write waits at the gate and holds
// it until it ends; one that is read-only never waits for a writer in WAL mode,
// and refuses statements that write with SQLITE_READONLY. Of the isolation
// levels, the default, serializable and linearizable are what SQLite gives.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch level := sql.IsolationLevel(opts.Isolation); level {
	case sql.LevelDefault, sql.LevelSerializable, sql.LevelLinearizable:
	default:
		return nil, fmt.Errorf("coopsqlite: isolation level %s is not supported: SQLite's transactions are serializable", level)
	}
	if err := c.attach(ctx); err != nil {
		return nil, err
	}
	c.resync()
	if c.implicit { // what the open rows have written belongs to it, as in SQLite
		c.implicit = false
		return c.newTx(ctx, c.watch(ctx), opts.ReadOnly), nil
	}
	kind := shim.Begin
	if !opts.ReadOnly {
		kind = c.cfg.beginKind()
	}
	if kind != shim.Begin {
		if err := c.own.writable(); err != nil {
			return nil, err
		}
		if err := c.enter(ctx); err != nil {
			return nil, err
		}
	}
	t := c.watch(ctx)
	c.start(t)
	err := c.begin(kind)
	if err == nil && kind != shim.Begin {
		err = c.keepPlain()
	}
	c.sh.Unwatch()
	err = c.explain(ctx, err)
	c.settle(nil, err)
	if err != nil {
		return nil, err
	}
	c.checked = kind != shim.Begin
	return c.newTx(ctx, t, opts.ReadOnly), nil
}

func (c *conn) newTx(ctx context.Context, t *token, readOnly bool) *tx {
	if t != nil {
		t.users++
	}
	c.txMeta = metadataOf(ctx)
	c.tx = &tx{c: c, token: t, ctx: ctx, readOnly: readOnly}
	return c.tx
}

// beginKind is what _txlock says. A reader's transactions are deferred unless
// the DSN insists: it may not write, so it need not lock.
func (c *config) beginKind() shim.Kind {
	switch {
	case c.txLock == "exclusive":
		return shim.BeginExclusive
	case c.txLock == "immediate" && c.mode != modeReader:
		return shim.BeginImmediate
	}
	return shim.Begin
}

// Commit ends the transaction. When it fails, the transaction has been rolled
// back: database/sql believes it over in any case.
func (t *tx) Commit() error {
	c := t.c
	if c.tx != t {
		return sql.ErrTxDone
	}
	defer t.finish()
	c.resync()
	if t.ended && !c.inTx {
		return &abortedError{t.cause}
	}
	wrote := c.gated
	c.start(t.token)
	err := c.commit()
	c.sh.Unwatch()
	if err != nil {
		err = c.explain(t.ctx, err)
		c.rollback()
		return err
	}
	c.inTx = false
	if wrote {
		c.committed()
	}
	return nil
}

// Rollback ends the transaction; if SQLite has done so already, that is fine.
func (t *tx) Rollback() error {
	if t.c.tx != t {
		return sql.ErrTxDone
	}
	defer t.finish()
	t.c.rollback()
	return nil
}

func (t *tx) finish() {
	c := t.c
	if c.tx != t {
		return
	}
	c.tx, c.txMeta, c.checked = nil, nil, false
	c.unwatch(t.token)
	t.token = nil
	if !c.inTx && c.openWrites == 0 {
		c.leave()
	}
}
