// Package compat holds no code of its own. The packages below it let real
// tools do real work through the driver coopsqlite.
package compat

// The tools that the packages below use; named here so that `go mod tidy`
// keeps one list of versions for all of them.
import (
	_ "entgo.io/ent"
	_ "entgo.io/ent/entc"
	_ "github.com/Masterminds/squirrel"
	_ "github.com/XSAM/otelsql"
	_ "github.com/anishathalye/porcupine"
	_ "github.com/coopsqlite/coopsqlite"
	_ "github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/sqlite3"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/jmoiron/sqlx"
	_ "github.com/mattn/go-sqlite3"
	_ "github.com/ngrok/sqlmw"
	_ "github.com/pressly/goose/v3"
	_ "github.com/riverqueue/river"
	_ "github.com/riverqueue/river/riverdriver/riversqlite"
	_ "github.com/riverqueue/river/rivermigrate"
	_ "github.com/stretchr/testify/require"
	_ "github.com/uptrace/bun"
	_ "github.com/uptrace/bun/dialect/sqlitedialect"
	_ "go.opentelemetry.io/otel/sdk/trace"
	_ "gorm.io/driver/sqlite"
	_ "gorm.io/gorm"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
