// Package squirrel_test: the statement builder squirrel on the driver
// coopsqlite.
package squirrel_test

import (
	"testing"

	sq "github.com/Masterminds/squirrel"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestBuiltStatementsRun(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	harness.Exec(t, db, "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE, visits INT NOT NULL DEFAULT 0)")
	build := sq.StatementBuilder.RunWith(db)

	_, err := build.Insert("users").Columns("name").Values("ada").Values("bob").Exec()
	require.NoError(t, err)
	var id int
	require.NoError(t, build.Insert("users").Columns("name", "visits").Values("ada", 1).
		Suffix("ON CONFLICT (name) DO UPDATE SET visits = visits + excluded.visits RETURNING id").QueryRow().Scan(&id))
	require.Equal(t, 1, id)
	result, err := build.Update("users").Set("visits", sq.Expr("visits + ?", 10)).Where(sq.Eq{"name": []string{"ada", "bob"}}).Exec()
	require.NoError(t, err)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 2, n)

	rows, err := build.Select("name", "visits").From("users").Where(sq.Or{sq.Gt{"visits": 10}, sq.Like{"name": "z%"}}).Query()
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	var name string
	var visits int
	require.NoError(t, rows.Scan(&name, &visits))
	require.Equal(t, "ada", name)
	require.Equal(t, 11, visits)
	require.False(t, rows.Next())
	harness.Guarded(t, db, path)
}

func TestStatementCacheInsideATransaction(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	harness.Exec(t, db, "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	cache := sq.NewStmtCache(tx)
	for range 100 {
		_, err := sq.Insert("users").Columns("name").Values("x").RunWith(cache).Exec()
		require.NoError(t, err)
	}
	require.NoError(t, cache.Clear())
	require.NoError(t, tx.Commit())
	var n int
	require.NoError(t, sq.Select("count(*)").From("users").RunWith(db).QueryRow().Scan(&n))
	require.Equal(t, 100, n)
	harness.Guarded(t, db, path)
}
