package coopsqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// The driver asks before it runs a statement; these go around it, with mattn's
// own connection, so that the triggers alone answer.

func rawExec(t *testing.T, conn *sql.Conn, statements ...string) error {
	t.Helper()
	return conn.Raw(func(dc any) error {
		source, ok := coopsqlite.SQLiteConn(dc)
		require.True(t, ok)
		for _, statement := range statements {
			if _, err := source.Exec(statement, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

func guardedStore(t *testing.T) (*sql.DB, *sql.Conn) {
	t.Helper()
	db, err := sql.Open("coopsqlite", filepath.Join(t.TempDir(), "store.db")+"?_coop_watch=0")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE t (a)")
	require.NoError(t, err)
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return db, conn
}

func TestTriggersRefuseTheOwnersConnectionAfterClose(t *testing.T) {
	db, conn := guardedStore(t)
	require.NoError(t, rawExec(t, conn, "INSERT INTO t VALUES (1)"))
	require.NoError(t, db.Close())
	for _, statement := range []string{"INSERT INTO t VALUES (2)", "UPDATE t SET a = 3", "DELETE FROM t"} {
		require.EqualError(t, rawExec(t, conn, statement), "Coop writer fenced", statement)
	}
}

func TestTriggersRefuseAnOwnerWhoseFenceIsNoLongerTheStores(t *testing.T) {
	_, conn := guardedStore(t)
	require.NoError(t, rawExec(t, conn, "INSERT INTO t VALUES (1)", "UPDATE coop_owner SET fence = fence + 1"))
	for _, statement := range []string{"INSERT INTO t VALUES (2)", "UPDATE t SET a = 3", "DELETE FROM t"} {
		require.EqualError(t, rawExec(t, conn, statement), "Coop writer superseded", statement)
	}
}

func TestStatementsCompiledInsideATransactionAreGuardedOutsideIt(t *testing.T) {
	ctx := context.Background()
	_, conn := guardedStore(t)
	const insert = "INSERT INTO t VALUES (?)"
	tx, err := conn.BeginTx(ctx, nil)
	require.NoError(t, err)
	for i := range 3 {
		_, err = tx.ExecContext(ctx, insert, i)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, rawExec(t, conn, "UPDATE coop_owner SET fence = fence + 1"))
	_, err = conn.ExecContext(ctx, insert, 4)
	require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
	require.ErrorIs(t, err, coopsqlite.ErrFenced)
	_, err = conn.BeginTx(ctx, nil)
	require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
}

func TestAnOpenRowOnTheConnectionDoesNotOpenTheFence(t *testing.T) {
	ctx := context.Background()
	_, conn := guardedStore(t)
	require.NoError(t, rawExec(t, conn, "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "UPDATE coop_owner SET fence = fence + 1"))
	rows, err := conn.QueryContext(ctx, "SELECT a FROM t")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	_, err = conn.ExecContext(ctx, "INSERT INTO t VALUES (3)")
	require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
}

func TestAWriteThatReturnsRowsIsGuarded(t *testing.T) {
	ctx := context.Background()
	_, conn := guardedStore(t)
	require.NoError(t, rawExec(t, conn, "UPDATE coop_owner SET fence = fence + 1"))
	var a int
	require.ErrorIs(t, conn.QueryRowContext(ctx, "INSERT INTO t VALUES (3) RETURNING a").Scan(&a), coopsqlite.ErrSuperseded)
}

func TestDroppingWhatTheFencesNeedIsMendedAtOnce(t *testing.T) {
	ctx := context.Background()
	_, conn := guardedStore(t)
	for _, drop := range []string{"DROP VIEW coop_guard", "DROP TABLE coop_owner", `DROP TRIGGER "coop_fence_t_insert"`} {
		tx, err := conn.BeginTx(ctx, nil)
		require.NoError(t, err)
		for _, statement := range []string{drop, "ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (1)", "ALTER TABLE u RENAME TO t"} {
			_, err = tx.ExecContext(ctx, statement)
			require.NoError(t, err, "%s after %s", statement, drop)
		}
		require.NoError(t, tx.Commit())
		require.NoError(t, rawExec(t, conn, "INSERT INTO t VALUES (2)"), "after %s", drop)
		_, err = conn.ExecContext(ctx, drop)
		require.NoError(t, err)
		require.NoError(t, rawExec(t, conn, "INSERT INTO t VALUES (3)"), "after %s in autocommit", drop)
	}
}

func TestVerifyReportsAGuardThatWasTamperedWith(t *testing.T) {
	db, conn := guardedStore(t)
	require.NoError(t, rawExec(t, conn, "DROP VIEW coop_guard", "CREATE VIEW coop_guard AS SELECT 1"))
	coverage, err := storeOf(t, db).Verify(context.Background())
	require.NoError(t, err)
	require.False(t, coverage.Complete(), "%+v", coverage)
	for _, table := range coverage.Tables {
		if table.Name == "t" {
			require.Equal(t, coopsqlite.PartlyFenced, table.State)
			require.Contains(t, table.Missing, "coop_guard")
		}
	}
}
