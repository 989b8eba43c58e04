package leases

import (
	"fmt"
	"time"
)

// EventKind is what happened to a lease.
type EventKind int

const (
	// Granted: this Manager was granted the lease.
	Granted EventKind = iota + 1
	// Renewed: its expiry was moved.
	Renewed
	// RenewalFailed: an attempt to move it went unanswered; the lease goes on
	// until its last confirmed expiry.
	RenewalFailed
	// Lost: it is no longer this Manager's.
	Lost
	// Released: it was given back.
	Released
	// Broken: Break took it from its holder.
	Broken
)

// String is the kind in words.
func (k EventKind) String() string {
	switch k {
	case Granted:
		return "granted"
	case Renewed:
		return "renewed"
	case RenewalFailed:
		return "renewal failed"
	case Lost:
		return "lost"
	case Released:
		return "released"
	case Broken:
		return "broken"
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

// Event is something that happened to a lease of this Manager.
type Event struct {
	Kind   EventKind
	Info   Info
	Waited time.Duration // Granted: from the call of Acquire
	Err    error         // RenewalFailed and Lost: why
}

func (m *Manager) emit(e Event) {
	switch e.Kind {
	case Lost:
		m.log.Error("lease lost", "name", e.Info.Name, "epoch", e.Info.Epoch, "err", e.Err)
	case RenewalFailed:
		m.log.Warn("lease not renewed", "name", e.Info.Name, "epoch", e.Info.Epoch, "err", e.Err)
	default:
		m.log.Debug("lease "+e.Kind.String(), "name", e.Info.Name, "epoch", e.Info.Epoch)
	}
	if m.opts.OnEvent != nil {
		m.opts.OnEvent(e)
	}
}
