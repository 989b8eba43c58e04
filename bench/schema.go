package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite"
)

// SQLite's C library is linked in by mattn's driver.

// extern int sqlite3_db_status(void*, int, int*, int*, int);
import "C"

// A thousand tables: what their fences cost whoever opens the store.

const (
	manyTables  = 1000
	openAtOnce  = 8
	firstQuery  = `SELECT count(*) FROM table_500`
	schemaUsage = 2 // SQLITE_DBSTATUS_SCHEMA_USED
)

// What fences cost is so much per table; what that is to the table depends on
// how much of a table it is.
const (
	usualTable = `CREATE TABLE table_%[1]d (id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, name TEXT NOT NULL, email TEXT,
		state TEXT NOT NULL DEFAULT 'new', quantity INTEGER NOT NULL DEFAULT 0, note TEXT, created_at TEXT NOT NULL, updated_at TEXT);
		CREATE INDEX table_%[1]d_by_tenant ON table_%[1]d (tenant, created_at);`
	narrowTable = `CREATE TABLE table_%[1]d (id INTEGER PRIMARY KEY, name TEXT NOT NULL, quantity INTEGER NOT NULL, at TEXT);`
)

func schemaWorkloads() []*workload {
	usual := schemaWorkloadsWith(usualTable, "1,000 fenced tables", "of nine columns and an index")
	for _, w := range schemaWorkloadsWith(narrowTable, "1,000 fenced narrow tables", "of four columns and no index") {
		w.budgets = nil
		usual = append(usual, w)
	}
	return usual
}

func schemaWorkloadsWith(table, title, shape string) []*workload {
	mk := func(name, what string, slices int, slice func(c contender, dir string) (sample, error), b ...budget) *workload {
		w := &workload{family: "1,000 tables", name: name, what: what, unit: "connection", baseline: mattn.name, slices: slices, budgets: b, keep: true}
		for _, c := range []contender{coop, coopOff, mattn} {
			w.subjects = append(w.subjects, subject{c.name, func(dir string) (*runner, error) {
				return &runner{
					slice: func() (sample, error) { return slice(c, dir) },
					close: func() error { return nil },
				}, makeTables(c, dir, table)
			}})
		}
		return w
	}
	connection := mk(title+", a further connection",
		"A connection more in an open pool and its first query, on a store of 1,000 tables "+shape+"; for mattn the tables have no fences.",
		4, furtherConnections, cost("open and first query", coop.name, mattn.name, 3))
	store := mk(title+", the store",
		"sql.Open and a first query, ownership included.",
		6, openStore, cost("open and first query", coop.name, mattn.name, 3))
	store.unit = "open"
	memory := mk(title+", memory",
		"What sqlite3_db_status says that a connection's schema takes.",
		1, schemaMemory, size("schema per connection", coop.name, mattn.name, 5))
	memory.measures = bytes
	return []*workload{connection, store, memory}
}

func makeTables(c contender, dir, table string) error {
	p, err := c.open(dir)
	if err != nil {
		return err
	}
	var ddl strings.Builder
	ddl.WriteString("BEGIN;")
	for i := range manyTables {
		fmt.Fprintf(&ddl, table, i)
	}
	ddl.WriteString("COMMIT")
	_, err = p.write.Exec(ddl.String())
	return errors.Join(err, p.close())
}

// held opens n connections more than the pool has and gives each its first
// query; the time is theirs alone.
func held(p pools, n int) (conns []*sql.Conn, all sample, err error) {
	for i := range n + 1 {
		begin := startWatch()
		conn, err := p.write.Conn(context.Background())
		if err != nil {
			return conns, all, err
		}
		conns = append(conns, conn)
		var rows int
		if err := conn.QueryRowContext(context.Background(), firstQuery).Scan(&rows); err != nil {
			return conns, all, err
		}
		if i > 0 { // the first may have been open already
			all.join(begin.sample(1))
		}
	}
	return conns, all, nil
}

func closeAll(conns []*sql.Conn) error {
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

func furtherConnections(c contender, dir string) (sample, error) {
	p, err := c.open(dir)
	if err != nil {
		return sample{}, err
	}
	conns, all, err := held(p, openAtOnce)
	return all, errors.Join(err, closeAll(conns), p.close())
}

func openStore(c contender, dir string) (sample, error) {
	begin := startWatch()
	p, err := c.open(dir)
	if err != nil {
		return sample{}, err
	}
	var rows int
	err = p.write.QueryRow(firstQuery).Scan(&rows)
	measured := begin.sample(1)
	return measured, errors.Join(err, p.close())
}

func schemaMemory(c contender, dir string) (sample, error) {
	p, err := c.open(dir)
	if err != nil {
		return sample{}, err
	}
	conns, _, err := held(p, 1)
	if err != nil {
		return sample{}, errors.Join(err, closeAll(conns), p.close())
	}
	var used float64
	err = conns[1].Raw(func(dc any) (err error) {
		used, err = schemaUsed(dc)
		return err
	})
	return sample{value: used}, errors.Join(err, closeAll(conns), p.close())
}

// schemaUsed asks SQLite how many bytes the schemas of a connection take.
func schemaUsed(driverConn any) (float64, error) {
	conn, ok := driverConn.(*sqlite3.SQLiteConn)
	if !ok {
		if conn, ok = coopsqlite.SQLiteConn(driverConn); !ok {
			return 0, fmt.Errorf("no SQLite connection in a %T", driverConn)
		}
	}
	handle := reflect.ValueOf(conn).Elem().FieldByName("db") // mattn's driver has no name for it
	if !handle.IsValid() || handle.Kind() != reflect.Pointer {
		return 0, errors.New("mattn's connection keeps its handle elsewhere")
	}
	var current, highest C.int
	if code := C.sqlite3_db_status(unsafe.Pointer(handle.Pointer()), schemaUsage, &current, &highest, 0); code != 0 {
		return 0, fmt.Errorf("sqlite3_db_status: %d", code)
	}
	return float64(current), nil
}
