package coopsqlite_test

import (
	"database/sql"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
)

func TestEveryStatementOfATextRuns(t *testing.T) {
	db := newStore(t, "")
	res, err := db.Exec(`
		-- the first
		INSERT INTO t(id, v) VALUES(?, ?);
		/* the second; with a semicolon */
		INSERT INTO t(id, v) VALUES(?, 'a;b');
		CREATE TRIGGER tr AFTER UPDATE ON t BEGIN SELECT 1; SELECT 2; END;
		UPDATE t SET v = ? WHERE id = 2 ; -- the last
		`, 1, "one", 2, "two")
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, []string{"one", "two"}, values(t, db, "SELECT v FROM t ORDER BY id"))
	require.Equal(t, []string{"one", "two", "3"}, append(values(t, db, "SELECT v FROM t ORDER BY id"),
		value(t, db, "INSERT INTO t(id) VALUES(3); SELECT count(*) FROM t")))
	// Named ones are counted like the others, but go to every statement.
	require.Equal(t, []string{"named"}, values(t, db, "UPDATE t SET v = :v WHERE id = :id; SELECT v FROM t WHERE id = :id",
		sql.Named("v", "named"), sql.Named("id", 3), sql.Named("unused", 0)))
}

func TestErrorOfATextSaysWhichStatementFailed(t *testing.T) {
	db := newStore(t, "")
	for _, run := range []func(string) error{
		func(q string) error { _, err := db.Exec(q); return err },
		func(q string) error { _, err := db.Query(q); return err },
	} {
		mustExec(t, db, "DELETE FROM t")
		err := run("INSERT INTO t(id) VALUES(1); INSERT INTO t(id) VALUES(1); INSERT INTO t(id) VALUES(2)")
		requireCode(t, err, sqlite3.ErrConstraint)
		require.ErrorContains(t, err, "UNIQUE constraint failed: t.id")
		require.ErrorContains(t, err, "statement 2 of the text")
		require.Equal(t, []string{"1"}, values(t, db, "SELECT id FROM t"))
		require.ErrorContains(t, run("SELECT 1; SELECT * FROM missing; SELECT 2"), "statement 2 of the text")
	}
	_, err := db.Exec("INSERT INTO t(id) VALUES(1)")
	require.EqualError(t, err, "UNIQUE constraint failed: t.id", "a single statement's error is SQLite's")
}

func TestSurplusArgumentsAreAnErrorAndNothingOfTheLastStatementRuns(t *testing.T) {
	db := newStore(t, "")
	for _, query := range []string{"INSERT INTO t(v) VALUES(?)", "INSERT INTO t(v) VALUES(?) RETURNING id", "INSERT INTO t(v) VALUES(?);", "SELECT 1; INSERT INTO t(v) VALUES(?)"} {
		_, err := db.Exec(query, 1, 2)
		require.ErrorContains(t, err, "expected 1 arguments, got 2", query)
		_, err = db.Query(query, 1, 2)
		require.ErrorContains(t, err, "expected 1 arguments, got 2", query)
		_, err = db.Exec(query)
		require.ErrorContains(t, err, "not enough args", query)
	}
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
	_, err := db.Exec("", 1)
	require.Error(t, err)
	stmt, err := db.Prepare("INSERT INTO t(v) VALUES(?)")
	require.NoError(t, err)
	defer stmt.Close()
	_, err = stmt.Exec(1, 2)
	require.Error(t, err)
	// A user's named arguments may be more than are used.
	_, err = db.Exec("INSERT INTO t(v) VALUES(:v)", sql.Named("v", 1), sql.Named("unused", 2))
	require.NoError(t, err)
}

func TestPrepareOfSeveralStatementsIsAnError(t *testing.T) {
	db := newStore(t, "")
	for _, text := range []string{"SELECT 1; SELECT 2", "INSERT INTO t(v) VALUES(1);DELETE FROM t", "; SELECT 1; SELECT 2", "SELECT 1;;nonsense"} {
		_, err := db.Prepare(text)
		require.ErrorContains(t, err, "one statement", text)
	}
	for _, text := range []string{"SELECT 1", "SELECT 1;", "SELECT 1; -- done", "/* x */ SELECT 1 /* y */ ; ; \n", "", "-- nothing"} {
		stmt, err := db.Prepare(text)
		require.NoError(t, err, text)
		_, err = stmt.Exec()
		require.NoError(t, err, text)
		rows, err := stmt.Query()
		require.NoError(t, err, text)
		require.NoError(t, rows.Close())
		require.NoError(t, stmt.Close())
	}
}

func TestTextBehindANULByteIsNotLeftOutSilently(t *testing.T) {
	db := newStore(t, "")
	_, err := db.Exec("INSERT INTO t(v) VALUES(1)\x00; INSERT INTO t(v) VALUES(2)")
	require.ErrorContains(t, err, "NUL")
	_, err = db.Prepare("SELECT 1;\x00SELECT 2")
	require.ErrorContains(t, err, "NUL")
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
	mustExec(t, db, "INSERT INTO t(v) VALUES(1);\x00", "\x00", "INSERT INTO t(v) VALUES(2)\x00\x00 ")
	require.Equal(t, "2", value(t, db, "SELECT count(*) FROM t"))
}
