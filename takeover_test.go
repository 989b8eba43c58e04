package coopsqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/coopsqlite/coopsqlite"
)

// fences counts the fences on each table of the store, asking plain mattn.
func fences(t *testing.T, path string) map[string]int {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.Query(`
		SELECT t.name, count(f.name) FROM sqlite_schema AS t
		LEFT JOIN sqlite_schema AS f ON f.type = 'trigger' AND f.tbl_name = t.name AND f.name LIKE 'coop!_fence!_%' ESCAPE '!'
		WHERE t.type = 'table' GROUP BY t.name`)
	require.NoError(t, err)
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		counts[name] = n
	}
	require.NoError(t, rows.Err())
	return counts
}

func TestOpeningFencesAStoreThatWasOrdinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	plain, err := sql.Open("sqlite3", path)
	require.NoError(t, err)
	_, err = plain.Exec("CREATE TABLE a (x); CREATE TABLE b (x)")
	require.NoError(t, err)
	require.NoError(t, plain.Close())

	db, err := sql.Open("coopsqlite", path)
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, map[string]int{"a": 3, "b": 3, "coop_owner": 3}, fences(t, path), "before anything is written")
}

func TestOpeningAgainLeavesEveryTableFenced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	for range 3 {
		db, err := sql.Open("coopsqlite", path)
		require.NoError(t, err)
		_, err = db.Exec("CREATE TABLE IF NOT EXISTS a (x); INSERT INTO a VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, db.Close())
		require.Equal(t, map[string]int{"a": 3, "coop_owner": 3}, fences(t, path))
	}
}
