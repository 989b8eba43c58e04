//go:build !windows

// Package shim is coopsqlite's own door to SQLite, beside mattn/go-sqlite3: the
// private functions of the fence, a busy and a progress handler that obey one
// statement's cancellation, the authorizer that records what a statement does,
// and statements that run in one crossing into C.
//
// A [Conn] is used by one goroutine at a time, like the driver connection it
// belongs to; [Token.Cancel] alone may come from anywhere.
package shim

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// Store is one ownership as C sees it: the permit and the fence number. It is
// shared by every connection of the owner and freed when the last lets go and
// Go has forgotten it: a connection may still be being opened while its pool
// is closed.
type Store struct{ p *C.coop_store }

// NewStore returns an ownership whose permit is given.
func NewStore(fence int64) *Store {
	s := &Store{C.coop_store_new(C.int64_t(fence))}
	if s.p == nil {
		panic("coopsqlite: out of memory")
	}
	runtime.AddCleanup(s, func(p *C.coop_store) { C.coop_store_release(p) }, s.p)
	s.SetPermit(true)
	return s
}

// Configure makes the settings that are the whole process's. It comes before any
// connection is opened.
func Configure() { C.coop_configure() }

// SetPermit changes what coop_write_permit answers on every connection.
func (s *Store) SetPermit(ok bool) {
	var v C.int32_t
	if ok {
		v = 1
	}
	storeInt32(&s.p.permit, v)
	runtime.KeepAlive(s)
}

// SetFence changes this ownership's number, when a member adopts its group's.
func (s *Store) SetFence(fence int64) {
	storeInt64(&s.p.fence, C.int64_t(fence))
	runtime.KeepAlive(s)
}

// SetEpoch changes what the feed of changes is told of the ownership.
func (s *Store) SetEpoch(epoch int64) {
	storeInt64(&s.p.epoch, C.int64_t(epoch))
	runtime.KeepAlive(s)
}

// Kind of a kept statement.
type Kind int

const (
	Begin          Kind = C.COOP_STMT_BEGIN
	BeginImmediate Kind = C.COOP_STMT_BEGIN_IMMEDIATE
	BeginExclusive Kind = C.COOP_STMT_BEGIN_EXCLUSIVE
	Commit         Kind = C.COOP_STMT_COMMIT
	Rollback       Kind = C.COOP_STMT_ROLLBACK
	Savepoint      Kind = C.COOP_STMT_SAVEPOINT
	Release        Kind = C.COOP_STMT_RELEASE
	RollbackTo     Kind = C.COOP_STMT_ROLLBACK_TO
	LockForWrite   Kind = C.COOP_STMT_LOCK_FOR_WRITE // an error if there is no coop_owner
)

// Seen is what the authorizer saw while a statement was compiled.
type Seen uint32

const (
	DDL           Seen = C.COOP_SEEN_DDL
	WriteMain     Seen = C.COOP_SEEN_WRITE_MAIN
	WriteTemp     Seen = C.COOP_SEEN_WRITE_TEMP
	WriteAttached Seen = C.COOP_SEEN_WRITE_ATTACHED
	Pragma        Seen = C.COOP_SEEN_PRAGMA
	PragmaSet     Seen = C.COOP_SEEN_PRAGMA_SET
	BusyTimeout   Seen = C.COOP_SEEN_BUSY_TIMEOUT
	Attaches      Seen = C.COOP_SEEN_ATTACH
	OpensTx       Seen = C.COOP_SEEN_BEGIN
	CommitsTx     Seen = C.COOP_SEEN_COMMIT
	RollsBack     Seen = C.COOP_SEEN_ROLLBACK
	TempDDL       Seen = C.COOP_SEEN_TEMP_DDL
	NoWrap        Seen = C.COOP_SEEN_NO_WRAP
	VacuumInto    Seen = C.COOP_SEEN_VACUUM_INTO
	Tables        Seen = C.COOP_SEEN_TABLES
	InSavepoint   Seen = C.COOP_SEEN_SAVEPOINT
	PragmaReads   Seen = C.COOP_SEEN_PRAGMA_READS
	Alters        Seen = C.COOP_SEEN_ALTER
	Header        Seen = C.COOP_SEEN_HEADER
	DropsOurs     Seen = C.COOP_SEEN_DROPS_OURS
	TouchesOwner  Seen = C.COOP_SEEN_OWNER
)

// TxnState is the state of main's transaction: https://sqlite.org/c3ref/txn_state.html
type TxnState int

const (
	TxnNone TxnState = iota
	TxnRead
	TxnWrite
)

// FenceState is the answer of [Conn.Begin] and [Conn.CheckFence].
type FenceState int

const (
	Fenced     FenceState = iota // this ownership may write
	Stopped                      // its permit was withdrawn
	Superseded                   // coop_owner names another ownership
	NoOwner                      // there is no coop_owner
	Moved                        // the schema is another one: see [Conn.RunAlone]
)

// Conn is the shim's half of a connection.
type Conn struct {
	p      *C.coop_conn
	source *sqlite3.SQLiteConn
}

// Attach installs the shim on a connection that mattn's driver has opened:
// the functions, the handlers and the authorizer. A nil store makes a reader,
// whose permit is never given. busyLimit is in milliseconds.
func Attach(source *sqlite3.SQLiteConn, store *Store, busyLimit int64) (*Conn, error) {
	handle, err := handleOf(source)
	if err != nil {
		return nil, err
	}
	var s *C.coop_store
	if store != nil {
		s = store.p
	}
	c := &Conn{source: source}
	if rc := C.coop_conn_new(handle, s, C.int64_t(busyLimit), &c.p); rc != C.SQLITE_OK {
		return nil, fmt.Errorf("coopsqlite: installing the private functions: %w", sqlite3.ErrNo(rc))
	}
	runtime.KeepAlive(store)
	return c, nil
}

// Close ends the shim's statements. Call it before mattn's connection is
// closed, and [Conn.Free] after that.
func (c *Conn) Close() { C.coop_conn_finalize(c.p) }

// Free gives up the connection's state; c must not be used afterwards.
func (c *Conn) Free() {
	C.coop_conn_release(c.p)
	c.p = nil
}

// Autocommit reports whether no transaction was open after the last call.
func (c *Conn) Autocommit() bool { return c.p.autocommit != 0 }

// TxnState is main's state now.
func (c *Conn) TxnState() TxnState { return TxnState(C.coop_txn_state(c.p)) }

// Refresh asks SQLite for the state again, after a statement that did not run
// through the shim.
func (c *Conn) Refresh() { C.coop_state(c.p) }

// Counters are what SQL can ask about the last write: last_insert_rowid(),
// changes(), total_changes().
type Counters struct{ c C.coop_counts }

// Counters returns those of now.
func (c *Conn) Counters() (out Counters) {
	C.coop_counters(c.p, &out.c)
	return out
}

// Resume makes them what they were where the caller was before.
func (c *Conn) Resume(counters Counters) { C.coop_resume(c.p, &counters.c) }

// Follow is Resume from another connection.
func (c *Conn) Follow(before *Conn) { C.coop_follow(c.p, before.p) }

// BusyLimit is the bound in milliseconds; PRAGMA busy_timeout changes it.
func (c *Conn) BusyLimit() int64 { return int64(c.p.busy_limit) }

// BusyWaited is how long the last wait for a lock has taken, if it ends now,
// and whether SQLite asked for one since [Conn.Watch].
func (c *Conn) BusyWaited() (waited time.Duration, asked bool) {
	ms := C.coop_busy_waited(c.p)
	return time.Duration(max(ms, 0)) * time.Millisecond, ms >= 0
}

// AdoptBusyTimeout puts our busy handler back after anything may have replaced
// it, and takes over the timeout that was set with that.
func (c *Conn) AdoptBusyTimeout() { C.coop_adopt_busy_timeout(c.p) }

// SetMetadata replaces what coop_context answers. Pairs come as [EncodePair]
// appends them.
func (c *Conn) SetMetadata(pairs []byte) error {
	if len(pairs) > math.MaxInt32 {
		return sqlite3.ErrTooBig
	}
	if rc := C.coop_set_metadata(c.p, (*C.char)(unsafe.Pointer(unsafe.SliceData(pairs))), C.int(len(pairs))); rc != C.SQLITE_OK {
		return sqlite3.ErrNo(rc)
	}
	return nil
}

// EncodePair appends a key and its value in the form SetMetadata takes.
func EncodePair(b []byte, key, value string) []byte {
	var n [8]byte
	*(*int32)(unsafe.Pointer(&n[0])) = int32(len(key))
	*(*int32)(unsafe.Pointer(&n[4])) = int32(len(value))
	b = append(b, n[:]...)
	b = append(b, key...)
	return append(b, value...)
}

// Begin starts a transaction. With checkFence it asks, once the transaction
// is open, whether this ownership may still write; the caller rolls back.
func (c *Conn) Begin(kind Kind, checkFence bool) (FenceState, error) {
	return c.fenceState(C.coop_begin(c.p, C.int(kind), flag(checkFence)))
}

// CheckFence asks the same of a transaction that is open already.
func (c *Conn) CheckFence() (FenceState, error) { return c.fenceState(C.coop_check_fence(c.p)) }

func (c *Conn) fenceState(rc C.int) (FenceState, error) {
	switch rc {
	case C.SQLITE_OK:
		return Fenced, nil
	case C.COOP_FENCED:
		return Stopped, nil
	case C.COOP_SUPERSEDED:
		return Superseded, nil
	case C.COOP_NO_OWNER:
		return NoOwner, nil
	case C.COOP_MOVED:
		return Moved, nil
	}
	return 0, c.lastError(rc)
}

// Control runs one of the statements that the shim keeps.
func (c *Conn) Control(kind Kind) error {
	if rc := C.coop_run_kept(c.p, C.int(kind)); rc != C.SQLITE_OK {
		return c.lastError(rc)
	}
	return nil
}

// SchemaVersion reads main's schema cookie as the open transaction sees it.
func (c *Conn) SchemaVersion() (int64, error) {
	if rc := C.coop_schema_version(c.p); rc != C.SQLITE_OK {
		return 0, c.lastError(rc)
	}
	return int64(c.p.version), nil
}

// VersionAtBegin is the schema version that the last Begin with checkFence
// found, or SchemaVersion since.
func (c *Conn) VersionAtBegin() int64 { return int64(c.p.version) }

// TriggersCanBeOff reports whether this SQLite leaves the triggers of temp alone
// when those of main are off.
func TriggersCanBeOff() bool {
	_, version, _ := sqlite3.Version()
	return version >= 3035000
}

// SetTriggers lets the triggers of main run, as they do on a new connection, or
// not. A change makes SQLite compile every statement again.
func (c *Conn) SetTriggers(on bool) error {
	if rc := C.coop_set_triggers(c.p, flag(on)); rc != C.SQLITE_OK {
		return c.lastError(rc)
	}
	return nil
}

// DeferredViolations reports whether a deferred foreign key is violated, which
// would make COMMIT fail.
func (c *Conn) DeferredViolations() bool { return C.coop_deferred_violations(c.p) != 0 }

// SchemaHasOwner reports whether the attached schema holds a coop_owner.
func (c *Conn) SchemaHasOwner(schema string) (bool, error) {
	name := C.CString(schema)
	defer C.free(unsafe.Pointer(name))
	var has C.int
	if rc := C.coop_schema_has_owner(c.p, name, &has); rc != C.SQLITE_OK {
		return false, c.lastError(rc)
	}
	return has != 0, nil
}

// Exec runs statements of our own, without arguments.
func (c *Conn) Exec(sql string) error {
	if rc := C.coop_exec(c.p, (*C.char)(unsafe.Pointer(unsafe.StringData(sql))), C.int(len(sql))); rc != C.SQLITE_OK {
		return c.lastError(rc)
	}
	return nil
}

// lastError is the connection's error as mattn's driver reports it.
func (c *Conn) lastError(rc C.int) error {
	message := C.GoString(C.coop_error(c.p))
	code, extended := c.p.code, c.p.extended
	if code == C.SQLITE_OK || (code&0xff) != (rc&0xff) {
		// Not recorded in the handle (SQLITE_MISUSE, say).
		return sqlite3.Error{Code: sqlite3.ErrNo(rc & 0xff), ExtendedCode: sqlite3.ErrNoExtended(rc)}
	}
	e := sqlite3.Error{Code: sqlite3.ErrNo(code & 0xff), ExtendedCode: sqlite3.ErrNoExtended(extended)}
	if e.Code == sqlite3.ErrCantOpen || (e.Code == sqlite3.ErrIoErr && e.ExtendedCode != sqlite3.ErrIoErrNoMem) {
		e.SystemErrno = syscall.Errno(c.p.system_errno)
	}
	return withMessage(e, message)
}
