// Package hint carries what packages of this module tell each other through a
// context and through db.Driver(), so that leases need not import the driver
// (and with it cgo), nor the driver know what a lease is.
package hint

import (
	"context"
	"database/sql"
)

type urgentKey struct{}

// Urgent marks ctx so that a write transaction begun with it goes to the head
// of the owner's gate. Renewals and releases of leases use it: behind a long
// queue of ordinary writers they would come too late.
func Urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgentKey{}, true)
}

// IsUrgent reports whether ctx was marked by [Urgent].
func IsUrgent(ctx context.Context) bool {
	urgent, _ := ctx.Value(urgentKey{}).(bool)
	return urgent
}

type insideKey struct{}

// Inside marks ctx as belonging to the body of a write transaction that is
// open on the store with the given identity. See [Owner].
func Inside(ctx context.Context, identity any) context.Context {
	return context.WithValue(ctx, insideKey{}, inside{identity, ctx.Value(insideKey{})})
}

// inside is a chain, since the body of a transaction on one store may contain
// the body of a transaction on another.
type inside struct{ identity, outer any }

// IsInside reports whether ctx belongs to the body of a write transaction that
// is open on the store with that identity.
func IsInside(ctx context.Context, identity any) bool {
	for v := ctx.Value(insideKey{}); v != nil; {
		in := v.(inside)
		if in.identity == identity {
			return true
		}
		v = in.outer
	}
	return false
}

// Owner is what db.Driver() offers beyond driver.Driver when the pool belongs
// to coopsqlite.
type Owner interface {
	// Mode is the kind of ownership: exclusive, process, shared, memory or
	// reader; empty for a driver that is not bound to a store.
	Mode() string
	// Committed returns a channel that is closed by the next commit of a write
	// transaction in this process; nil for a driver not bound to a store.
	Committed() <-chan struct{}
	// Identity is a comparable value, the same for every pool of this process
	// that shares the ownership of the store.
	Identity() any
}

// DBTX is what runs statements inside a transaction: the four methods that a
// *sql.Tx and what the driver's Write passes have in common.
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// Writer is what db.Driver() offers, beside [Owner], when write transactions
// of the store can share a commit: Write runs fn in a transaction or savepoint
// of its own and returns nil only once that is committed; an error from fn
// undoes what fn did and is returned as it is. It is called only on a driver
// whose Mode is not empty.
type Writer interface {
	Write(ctx context.Context, fn func(tx DBTX) error) error
}
