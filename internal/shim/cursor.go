//go:build !windows

package shim

// #include "shim.h"
import "C"

import (
	"database/sql/driver"
	"io"
	"math"
	"strings"
	"time"
	"unsafe"
)

// Cursor holds the rows of one statement while they are open. It belongs to one
// connection, which uses it again. The statement may be another cursor's before the
// last rows that were fetched have been read.
type Cursor struct {
	p       *C.coop_cursor
	s       *Stmt
	columns *Columns
	next    int   // of the rows that have been fetched
	err     error // behind them
}

// NewCursor returns a cursor for [Conn.Open].
func NewCursor() *Cursor {
	p := C.coop_cursor_new()
	if p == nil {
		panic("coopsqlite: out of memory")
	}
	return &Cursor{p: p}
}

// Free gives up the cursor's memory, whose rows must have ended.
func (cur *Cursor) Free() {
	C.coop_cursor_free(cur.p)
	cur.p = nil
}

// Columns are the columns of a statement's result.
type Columns struct {
	Names    []string
	Declared []string // types, as they are written; empty for an expression

	kinds    []columnKind
	compiled C.int32_t
}

// columnKind is what mattn's driver makes of a column for its declared type.
type columnKind byte

const (
	asStored columnKind = iota
	asTime
	asBool
)

func kindOf(declared string) columnKind {
	switch strings.ToLower(declared) {
	case "timestamp", "datetime", "date":
		return asTime
	case "boolean":
		return asBool
	}
	return asStored
}

// Open runs s up to its first row. On error nothing is open. Until the rows have
// ended s must not run elsewhere.
func (c *Conn) Open(cur *Cursor, s *Stmt, a *Args, args []driver.NamedValue) error {
	defer a.release()
	if err := a.marshal(s, args); err != nil {
		return err
	}
	first, buf := a.pointers()
	rc := C.coop_open(c.number(), cur.p, s.p, s.flags(), first, C.int(len(a.args)), buf, C.int64_t(len(a.buf)))
	if rc == C.COOP_DENIED {
		return ErrNamesMoved
	}
	if rc != C.SQLITE_ROW && rc != C.SQLITE_DONE {
		return c.lastError(rc)
	}
	cur.s, cur.next, cur.err = s, 0, nil
	if rc == C.SQLITE_DONE {
		cur.err = io.EOF
	}
	if rc == C.SQLITE_ROW {
		s.cursor = cur
	}
	s.describe(cur.p)
	cur.columns = s.columns
	return nil
}

// describe reads what SQLite says of the columns, once for each compilation.
func (s *Stmt) describe(cur *C.coop_cursor) {
	if s.columns != nil && s.columns.compiled == cur.compiled {
		return
	}
	n := int(cur.columns)
	s.columns = &Columns{
		Names: make([]string, n), Declared: make([]string, n), kinds: make([]columnKind, n), compiled: cur.compiled,
	}
	for i := range n {
		var name, declared *C.char
		C.coop_column(s.p, C.int(i), &name, &declared)
		s.columns.Names[i], s.columns.Declared[i] = C.GoString(name), C.GoString(declared)
		s.columns.kinds[i] = kindOf(s.columns.Declared[i])
	}
}

// Columns are those of the statement that was opened last.
func (cur *Cursor) Columns() *Columns { return cur.columns }

// Ready reports whether Next has an answer without another Fetch.
func (cur *Cursor) Ready() bool { return cur.next < int(cur.p.rows) || cur.err != nil }

// Fetch gets up to n rows more, for a cursor that is not ready. Where they come
// slowly or are large, it gets fewer.
func (c *Conn) Fetch(cur *Cursor, n int) {
	rc := C.coop_fetch(c.number(), cur.p, cur.s.p, C.int(n))
	cur.next = 0
	switch rc {
	case C.SQLITE_ROW:
		return
	case C.SQLITE_DONE:
		cur.err = io.EOF
	default:
		cur.err = c.lastError(rc)
	}
	cur.s.cursor = nil
}

// Next moves a row into dest, with the types that mattn's driver would give its
// values, times in loc if that is not nil. Behind the last row the error is io.EOF
// or SQLite's, and the statement has ended.
func (cur *Cursor) Next(dest []driver.Value, loc *time.Location) error {
	if cur.next >= int(cur.p.rows) {
		return cur.err
	}
	columns := int(cur.p.columns)
	row := unsafe.Slice((*value)(unsafe.Pointer(cur.p.values)), columns*int(cur.p.rows))[columns*cur.next:]
	cur.next++
	for i := range dest {
		dest[i] = row[i].convert(cur.columns.kinds[i], loc)
	}
	return nil
}

// End ends the statement, if that stands at a row of this cursor's. The error is
// that of the commit, for a write.
func (c *Conn) End(cur *Cursor) error {
	if cur.s.cursor != cur {
		return nil
	}
	cur.s.cursor = nil
	if rc := C.coop_end(c.number(), cur.s.p); rc != C.SQLITE_OK {
		return c.lastError(rc)
	}
	return nil
}

// value is coop_value: content is an integer, a float, or an address in the
// memory of C.
type value struct {
	kind, n int32
	content int64
}

var _ = [1]struct{}{}[unsafe.Sizeof(value{})-C.sizeof_coop_value]

func (v *value) convert(kind columnKind, loc *time.Location) driver.Value {
	switch v.kind {
	case C.SQLITE_INTEGER:
		switch kind {
		case asTime:
			return timeOfNumber(v.content, loc)
		case asBool:
			return v.content > 0
		}
		return v.content
	case C.SQLITE_FLOAT:
		return math.Float64frombits(uint64(v.content))
	case C.SQLITE_TEXT:
		text := string(v.bytes())
		if kind == asTime {
			return timeOfText(text, loc)
		}
		return text
	case C.SQLITE_BLOB:
		return append(make([]byte, 0, v.n), v.bytes()...)
	}
	return nil
}

func (v *value) bytes() []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&v.content)), v.n) }
