package outbox

import (
	"errors"
	"fmt"
)

var (
	// ErrClaimLost is the answer to an Ack, Nack or Extend for a claim that is
	// no longer the event's current one: it expired and another relay has the
	// event now, or the event was answered already. Nothing was changed. See
	// [ClaimLostError].
	ErrClaimLost = errors.New("outbox: claim lost")

	// ErrInvalidEvent is the answer to an event with a field out of bounds.
	// Nothing was written.
	ErrInvalidEvent = errors.New("outbox: invalid event")

	// ErrNoTransaction is the answer to Append with a *sql.DB, a *sql.Conn or a
	// wrapper of one: the event would not be committed together with anything.
	ErrNoTransaction = errors.New("outbox: Append needs a transaction")

	// ErrNotDead is the answer to Requeue and Discard for an event that is not
	// dead, or not there. Nothing was changed.
	ErrNotDead = errors.New("outbox: event is not dead")
)

// A ClaimLostError names the events whose claims were lost. It is ErrClaimLost.
type ClaimLostError struct {
	IDs []int64
}

func (e *ClaimLostError) Error() string {
	return fmt.Sprintf("outbox: claim lost: events %v", e.IDs)
}

// Is reports whether target is [ErrClaimLost].
func (e *ClaimLostError) Is(target error) bool { return target == ErrClaimLost }

// Permanent marks an error of deliver as final: the event is dead at once,
// however many attempts were left. Use it where trying again cannot help, such
// as for a message that the consumer rejects as malformed.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

func isPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}
