//go:build cgo && !windows

package shim

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// ErrIncompatible says that the mattn/go-sqlite3 this program was built with
// keeps its SQLite handle in another way than the shim knows.
var ErrIncompatible = errors.New("coopsqlite: this version of github.com/mattn/go-sqlite3 is not supported")

// handleOf finds the sqlite3* of a connection. mattn's driver does not export
// it, so it is read by reflection; anything unexpected is an error, never a
// guess.
func handleOf(conn *sqlite3.SQLiteConn) (unsafe.Pointer, error) {
	if conn == nil {
		return nil, fmt.Errorf("%w: no connection", ErrIncompatible)
	}
	field := reflect.ValueOf(conn).Elem().FieldByName("db")
	if !field.IsValid() || field.Kind() != reflect.Pointer || field.Type().Elem().Name() != "_Ctype_struct_sqlite3" {
		return nil, fmt.Errorf("%w: SQLiteConn has no field db of type *sqlite3", ErrIncompatible)
	}
	handle := field.UnsafePointer()
	if handle == nil {
		return nil, fmt.Errorf("%w: the connection is closed", ErrIncompatible)
	}
	return handle, nil
}

// message locates the text in mattn's Error, which only that package can set.
var message, hasMessage = reflect.TypeFor[sqlite3.Error]().FieldByName("err")

// withMessage returns e with SQLite's own words, as mattn's driver would have
// made it, so that code which looks at either sees no difference.
func withMessage(e sqlite3.Error, text string) error {
	if hasMessage && message.Type.Kind() == reflect.String {
		*(*string)(unsafe.Add(unsafe.Pointer(&e), message.Offset)) = text
		return e
	}
	return fmt.Errorf("%w: %s", e, text)
}

// Annotate rewrites the message of an error of SQLite; other errors stay as
// they are.
func Annotate(err error, rewrite func(message string) string) error {
	e, ok := err.(sqlite3.Error)
	if !ok {
		return err
	}
	plain := e
	plain.SystemErrno = 0 // Error() appends it again
	return withMessage(e, rewrite(plain.Error()))
}

// NewError makes an error as SQLite would have answered it.
func NewError(code sqlite3.ErrNo, extended sqlite3.ErrNoExtended, text string) error {
	return withMessage(sqlite3.Error{Code: code, ExtendedCode: extended}, text)
}

// Verify shows that the handle belongs to the connection it was read from: a
// value set through the shim must be what mattn's driver reads through SQL.
func (c *Conn) Verify() error {
	const probe = "coop-handle-probe"
	if err := c.SetMetadata(EncodePair(nil, "probe", probe)); err != nil {
		return err
	}
	rows, err := c.source.Query("SELECT coop_context('probe')", nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIncompatible, err)
	}
	defer rows.Close()
	dest := make([]any, 1)
	if err := nextInto(rows, dest); err != nil || dest[0] != probe {
		return fmt.Errorf("%w: the handle read from SQLiteConn is another connection's", ErrIncompatible)
	}
	return c.SetMetadata(nil)
}
