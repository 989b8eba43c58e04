package leases

import "github.com/coopsqlite/coopsqlite/leases/internal/sqltx"

// Dialect is the kind of database that a repository lives in.
type Dialect = sqltx.Dialect

const (
	// SQLite is any database/sql driver over SQLite. Through coopsqlite
	// waiting costs no statements; through others waiters poll.
	SQLite = sqltx.SQLite
	// Postgres is PostgreSQL through any database/sql driver for it.
	Postgres = sqltx.Postgres
)
