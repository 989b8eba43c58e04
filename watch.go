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
		err := o.look(ctx)
		switch {
		case err == nil || ctx.Err() != nil || o.lost.Load() != nil:
		case errors.Is(err, context.DeadlineExceeded):
			o.logger.Debug("coopsqlite: the watcher had to wait for a transaction", "store", o.path, "error", err)
		default:
			o.logger.Warn("coopsqlite: the watcher could not check the store", "store", o.path, "error", err)
		}
	}
}

// lookLimit bounds the wait for a lock or for the gate, since the files are not
// looked at meanwhile. If a transaction takes longer, its commit completes the
// fences.
const lookLimit = time.Second

// look checks the lock, the file, the ownership and the fences, once.
func (o *ownership) look(ctx context.Context) error {
	if current, err := o.lock.Current(); err != nil {
		return err
	} else if !current {
		o.lose("the lock file " + o.path + lockSuffix + " was removed or replaced, so another owner may have come")
		return nil
	}
	if err := o.lookAtFile(); err != nil {
		return err
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

// lookAtFile notices that the store's file is not the one that was taken over.
func (o *ownership) lookAtFile() error {
	if o.file == nil {
		return nil
	}
	switch file, err := os.Stat(o.path); {
	case errors.Is(err, os.ErrNotExist):
		return o.lose("the store's file was removed or renamed")
	case err != nil:
		return err
	case !os.SameFile(file, o.file):
		return o.lose("another file has taken the place of the store's file")
	}
	return nil
}

// lookInside asks the store itself.
func (c *conn) lookInside(ctx context.Context) error {
	o := c.own
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
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
	before := c.repairs
	err = c.writeTx(ctx, c.cover)
	if err == nil && c.repairs > before {
		o.counters.repairs.Add(1)
		o.logger.Warn("coopsqlite: somebody outside changed the schema; the fences were restored", "store", o.path)
	}
	return err
}
