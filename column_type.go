package coopsqlite

import (
	"database/sql"
	"reflect"
	"strings"
)

// scanType is what mattn's driver proposes to scan a column into, by its declared
// type. It goes by SQLite's rules of affinity (https://sqlite.org/datatype3.html),
// but not quite.
func scanType(declared string) reflect.Type {
	t := strings.ToUpper(declared)
	switch {
	case strings.Contains(t, "INT"):
		return reflect.TypeFor[sql.NullInt64]()
	case t == "CLOB", t == "TEXT", strings.Contains(t, "CHAR"):
		return reflect.TypeFor[sql.NullString]()
	case t == "BLOB":
		return reflect.TypeFor[sql.RawBytes]()
	case t == "REAL", t == "FLOAT", strings.Contains(t, "DOUBLE"):
		return reflect.TypeFor[sql.NullFloat64]()
	case t == "DATE", t == "DATETIME", t == "TIMESTAMP":
		return reflect.TypeFor[sql.NullTime]()
	case t == "NUMERIC", strings.Contains(t, "DECIMAL"):
		return reflect.TypeFor[sql.NullFloat64]()
	case t == "BOOLEAN":
		return reflect.TypeFor[sql.NullBool]()
	}
	return reflect.TypeFor[*any]()
}
