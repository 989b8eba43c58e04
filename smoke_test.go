package coopsqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	p := filepath.Join(t.TempDir(), "a b?#.db")
	_ = p
	db, err := sql.Open("coopsqlite", filepath.Join(t.TempDir(), "a.db")+"?_journal_mode=WAL")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t(a,b); INSERT INTO t VALUES(1,2)")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := 0; i < 10; i++ {
		_, err = db.ExecContext(ctx, "INSERT INTO t VALUES(?,?)", i, "x")
		require.NoError(t, err)
	}
	var n int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n))
	require.Equal(t, 11, n)
	rows, err := db.Query("SELECT name, sql FROM sqlite_schema WHERE type='trigger'")
	require.NoError(t, err)
	for rows.Next() {
		var a, b string
		require.NoError(t, rows.Scan(&a, &b))
		t.Log(a, b)
	}
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("DROP TABLE coop_owner")
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO t VALUES(1,2)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.NoError(t, db.QueryRowContext(ctx, "INSERT INTO t VALUES(5,6) RETURNING a").Scan(&n))
	require.Equal(t, 5, n)
}
