package coopsqlite

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

// watcher looks after a store that others can reach too: it repairs what an
// outsider's DDL has opened, and it notices when the file, the lock or the
// ownership is no longer ours.
type watcher struct {
	cancel context.CancelFunc
	done   chan struct{}
	file   os.FileInfo // the store as it was when it was taken over
	mu     sync.Mutex
	pools  []*Connector // whose connections the watcher may use
}

// join adds a pool, and starts watching with the first.
func (w *watcher) join(c *Connector) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pools = append(w.pools, c)
	if w.done != nil || c.cfg.watch == 0 || c.own.lock == nil {
		return
	}
	w.file, _ = os.Stat(c.own.path)
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.done = cancel, make(chan struct{})
	go c.own.watchFor(ctx, c.cfg.watch)
}

// leave takes a pool out; its connections are about to be closed.
func (w *watcher) leave(c *Connector) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pools = slices.DeleteFunc(w.pools, func(other *Connector) bool { return other == c })
}

// stop ends the watch and waits until it has ended.
func (w *watcher) stop() {
	if w.done != nil {
		w.cancel()
		<-w.done
	}
}

func (w *watcher) pool() *Connector {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pools) == 0 {
		return nil
	}
	return w.pools[0]
}

func (o *ownership) watchFor(ctx context.Context, interval time.Duration) {
	defer close(o.watch.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if o.lost.Load() != nil {
			return
		}
		if err := o.look(ctx); err != nil && ctx.Err() == nil && o.lost.Load() == nil {
			o.logger.Warn("coopsqlite: the watcher could not check the store", "store", o.path, "error", err)
		}
	}
}

// look checks the lock, the file, the ownership and the fences, once.
func (o *ownership) look(ctx context.Context) error {
	if current, err := o.lock.Current(); err != nil {
		return err
	} else if !current {
		o.lose("the lock file " + o.path + lockSuffix + " was removed or replaced, so another owner may have come")
		return nil
	}
	switch file, err := os.Stat(o.path); {
	case errors.Is(err, os.ErrNotExist):
		o.lose("the store's file was removed or renamed")
		return nil
	case err != nil:
		return err
	case o.watch.file != nil && !os.SameFile(file, o.watch.file):
		o.lose("another file has taken the place of the store's file")
		return nil
	}
	pool := o.watch.pool()
	if pool == nil {
		return nil
	}
	c, err := pool.connect(ctx)
	if err != nil {
		return err
	}
	err = c.lookInside(ctx)
	return first(err, c.Close())
}

// lookInside asks the store itself.
func (c *conn) lookInside(ctx context.Context) error {
	o := c.own
	c.start(c.watch(ctx))
	defer c.sh.Unwatch()
	if c.cfg.epoch && c.cov.persisted.Load() {
		row, err := readOwner(c.sh)
		if err == nil && row != nil && row.fence != o.fence.Load() {
			o.lose(c.supersededBy())
			return nil
		}
	}
	version, err := c.sh.SchemaVersion()
	if err != nil || version == c.cov.version.Load() {
		return err
	}
	repaired := 0
	err = c.writeTx(ctx, func() (err error) {
		repaired, err = c.cover()
		return err
	})
	if err == nil && repaired > 0 {
		o.counters.repairs.Add(1)
		o.logger.Warn("coopsqlite: somebody outside changed the schema; the fences were restored", "store", o.path, "statements", repaired)
	}
	return err
}
