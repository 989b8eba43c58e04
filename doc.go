// Package coopsqlite is a [database/sql] driver that makes "this SQLite store
// has exactly one writer" true instead of agreed. It stands on
// github.com/mattn/go-sqlite3, whose DSN parameters, types and errors stay as
// they are:
//
//	import _ "github.com/coopsqlite/coopsqlite"
//
//	db, err := sql.Open("coopsqlite", "app.db?_journal_mode=WAL")
//
// sql.Open takes the ownership of the store, or fails with [ErrConflict] and
// says who has it; db.Close gives it back.
//
// # The two guards
//
// A lock (flock) on the file app.db.engine.lock keeps a second owner out. It
// is dropped by the kernel when the process ends, however it ends.
//
// A fence keeps out everybody who does not ask for that lock. It is made of
// triggers in the store, three on each table, that call functions which only
// the owner's connections have. So every other program, opened before or after
// the fence was there, fails before it writes a row:
//
//	who writes                              what happens
//	a second owner                          Another Coop writer owns this store (and who)
//	any outside connection                  no such function: coop_write_permit
//	the owner's own connection after close  Coop writer fenced
//	an owner that was taken over            Coop writer superseded
//	a new connection after close            Coop writer is stopped
//	the owner, running                      the write lands
//	anyone reading                          untouched
//
// After every commit each table has its fence, whatever the transaction did to
// the schema. The fence is a seatbelt for honest programs, not a security
// boundary: whoever may write the file can drop triggers or define the
// functions for himself.
//
// # Data source names
//
// A DSN is a file name or a file: URI, and parameters. Those of mattn's driver
// mean what they mean there, but for three defaults: _txlock=immediate,
// _busy_timeout=10000 and _stmt_cache_size=128. Those of this driver are
// checked, and one that is not known is an error. The first value is the
// default:
//
//	_coop_owner    exclusive: one sql.DB in one process
//	               process: all sql.DBs of this process that say so
//	               shared: all processes that say so, taking turns to write
//	_coop_wait     0, or how long to wait for the present owner to go
//	_coop_fence    on, off
//	_coop_tables   *, or names separated by commas; -name excludes one
//	_coop_epoch    on, off: for stores shared with Coop engines in other languages
//	_coop_changes  off, or * or names: record every change of these tables
//	_coop_virtual  off, on: fence full-text tables too
//	_coop_watch    1s, or how often to look for what outsiders did to the schema; 0 never
//	_coop_app      the name shown to others as the holder; the program's by default
//	_coop_actor    the default of the metadata "actor"
//
// mode=ro, immutable=1 and _query_only=1 open a reader, which owns nothing and
// is in nobody's way. Databases in memory need no lock.
//
// # Transactions
//
// Writers of one owner queue at a gate, first come first served, for as long
// as the context allows and no longer than the busy timeout; [*BusyError] names
// the line of code they waited for. Read-only transactions (sql.TxOptions) do
// not wait, in WAL mode. When SQLite has rolled a transaction back by itself,
// its remaining statements are refused with [ErrTxAborted] instead of being
// run outside it.
//
// [Store], found with [StoreOf], offers what concerns the store as a whole:
// grouped commits (Write), bulk loads at plain speed (Bulk), backups while it
// is in use, the recorded changes, and a check of the fences.
package coopsqlite
