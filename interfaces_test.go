package coopsqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// optional are the interfaces that database/sql looks for in the values of a
// driver.
var optional = map[string]reflect.Type{
	"Pinger":                         reflect.TypeFor[driver.Pinger](),
	"Execer":                         reflect.TypeFor[driver.Execer](), //nolint:staticcheck // old wrappers still look for it
	"ExecerContext":                  reflect.TypeFor[driver.ExecerContext](),
	"Queryer":                        reflect.TypeFor[driver.Queryer](), //nolint:staticcheck // see above
	"QueryerContext":                 reflect.TypeFor[driver.QueryerContext](),
	"ConnPrepareContext":             reflect.TypeFor[driver.ConnPrepareContext](),
	"ConnBeginTx":                    reflect.TypeFor[driver.ConnBeginTx](),
	"SessionResetter":                reflect.TypeFor[driver.SessionResetter](),
	"Validator":                      reflect.TypeFor[driver.Validator](),
	"NamedValueChecker":              reflect.TypeFor[driver.NamedValueChecker](),
	"ColumnConverter":                reflect.TypeFor[driver.ColumnConverter](), //nolint:staticcheck // see above
	"StmtExecContext":                reflect.TypeFor[driver.StmtExecContext](),
	"StmtQueryContext":               reflect.TypeFor[driver.StmtQueryContext](),
	"RowsNextResultSet":              reflect.TypeFor[driver.RowsNextResultSet](),
	"RowsColumnTypeDatabaseTypeName": reflect.TypeFor[driver.RowsColumnTypeDatabaseTypeName](),
	"RowsColumnTypeLength":           reflect.TypeFor[driver.RowsColumnTypeLength](),
	"RowsColumnTypeNullable":         reflect.TypeFor[driver.RowsColumnTypeNullable](),
	"RowsColumnTypePrecisionScale":   reflect.TypeFor[driver.RowsColumnTypePrecisionScale](),
	"RowsColumnTypeScanType":         reflect.TypeFor[driver.RowsColumnTypeScanType](),
	"Readonly":                       reflect.TypeFor[interface{ Readonly() bool }](),
	"DeclTypes":                      reflect.TypeFor[interface{ DeclTypes() []string }](),
}

func interfacesOf(v any) map[string]bool {
	has := map[string]bool{}
	for name, i := range optional {
		if reflect.TypeOf(v).Implements(i) {
			has[name] = true
		}
	}
	return has
}

// driverValues are the values of each kind that a driver hands to database/sql.
func driverValues(t *testing.T, db *sql.DB) map[string]any {
	values := map[string]any{}
	require.NoError(t, grab(t, db).Raw(func(dc any) error {
		ctx := context.Background()
		conn := dc.(driver.Conn)
		values["conn"] = dc
		stmt, err := conn.Prepare("SELECT 1")
		require.NoError(t, err)
		values["stmt"] = stmt
		rows, err := stmt.(driver.StmtQueryContext).QueryContext(ctx, nil)
		require.NoError(t, err)
		values["rows of a statement"] = rows
		require.NoError(t, rows.Close())
		require.NoError(t, stmt.Close())
		for kind, query := range map[string]string{"rows": "SELECT 1", "rows of a PRAGMA": "PRAGMA user_version",
			"rows of a write": "DELETE FROM t RETURNING 1", "no rows": "DELETE FROM t", "rows of nothing": ""} {
			rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
			require.NoError(t, err)
			values[kind] = rows
			require.NoError(t, rows.Close())
		}
		tx, err := conn.(driver.ConnBeginTx).BeginTx(ctx, driver.TxOptions{})
		require.NoError(t, err)
		values["tx"] = tx
		res, err := conn.(driver.ExecerContext).ExecContext(ctx, "DELETE FROM t", nil)
		require.NoError(t, err)
		values["result"] = res
		return tx.Rollback()
	}))
	return values
}

func TestOptionalInterfacesAreThoseOfMattnsDriver(t *testing.T) {
	plain := openPlain(t, newPath(t))
	mustExec(t, plain, "CREATE TABLE t(id)")
	theirs, ours := driverValues(t, plain), driverValues(t, newStore(t, ""))
	require.Len(t, ours, len(theirs))
	for kind, v := range theirs {
		want := interfacesOf(v)
		if kind == "conn" {
			// The two that keep the pool clean, which mattn's driver lacks.
			want["SessionResetter"], want["Validator"] = true, true
		}
		require.Equal(t, want, interfacesOf(ours[kind]), kind)
	}
}

func TestConnectorAndDriverAreWhatDatabaseSQLLooksFor(t *testing.T) {
	db := newStore(t, "")
	require.Implements(t, (*driver.DriverContext)(nil), db.Driver())
	connector, err := coopsqlite.NewConnector(":memory:", nil)
	require.NoError(t, err)
	require.Implements(t, (*io.Closer)(nil), connector)
	require.NoError(t, connector.Close())
	require.NoError(t, connector.Close(), "again is fine")
}

func TestFormsWithoutContextStillWork(t *testing.T) {
	db := newStore(t, "")
	require.NoError(t, grab(t, db).Raw(func(dc any) error {
		conn := dc.(driver.Conn)
		_, err := conn.(driver.Execer).Exec("INSERT INTO t(v) VALUES(?)", []driver.Value{int64(1)}) //nolint:staticcheck // that is the point
		require.NoError(t, err)
		tx, err := conn.Begin() //nolint:staticcheck // see above
		require.NoError(t, err)
		stmt, err := conn.Prepare("INSERT INTO t(v) VALUES(?)")
		require.NoError(t, err)
		require.Equal(t, 1, stmt.NumInput())
		_, err = stmt.Exec([]driver.Value{int64(2)}) //nolint:staticcheck // see above
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
		require.NoError(t, stmt.Close(), "again is fine")
		require.NoError(t, tx.Commit())
		rows, err := conn.(driver.Queryer).Query("SELECT sum(v) FROM t WHERE id > ?", []driver.Value{int64(0)}) //nolint:staticcheck // see above
		require.NoError(t, err)
		dest := make([]driver.Value, 1)
		require.NoError(t, rows.Next(dest))
		require.Equal(t, int64(3), dest[0])
		require.ErrorIs(t, rows.Next(dest), io.EOF)
		require.NoError(t, rows.Close())
		require.NoError(t, rows.Close(), "again is fine")
		return nil
	}))
}

func TestRowsReadDirectlyFromTheDriverEndWithTheirContext(t *testing.T) {
	db := newStore(t, "")
	require.NoError(t, grab(t, db).Raw(func(dc any) error {
		ctx, cancel := context.WithCancel(context.Background())
		// Each row is one step, too short for SQLite to ask whether to go on.
		rows, err := dc.(driver.QueryerContext).QueryContext(ctx, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n FROM c", nil)
		require.NoError(t, err)
		dest := make([]driver.Value, 1)
		require.NoError(t, rows.Next(dest))
		cancel()
		for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
			err = rows.Next(dest)
		}
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, rows.Next(dest), context.Canceled, "and stays so")
		return rows.Close()
	}))
}
