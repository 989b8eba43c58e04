package reservations

import (
	"errors"
	"fmt"
)

var (
	// ErrKeyReused is the answer to a request whose key belongs to another
	// request already: other lines, another payload or another hold. Nothing
	// was changed.
	ErrKeyReused = errors.New("reservations: key was used for another request")

	// ErrInvalidRequest is the answer to an argument out of bounds. The
	// database was not asked.
	ErrInvalidRequest = errors.New("reservations: invalid request")

	// ErrNotFound is the answer to a key that no reservation has.
	ErrNotFound = errors.New("reservations: no such reservation")

	// ErrHoldEnded is the answer to Confirm and Cancel for a hold that ended
	// another way. It comes as a [HoldEndedError].
	ErrHoldEnded = errors.New("reservations: hold has ended")

	// ErrUnknownSKU is the answer of Restock and Available for a SKU that
	// SetStock never created.
	ErrUnknownSKU = errors.New("reservations: unknown SKU")

	// ErrStockExists is the answer of SetStock for a SKU that is there.
	ErrStockExists = errors.New("reservations: stock exists")
)

// A HoldEndedError says how the hold ended. It is ErrHoldEnded.
type HoldEndedError struct {
	Scope, Key string
	State      State
}

func (e *HoldEndedError) Error() string {
	return fmt.Sprintf("reservations: hold %q has ended: %s", e.Key, e.State)
}

// Is reports whether target is [ErrHoldEnded].
func (e *HoldEndedError) Is(target error) bool { return target == ErrHoldEnded }
