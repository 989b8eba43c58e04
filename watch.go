package coopsqlite

import "context"

// watcher looks after a store that others can reach too.
type watcher struct{ cancel context.CancelFunc }

func (o *ownership) startWatch(c *Connector) {}
func (o *ownership) remember()               {}
func (w *watcher) stop()                     {}
