//go:build !windows

package shim

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"
	"unsafe"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// Stmt is a statement prepared by the shim, and what SQLite says of it.
type Stmt struct {
	p        *C.sqlite3_stmt
	Params   int
	Columns  int
	ReadOnly bool // https://sqlite.org/c3ref/stmt_readonly.html
	Explain  bool
	Seen     Seen
	// Unguarded: compiled without the bodies of the fences. Run it only in a
	// transaction in which [Conn.Begin] or [Conn.CheckFence] has said Fenced.
	Unguarded bool
	// Sealed statements may not write an attached database, whatever their
	// names mean once the schema has changed, and Temp ones not main either: see
	// [ErrNamesMoved].
	Sealed bool
	Temp   bool

	cursor  *Cursor // whose rows it stands at
	names   map[string][3]int
	columns *Columns
}

// Prepared is the outcome of [Conn.Prepare].
type Prepared struct {
	Stmt *Stmt // nil for white space and comments
	Tail int   // where the next statement begins
	// Authorized reports whether our authorizer was asked; when it was not,
	// somebody may have replaced it.
	Authorized bool
	// Attached is the attached schema that the statement would write.
	Attached string
	// Altered is the table that ALTER TABLE would change, if its name is short.
	Altered string
}

// Omit are bodies of triggers that a statement is compiled without, as long as the
// schema stays as it is then.
type Omit int

const (
	Fences     Omit = C.COOP_OMIT_FENCES     // see Stmt.Unguarded
	Collisions Omit = C.COOP_OMIT_COLLISIONS // nothing replaces a row
)

// Prepare compiles the first statement of sql. Persistent statements are kept
// for long (https://sqlite.org/c3ref/c_prepare_dont_log.html).
func (c *Conn) Prepare(sql string, persistent bool, omit Omit) (Prepared, error) {
	if sql == "" { // has no address that C could take
		return Prepared{Authorized: true}, nil
	}
	if len(sql) > math.MaxInt32 {
		return Prepared{}, NewError(sqlite3.ErrTooBig, sqlite3.ErrNoExtended(sqlite3.ErrTooBig), "string or blob too big")
	}
	before := c.p.authorized
	var info C.coop_stmt_info
	rc := C.coop_prepare(c.p, (*C.char)(unsafe.Pointer(unsafe.StringData(sql))), C.int(len(sql)), flag(persistent), C.int(omit), &info)
	if rc != C.SQLITE_OK {
		return Prepared{}, c.lastError(rc)
	}
	out := Prepared{Tail: int(info.tail), Authorized: c.p.authorized != before}
	if info.stmt == nil {
		return out, nil
	}
	out.Stmt = &Stmt{
		p:        info.stmt,
		Params:   int(info.params),
		Columns:  int(info.columns),
		ReadOnly: info.readonly != 0,
		Explain:  info.explain != 0,
		Seen:     Seen(c.p.seen),

		Unguarded: omit&Fences != 0,
	}
	if out.Stmt.Seen&Alters != 0 {
		out.Altered = C.GoString(&c.p.altered[0])
	}
	if out.Stmt.Seen&WriteAttached != 0 {
		out.Attached = C.GoString(&c.p.attached[0])
	}
	return out, nil
}

func flag(v bool) C.int {
	if v {
		return 1
	}
	return 0
}

// Explain adds to the classes of one statement what its compiled program
// shows; it needs no authorizer.
func (c *Conn) Explain(sql string) (Seen, error) {
	c.p.seen = 0
	if rc := C.coop_explain(c.p, (*C.char)(unsafe.Pointer(unsafe.StringData(sql))), C.int(len(sql))); rc != C.SQLITE_OK {
		return 0, c.lastError(rc)
	}
	return Seen(c.p.seen), nil
}

// Open reports whether it stands at a row, which to run it again would end.
func (s *Stmt) Open() bool { return s.cursor != nil }

// Finalize frees the statement; once more is harmless.
func (s *Stmt) Finalize() {
	C.coop_finalize(s.p)
	s.p, s.cursor = nil, nil
}

// pinFrom is the size from which a text or blob is pinned and handed to SQLite
// where it lies; below it a copy into the argument buffer is cheaper.
const pinFrom = 2 << 10

// keepBuffer is the size up to which the argument buffer is used again.
const keepBuffer = 64 << 10

// Args holds the arguments of one run; a connection reuses it.
type Args struct {
	args   []C.coop_arg
	buf    []byte
	pinner runtime.Pinner
	pinned bool
}

// ErrNamesMoved says that the statement would now write a database that it would
// not when it was prepared. Nothing was run.
var ErrNamesMoved = errors.New("the statement's names lead to another database now")

// Run binds args and runs s to the end of its changes. The values in args
// that SQLite sees do not outlive the call.
func (c *Conn) Run(s *Stmt, a *Args, args []driver.NamedValue) (rowid, changes int64, err error) {
	defer a.release()
	if err := a.marshal(s, args); err != nil {
		return 0, 0, err
	}
	first, buf := a.pointers()
	rc := C.coop_run(c.number(), s.p, s.flags(), first, C.int(len(a.args)), buf)
	if rc == C.COOP_DENIED {
		return 0, 0, ErrNamesMoved
	}
	if rc != C.SQLITE_OK {
		return 0, 0, c.lastError(rc)
	}
	return int64(c.p.rowid), int64(c.p.changes), nil
}

// RunAlone runs s as a transaction of its own, after asking the fence. Unless
// version is negative, the schema must have it, or the answer is Moved. No
// transaction is open afterwards. With an error, or an answer other than
// Fenced, nothing has been changed, but for what ON CONFLICT FAIL keeps.
func (c *Conn) RunAlone(s *Stmt, a *Args, args []driver.NamedValue, version int64) (rowid, changes int64, state FenceState, err error) {
	defer a.release()
	if err := a.marshal(s, args); err != nil {
		return 0, 0, 0, err
	}
	first, buf := a.pointers()
	rc := C.coop_run_alone(c.number(), s.p, s.flags(), first, C.int(len(a.args)), buf, C.int64_t(version))
	if rc != C.SQLITE_OK {
		if state, err = c.fenceState(rc); rc == C.COOP_DENIED {
			err = ErrNamesMoved
		}
		// What ABORT undoes is undone already.
		if !c.Autocommit() && (rc&0xff != C.SQLITE_CONSTRAINT || c.Control(Commit) != nil) {
			_ = c.Control(Rollback) // nothing can be done about its failing
		}
		return 0, 0, state, err
	}
	return int64(c.p.rowid), int64(c.p.changes), Fenced, nil
}

func (s *Stmt) flags() C.int {
	flags := C.int(0)
	if s.Unguarded {
		flags |= C.COOP_RUN_UNGUARDED
	}
	if s.Sealed {
		flags |= C.COOP_RUN_SEALED
	}
	if s.Temp {
		flags |= C.COOP_RUN_TEMP
	}
	return flags
}

// number is the connection as C takes it where every nanosecond counts.
func (c *Conn) number() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(c.p))) }

func (a *Args) pointers() (first *C.coop_arg, buf *C.char) {
	if len(a.args) > 0 {
		first = &a.args[0]
	}
	return first, (*C.char)(unsafe.Pointer(unsafe.SliceData(a.buf)))
}

// release lets go of what was pinned, and of a buffer that is too large to be
// kept for the next run.
func (a *Args) release() {
	if a.pinned {
		a.pinner.Unpin()
		a.pinned = false
	}
	if cap(a.buf) > keepBuffer {
		a.buf = nil
	}
}

// marshal converts arguments as mattn's driver binds them: booleans as 0 and
// 1, times as text in its first format, names with any of the prefixes.
func (a *Args) marshal(s *Stmt, args []driver.NamedValue) error {
	a.args, a.buf = a.args[:0], a.buf[:0]
	if cap(a.buf) == 0 {
		a.buf = make([]byte, 0, 512) // never NULL, which would bind NULL
	}
	for i := range args {
		if args[i].Name == "" {
			if err := a.add(args[i].Ordinal, args[i].Value); err != nil {
				return err
			}
			continue
		}
		for _, index := range s.indices(args[i].Name) {
			if index == 0 {
				continue
			}
			if err := a.add(index, args[i].Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *Args) add(index int, value driver.Value) error {
	arg := C.coop_arg{index: C.int32_t(index)}
	switch v := value.(type) {
	case nil:
		arg._type = C.SQLITE_NULL
	case int64:
		arg._type, arg.i = C.SQLITE_INTEGER, C.int64_t(v)
	case bool:
		arg._type = C.SQLITE_INTEGER
		if v {
			arg.i = 1
		}
	case float64:
		arg._type, arg.f = C.SQLITE_FLOAT, C.double(v)
	case string:
		arg._type = C.SQLITE_TEXT
		a.bytes(&arg, unsafe.Slice(unsafe.StringData(v), len(v)))
	case []byte:
		if v == nil {
			arg._type = C.SQLITE_NULL
			break
		}
		arg._type = C.SQLITE_BLOB
		a.bytes(&arg, v)
	case time.Time:
		arg._type, arg.offset = C.SQLITE_TEXT, C.int64_t(len(a.buf))
		a.buf = v.AppendFormat(a.buf, sqlite3.SQLiteTimestampFormats[0])
		arg.i = C.int64_t(len(a.buf)) - arg.offset
	default:
		return fmt.Errorf("sqlite3: unsupported bind type %T", v)
	}
	a.args = append(a.args, arg)
	return nil
}

func (a *Args) bytes(arg *C.coop_arg, b []byte) {
	arg.i = C.int64_t(len(b))
	if len(b) >= pinFrom {
		p := unsafe.SliceData(b)
		a.pinner.Pin(p)
		a.pinned = true
		arg.offset, arg.address = -1, C.uintptr_t(uintptr(unsafe.Pointer(p)))
		return
	}
	arg.offset = C.int64_t(len(a.buf))
	a.buf = append(a.buf, b...)
}

// indices finds a named parameter under each of SQLite's prefixes.
func (s *Stmt) indices(name string) [3]int {
	if found, ok := s.names[name]; ok {
		return found
	}
	var found [3]int
	for i, prefix := range [...]string{":", "@", "$"} {
		text := C.CString(prefix + name)
		found[i] = int(C.coop_param_index(s.p, text))
		C.free(unsafe.Pointer(text))
	}
	if s.names == nil {
		s.names = make(map[string][3]int)
	}
	s.names[name] = found
	return found
}
