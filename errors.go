package coopsqlite

import (
	"errors"
	"fmt"
	"strings"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// Errors of SQLite reach the caller as [sqlite3.Error] of mattn/go-sqlite3,
// unwrapped. The errors below are coopsqlite's own; where SQLite had a part in
// one of them, errors.As still finds the sqlite3.Error in it.
var (
	// ErrConflict says that another owner holds the store. The error is a
	// [*ConflictError].
	ErrConflict = errors.New("Another Coop writer owns this store")
	// ErrStopped says that the pool or its ownership was closed.
	ErrStopped = errors.New("Coop writer is stopped")
	// ErrFenced says that this connection may not write: its owner was closed
	// or taken over. Nothing was written.
	ErrFenced = errors.New("Coop writer fenced")
	// ErrSuperseded says that a newer ownership exists, so this one writes no
	// more. It is [ErrFenced] too.
	ErrSuperseded = errors.New("Coop writer superseded")
	// ErrBusy says that the wait for another writer ended without success. The
	// error is a [*BusyError].
	ErrBusy = errors.New("database is locked")
	// ErrTxAborted says that the transaction has already ended without the
	// caller's doing (SQLite rolls back by itself after some errors, see
	// https://sqlite.org/lang_transaction.html#response_to_errors_within_a_transaction).
	// The statement was not run. The transaction can be tried again.
	ErrTxAborted = errors.New("transaction has been aborted")
)

// Holder is who owns a store, as it described itself in the lock file. Fields
// that are not known are zero.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	App   string    `json:"app"`
	Since time.Time `json:"since"`
	Epoch int64     `json:"epoch"`
	Mode  string    `json:"mode,omitempty"`
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "a holder that did not leave its name"
	}
	var b strings.Builder
	if h.App != "" {
		fmt.Fprintf(&b, "%s, ", h.App)
	}
	fmt.Fprintf(&b, "pid %d", h.PID)
	if h.Host != "" {
		fmt.Fprintf(&b, " on %s", h.Host)
	}
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, ", since %s", h.Since.Format(time.RFC3339))
	}
	return b.String()
}

// ConflictError is returned when a store cannot be opened because somebody
// else owns it. It is [ErrConflict].
type ConflictError struct {
	Path   string // of the store
	Holder Holder
	// Self is true when the holder is this very process.
	Self bool
	// Reason says what does not fit when the holder could have shared the
	// store but for its settings; empty otherwise.
	Reason string
	Waited time.Duration
}

func (e *ConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", ErrConflict, e.Path)
	switch {
	case e.Reason != "":
		fmt.Fprintf(&b, ": %s", e.Reason)
	case e.Self:
		fmt.Fprintf(&b, " is owned by this process already (%s): use the sql.DB that is open, close it first, or open all of them with _coop_owner=process", e.Holder)
	default:
		fmt.Fprintf(&b, " is owned by %s: stop it, open with mode=ro to read beside it, or wait for it with _coop_wait", e.Holder)
	}
	if e.Waited > 0 {
		fmt.Fprintf(&b, " (waited %s)", e.Waited.Round(time.Millisecond))
	}
	return b.String()
}

// Is makes the error [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// BusyError is returned when the wait for the right to write ended, by the
// context or by the busy timeout. It is [ErrBusy], the SQLITE_BUSY that
// mattn's driver would have returned, and the context's error if that ended
// the wait.
type BusyError struct {
	Path string // of the store
	// Holder is the file and line that began the transaction or statement
	// which holds the gate; empty when another process, or a reader in
	// rollback-journal mode, holds SQLite's own lock.
	Holder string
	Since  time.Time // since when Holder has it
	Waited time.Duration
	cause  error // the context's error, or nil
	sqlite error
}

func (e *BusyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: waited %s", ErrBusy, e.Path, e.Waited.Round(time.Microsecond))
	if e.Holder != "" {
		fmt.Fprintf(&b, " for the writer at %s, which began %s ago", e.Holder, time.Since(e.Since).Round(time.Millisecond))
	} else {
		b.WriteString(" for a lock that a reader, or a connection outside this owner, holds")
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %s", e.cause)
	}
	return b.String()
}

// Is makes the error [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Unwrap gives the SQLITE_BUSY and the context's error.
func (e *BusyError) Unwrap() []error {
	busy := e.sqlite
	if busy == nil {
		busy = sqlite3.Error{Code: sqlite3.ErrBusy, ExtendedCode: sqlite3.ErrNoExtended(sqlite3.ErrBusy)}
	}
	if e.cause != nil {
		return []error{e.cause, busy}
	}
	return []error{busy}
}

// fencedError is a refused write: one of the sentinels, and why.
type fencedError struct {
	sentinel error
	path     string
	reason   string
	sqlite   error // the trigger's error, when a trigger refused
}

func (e *fencedError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.sentinel, e.path, e.reason)
}

func (e *fencedError) Is(target error) bool {
	return target == e.sentinel || target == ErrFenced && e.sentinel == ErrSuperseded
}

func (e *fencedError) Unwrap() error { return e.sqlite }

// abortedError is a statement of a transaction that is no more.
type abortedError struct{ cause error }

func (e *abortedError) Error() string {
	if e.cause == nil {
		return ErrTxAborted.Error() + ": a COMMIT or ROLLBACK statement has ended it"
	}
	return fmt.Sprintf("%s: it was rolled back by: %s", ErrTxAborted, e.cause)
}

func (e *abortedError) Is(target error) bool { return target == ErrTxAborted }
func (e *abortedError) Unwrap() error        { return e.cause }

// hasCode reports whether err is an error of SQLite with that primary code.
func hasCode(err error, code sqlite3.ErrNo) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == code
}
