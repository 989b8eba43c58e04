package sqltx

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Dialect is the kind of database below a store.
type Dialect int

const (
	// SQLite is any database/sql driver over SQLite.
	SQLite Dialect = iota
	// Postgres is PostgreSQL, through pgx's stdlib or lib/pq.
	Postgres
)

// String is the dialect's name, for messages.
func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "SQLite"
	case Postgres:
		return "PostgreSQL"
	}
	return "Dialect(" + strconv.Itoa(int(d)) + ")"
}

func (d Dialect) valid() bool { return d == SQLite || d == Postgres }

// Rebind turns the placeholders of query, written as ?, into those of the
// dialect. The query must not contain a ? that is not a placeholder.
func (d Dialect) Rebind(query string) string {
	if d != Postgres {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = after
	}
}

// Name is a table's name, ready to be put into SQL.
type Name struct {
	schema, table string
}

// ParseName reads a table's name as an option gives it: table, or
// schema.table (an attached database in SQLite). It is taken literally, case
// and all.
func ParseName(name string) (Name, error) {
	if strings.ContainsRune(name, 0) {
		return Name{}, errors.New("a table's name must not contain NUL")
	}
	schema, table, qualified := strings.Cut(name, ".")
	if !qualified {
		schema, table = "", name
	}
	if table == "" || qualified && schema == "" || strings.Contains(table, ".") {
		return Name{}, fmt.Errorf("%q is not a table's name: want table or schema.table", name)
	}
	return Name{schema, table}, nil
}

// String is the quoted name.
func (n Name) String() string {
	if n.schema == "" {
		return quote(n.table)
	}
	return quote(n.schema) + "." + quote(n.table)
}

// Index is the quoted name of the table's index with that suffix, as CREATE
// INDEX wants it: qualified in SQLite, where an index may be put into another
// schema than its table's only by mistake, and bare in PostgreSQL, which puts
// it beside its table.
func (n Name) Index(d Dialect, suffix string) string {
	index := quote(n.table + "_" + suffix)
	if d == SQLite && n.schema != "" {
		return quote(n.schema) + "." + index
	}
	return index
}

// Bare is the quoted name without the schema, as CREATE INDEX wants it behind
// ON in SQLite.
func (n Name) Bare() string { return quote(n.table) }

func quote(identifier string) string {
	return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"`
}
