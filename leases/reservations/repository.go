package reservations

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// Options say where a repository lives and how it answers. The zero value is
// one on SQLite in the usual tables.
type Options struct {
	// Dialect is the kind of database: leases.SQLite unless set.
	Dialect leases.Dialect
	// Tables are the tables' names.
	Tables Tables
	// RememberRejections keeps the key of a request for which there was not
	// enough: repeating it is Insufficient for ever, whatever comes in. Without
	// it the same request may be accepted later.
	RememberRejections bool
	// Clock is for tests; nil is the store's own clock.
	Clock leases.Clock
}

// Tables are names of tables; each that is empty has a default.
type Tables struct {
	Stock        string // coop_stock
	Reservations string // coop_reservations; its lines are beside it, with the suffix _lines
	Outbox       string // coop_outbox; see package outbox
}

func (t Tables) orDefault() Tables {
	if t.Stock == "" {
		t.Stock = "coop_stock"
	}
	if t.Reservations == "" {
		t.Reservations = "coop_reservations"
	}
	return t
}

// A Repository is stock and the reservations on it. It is safe for concurrent
// use, and any number of processes may have one on the same tables.
type Repository struct {
	store    *sqltx.Store
	texts    *sqltx.Texts
	box      *outbox.Outbox
	remember bool
}

// New returns the repository in db and creates its tables, those of its outbox
// included, where they are missing.
func New(db *sql.DB, options *Options) (*Repository, error) {
	if options == nil {
		options = &Options{}
	}
	r, err := open(db, options)
	if err != nil {
		return nil, fmt.Errorf("reservations: %w", err)
	}
	return r, nil
}

func open(db *sql.DB, options *Options) (*Repository, error) {
	names, err := options.Tables.orDefault().names()
	if err != nil {
		return nil, err
	}
	store, err := sqltx.New(db, options.Dialect, options.Clock)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqltx.OpTimeout)
	defer cancel()
	if err := store.Ensure(ctx, names.tables(options.Dialect)...); err != nil {
		return nil, err
	}
	box, err := outbox.New(db, &outbox.Options{Dialect: options.Dialect, Table: options.Tables.Outbox, Clock: options.Clock})
	if err != nil {
		return nil, err
	}
	return &Repository{
		store: store,
		texts: sqltx.NewTexts(options.Dialect, "{stock}", names.stock.String(),
			"{reservations}", names.reservations.String(), "{lines}", names.lines.String()),
		box:      box,
		remember: options.RememberRejections,
	}, nil
}

// Schema is the DDL of a repository's tables, without those of its outbox, for
// those who create tables by migration. New runs it where it must.
func Schema(dialect leases.Dialect, tables Tables) (string, error) {
	names, err := tables.orDefault().names()
	if err != nil {
		return "", fmt.Errorf("reservations: %w", err)
	}
	return sqltx.Schema(dialect, names.tables(dialect)...), nil
}

// Outbox is where the events of accepted requests go.
func (r *Repository) Outbox() *outbox.Outbox { return r.box }

// unix is the time of a reading of the store's clock; zero for none.
func unix(ns sql.NullInt64) time.Time {
	if !ns.Valid {
		return time.Time{}
	}
	return time.Unix(0, ns.Int64)
}
