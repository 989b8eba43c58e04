package standard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

var (
	connInterfaces = interfaces[struct {
		driver.ConnBeginTx
		driver.ConnPrepareContext
		driver.Execer //nolint:staticcheck // old wrappers look for it
		driver.ExecerContext
		driver.NamedValueChecker
		driver.Pinger
		driver.Queryer //nolint:staticcheck // old wrappers look for it
		driver.QueryerContext
		driver.SessionResetter
		driver.Validator
	}]()
	stmtInterfaces = interfaces[struct {
		driver.ColumnConverter //nolint:staticcheck // old wrappers look for it
		driver.NamedValueChecker
		driver.StmtExecContext
		driver.StmtQueryContext
	}]()
	rowsInterfaces = interfaces[struct {
		driver.RowsColumnTypeDatabaseTypeName
		driver.RowsColumnTypeLength
		driver.RowsColumnTypeNullable
		driver.RowsColumnTypePrecisionScale
		driver.RowsColumnTypeScanType
		driver.RowsNextResultSet
	}]()
)

// interfaces returns the types of T's fields.
func interfaces[T any]() []reflect.Type {
	var found []reflect.Type
	for field := range reflect.TypeFor[T]().Fields() {
		found = append(found, field.Type)
	}
	return found
}

// offered returns the optional interfaces that v has.
func offered(v any, list []reflect.Type) []string {
	names := []string{}
	for _, i := range list {
		if reflect.TypeOf(v).Implements(i) {
			names = append(names, i.Name())
		}
	}
	return names
}

// parts are what database/sql gets from a driver.
type parts struct{ conn, stmt, readStmt, rows, readRows, stmtRows []string }

func partsOf(t *testing.T, driverName string) parts {
	t.Helper()
	db, err := sql.Open(driverName, harness.DSN(harness.Path(t)))
	require.NoError(t, err)
	defer db.Close()
	harness.Exec(t, db, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	var p parts
	require.NoError(t, conn.Raw(func(driverConn any) error {
		ctx := context.WithoutCancel(t.Context())
		p.conn = offered(driverConn, connInterfaces)
		rowsOf := func(query string) []string {
			rows, err := driverConn.(driver.QueryerContext).QueryContext(ctx, query, nil)
			require.NoError(t, err)
			defer rows.Close()
			return offered(rows, rowsInterfaces)
		}
		p.rows = rowsOf("INSERT INTO foo DEFAULT VALUES RETURNING id")
		p.readRows = rowsOf("SELECT * FROM foo")
		stmtOf := func(query string) driver.Stmt {
			stmt, err := driverConn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
			require.NoError(t, err)
			return stmt
		}
		write := stmtOf("INSERT INTO foo DEFAULT VALUES")
		defer write.Close()
		p.stmt = offered(write, stmtInterfaces)
		read := stmtOf("SELECT * FROM foo")
		defer read.Close()
		p.readStmt = offered(read, stmtInterfaces)
		rows, err := read.(driver.StmtQueryContext).QueryContext(ctx, nil)
		require.NoError(t, err)
		p.stmtRows = offered(rows, rowsInterfaces)
		require.NoError(t, rows.Close())
		return nil
	}))
	return p
}

// database/sql looks at the optional interfaces of what a driver hands out:
// one that is missing makes it slow or wrong, and so does one that is faked.
// Resetting and validating a connection is what the driver adds.
func TestOptionalInterfacesAreMattnsAndTheSessionsOwn(t *testing.T) {
	want := partsOf(t, "sqlite3")
	got := partsOf(t, harness.Driver)
	require.NotContains(t, want.conn, "Validator")
	want.conn = append(want.conn, "SessionResetter", "Validator")
	require.ElementsMatch(t, want.conn, got.conn)
	want.conn, got.conn = nil, nil
	require.Equal(t, want, got)
}

// A program may hold another package that took the name coopsqlite first; the
// program below initialises it before the driver, since the go command orders
// packages by their path.
func TestTakenNameIsNoPanic(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	for name, content := range map[string]string{
		"go.mod": "module a\n\ngo 1.26\n\nrequire github.com/coopsqlite/coopsqlite v0.0.0\n\nreplace github.com/coopsqlite/coopsqlite => " + root + "\n",
		"go.sum": string(sums),
		"first/first.go": `package first

import (
	"database/sql"

	"github.com/mattn/go-sqlite3"
)

func init() { sql.Register("coopsqlite", &sqlite3.SQLiteDriver{}) }
`,
		"main.go": `package main

import (
	"database/sql"
	"fmt"

	_ "a/first"

	"github.com/coopsqlite/coopsqlite"
)

func main() {
	connector, err := coopsqlite.NewConnector(":memory:", nil)
	if err != nil {
		panic(err)
	}
	defer sql.OpenDB(connector).Close()
	fmt.Println(sql.Drivers())
}
`,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "coopsqlite")
}
