package harness

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
)

// Covered requires that each table of db's store has its three fences. It
// looks at the store itself and not at what the driver believes.
func Covered(t testing.TB, db *sql.DB) {
	t.Helper()
	rows, err := db.Query(`
		SELECT t.name, count(trigger.name)
		FROM pragma_table_list AS t
		LEFT JOIN sqlite_schema AS trigger ON trigger.type = 'trigger'
			AND trigger.tbl_name = t.name COLLATE NOCASE AND trigger.name LIKE 'coop\_fence\_%' ESCAPE '\'
		WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\'
		GROUP BY t.name`)
	require.NoError(t, err)
	defer rows.Close()
	tables := 0
	for rows.Next() {
		var table string
		var fences int
		require.NoError(t, rows.Scan(&table, &fences))
		require.Equal(t, 3, fences, "the fences of %s", table)
		tables++
	}
	require.NoError(t, rows.Err())
	require.NotZero(t, tables, "the store has no table")
}
