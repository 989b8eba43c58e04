package coopsqlite

import (
	"context"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// repairIfChanged completes the fences if the schema is not the one that was
// covered last.
func (c *conn) repairIfChanged(ctx context.Context) error {
	if c.own.mode == modeReader {
		return nil
	}
	version, err := c.sh.SchemaVersion()
	if err != nil || version == c.cov.version.Load() {
		return err
	}
	return c.writeTx(ctx, func() error { return nil })
}

// writeTx runs fn in a write transaction of ours, at the gate like any other.
func (c *conn) writeTx(ctx context.Context, fn func() error) error {
	if err := c.own.writable(); err != nil {
		return err
	}
	if err := c.enter(ctx); err != nil {
		return err
	}
	t := c.watch(ctx)
	c.start(t)
	err := c.begin(shim.BeginImmediate)
	if err == nil {
		c.inTx = true
		if err = fn(); err == nil {
			err = c.commit()
		}
		if err != nil {
			c.rollback()
		}
	}
	c.sh.Unwatch()
	c.inTx = !c.sh.Autocommit()
	if err == nil {
		c.committed()
	}
	c.leave()
	return c.explain(ctx, err)
}
