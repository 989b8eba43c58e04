package leases

import (
	"errors"
	"fmt"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

var (
	// ErrHeld means that somebody else holds the lease, or waits for it
	// already. It comes as a [*HeldError].
	ErrHeld = errors.New("leases: held")
	// ErrLost means that the lease is no longer this holder's. It comes as a
	// [*LostError], and for good: a Lease that answered it once always does.
	ErrLost = errors.New("leases: lost")
	// ErrNotExtended means that the lease is still held and its expiry is
	// what it was: the new one would not have been later, or beyond
	// MaxLifetime.
	ErrNotExtended = errors.New("leases: not extended")
	// ErrBounds means that an argument is outside its bounds. Nothing was
	// asked of the database.
	ErrBounds = errors.New("leases: out of bounds")
	// ErrReleased is the answer of a Lease that was released.
	ErrReleased = errors.New("leases: released")
	// ErrInsideTx means that the operation was started inside the body of a
	// transaction which holds what the operation would wait for.
	ErrInsideTx = sqltx.ErrInsideTx
	// ErrClosed is the answer of a Manager that was closed.
	ErrClosed = errors.New("leases: manager closed")
	// ErrOutcomeUnknown means that the connection broke during COMMIT:
	// whether the transaction was committed has to be found out by looking.
	ErrOutcomeUnknown = sqltx.ErrOutcomeUnknown
)

// HeldError is [ErrHeld] with the holder.
type HeldError struct {
	Name string
	// Holder is who holds the lease. It is zero where nobody did when it was
	// looked up, but others were first in the queue.
	Holder Info
}

// Error names the holder.
func (e *HeldError) Error() string {
	if e.Holder.Owner == "" {
		return "LOCK_HELD: " + e.Name + " by others who came first"
	}
	return "LOCK_HELD: " + e.Name + " by " + e.Holder.Owner
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Reason says how a lease was lost.
type Reason int

const (
	// Superseded: the lease was granted to somebody else since, or freed by
	// Break.
	Superseded Reason = iota + 1
	// Expired: its time was over before it was extended.
	Expired
	// Unconfirmed: renewals went unanswered until the last confirmed expiry
	// came near.
	Unconfirmed
)

// String is the reason in words.
func (r Reason) String() string {
	switch r {
	case Superseded:
		return "superseded"
	case Expired:
		return "expired"
	case Unconfirmed:
		return "unconfirmed"
	}
	return fmt.Sprintf("Reason(%d)", int(r))
}

// LostError is [ErrLost] with the lease and the reason.
type LostError struct {
	Name   string
	Epoch  int64
	Reason Reason
	Err    error // for Unconfirmed: what the last renewal met
}

// Error names the lease, its epoch and the reason.
func (e *LostError) Error() string {
	s := fmt.Sprintf("leases: %s (epoch %d) lost: %s", e.Name, e.Epoch, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap is Err.
func (e *LostError) Unwrap() error { return e.Err }
