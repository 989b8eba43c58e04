package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// Options say where an outbox lives. The zero value is an outbox on SQLite in
// the usual tables.
type Options struct {
	// Dialect is the kind of database: leases.SQLite unless set.
	Dialect leases.Dialect
	// Table is the name of the events' table, coop_outbox if empty. Beside it
	// lies one with the suffix _heads.
	Table string
	// Clock is for tests; nil is the store's own clock.
	Clock leases.Clock
}

const (
	defaultTable = "coop_outbox"
	// stepRows bounds what one transaction of Purge deletes, so that it stays
	// below 10 ms and writers pass in between.
	stepRows = 250
	// pageRows is how many dead events are read at a time.
	pageRows = 100
)

// An Outbox is a table of events in a database. It is safe for concurrent use,
// and any number of processes may have one on the same table.
type Outbox struct {
	store *sqltx.Store
	texts *sqltx.Texts
	clock leases.Clock
}

// New returns the outbox in db and creates its tables where they are missing.
func New(db *sql.DB, options *Options) (*Outbox, error) {
	o, tables, err := open(db, options)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqltx.OpTimeout)
	defer cancel()
	if err := o.store.Ensure(ctx, tables...); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return o, nil
}

func open(db *sql.DB, options *Options) (*Outbox, []sqltx.Table, error) {
	if options == nil {
		options = &Options{}
	}
	events, heads, err := names(options.Table)
	if err != nil {
		return nil, nil, err
	}
	store, err := sqltx.New(db, options.Dialect, options.Clock)
	if err != nil {
		return nil, nil, err
	}
	return &Outbox{
		store: store,
		texts: sqltx.NewTexts(options.Dialect, "{outbox}", events.String(), "{heads}", heads.String()),
		clock: options.Clock,
	}, tables(options.Dialect, events, heads), nil
}

func names(table string) (events, heads sqltx.Name, err error) {
	if table == "" {
		table = defaultTable
	}
	if events, err = sqltx.ParseName(table); err != nil {
		return events, heads, err
	}
	heads, err = sqltx.ParseName(table + "_heads")
	return events, heads, err
}

// Schema is the DDL of an outbox in the named table (coop_outbox if empty),
// for those who create tables by migration. New runs it where it must.
func Schema(dialect leases.Dialect, table string) (string, error) {
	events, heads, err := names(table)
	if err != nil {
		return "", fmt.Errorf("outbox: %w", err)
	}
	return sqltx.Schema(dialect, tables(dialect, events, heads)...), nil
}

// unix is the time of a reading of the store's clock.
func unix(ns int64) time.Time { return time.Unix(0, ns) }
