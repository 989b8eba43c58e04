package harness

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// Covered asks Verify whether each tracked table of db's store has its fences,
// and requires that it tracks as many tables as the store has. In these tests
// nothing is excluded.
func Covered(t testing.TB, db *sql.DB) {
	t.Helper()
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	coverage, err := store.Verify(t.Context())
	require.NoError(t, err)
	require.True(t, coverage.Complete(), "%+v", coverage)

	tracked := 0
	for _, table := range coverage.Tables {
		if table.Tracked {
			tracked++
		}
	}
	var ordinary int
	require.NoError(t, db.QueryRow(`
		SELECT count(*) FROM pragma_table_list
		WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`).Scan(&ordinary))
	require.NotZero(t, ordinary, "the store has no table")
	require.Equal(t, ordinary, tracked, "%+v", coverage)
}
