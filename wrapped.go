package coopsqlite

import "runtime"

// A sql.DB that is closed closes its idle connections and then its connector.
// Wrappers such as sqlmw hide the connector's Close, and nothing else would
// tell that the pool is gone: the store would stay owned until the process
// ends. So a connection of a connector that somebody else than database/sql
// asked for looks who closes it.

// openedBySQL reports whether the caller's caller is sql.Open, which keeps the
// connector itself.
func openedBySQL() bool {
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])
	frame, _ := runtime.CallersFrames(pcs[:]).Next()
	return frame.Function == "database/sql.Open"
}

// closedWithPool reports whether the whole sql.DB is being closed.
func closedWithPool() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if frame.Function == "database/sql.(*DB).Close" {
			return true
		}
		if !more {
			return false
		}
	}
}
