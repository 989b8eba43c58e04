// Package standard_test is the list of things every database/sql driver is
// expected to do, written down for the driver coopsqlite: values, statements,
// transactions, and a pool under load.
package standard_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func open(t *testing.T, statements ...string) (*sql.DB, string) {
	t.Helper()
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	harness.Exec(t, db, statements...)
	return db, path
}

func TestManyQueryRowsLeaveNoConnectionBehind(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO foo VALUES (1, 'bob')")
	db.SetMaxOpenConns(4)
	for range 10_000 {
		var name string
		require.NoError(t, db.QueryRow("SELECT name FROM foo WHERE id = ?", 1).Scan(&name))
		require.Equal(t, "bob", name)
	}
	require.Zero(t, db.Stats().InUse)
	harness.Guarded(t, db, path)
}

func TestRowsOfATransactionSeeItsWrites(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT)")
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("INSERT INTO foo VALUES (1, 'bob')")
	require.NoError(t, err)

	rows, err := tx.Query("SELECT name FROM foo WHERE id = ?", 1)
	require.NoError(t, err)
	require.True(t, rows.Next())
	var name string
	require.NoError(t, rows.Scan(&name))
	require.Equal(t, "bob", name)
	require.False(t, rows.Next())
	require.NoError(t, rows.Err())

	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM foo").Scan(&n))
	require.Zero(t, n, "another connection does not see it before the commit")
	require.NoError(t, tx.Commit())
	require.NoError(t, db.QueryRow("SELECT count(*) FROM foo").Scan(&n))
	require.Equal(t, 1, n)
	require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
	harness.Guarded(t, db, path)
}

func TestRollbackUndoesEverything(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO foo VALUES (1)")
	require.NoError(t, err)
	_, err = tx.Exec("CREATE TABLE bar (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM foo").Scan(&n))
	require.Zero(t, n)
	require.Error(t, db.QueryRow("SELECT count(*) FROM bar").Scan(&n))
	harness.Guarded(t, db, path)
}

func TestPreparedStatementsAreSharedByGoroutines(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, worker INT, n INT)")
	sel, err := db.Prepare("SELECT count(*) FROM foo WHERE worker = ?")
	require.NoError(t, err)
	defer sel.Close()
	ins, err := db.Prepare("INSERT INTO foo (worker, n) VALUES (?, ?)")
	require.NoError(t, err)
	defer ins.Close()

	const workers, each = 10, 100
	failed := make(chan error, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for n := range each {
				var before int
				if err := sel.QueryRow(worker).Scan(&before); err != nil || before != n {
					failed <- fmt.Errorf("worker %d: %d rows, want %d: %w", worker, before, n, err)
					return
				}
				if _, err := ins.Exec(worker, n); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	harness.Guarded(t, db, path)
}

func TestPreparedStatementMovesIntoATransaction(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	insert, err := db.Prepare("INSERT INTO foo VALUES (?)")
	require.NoError(t, err)
	defer insert.Close()
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Stmt(insert).Exec(1)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	_, err = insert.Exec(1)
	require.NoError(t, err, "the first insert was rolled back with its transaction")
	harness.Guarded(t, db, path)
}

func TestPreparedStatementOutlivesASchemaChange(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY)", "INSERT INTO foo VALUES (1)")
	all, err := db.Prepare("SELECT * FROM foo")
	require.NoError(t, err)
	defer all.Close()
	columns := func() []string {
		rows, err := all.Query()
		require.NoError(t, err)
		defer rows.Close()
		names, err := rows.Columns()
		require.NoError(t, err)
		require.True(t, rows.Next())
		return names
	}
	require.Equal(t, []string{"id"}, columns())
	harness.Exec(t, db, "ALTER TABLE foo ADD COLUMN name TEXT DEFAULT 'x'")
	require.Equal(t, []string{"id", "name"}, columns())
	harness.Guarded(t, db, path)
}

func TestNamedAndPositionalParameters(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT, extra TEXT)")
	_, err := db.Exec("INSERT INTO foo VALUES (:id, @name, $extra)",
		sql.Named("extra", "e"), sql.Named("id", 1), sql.Named("name", "n"))
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO foo VALUES (?2, ?1, ?1)", "both", 2)
	require.NoError(t, err)

	var name, extra string
	require.NoError(t, db.QueryRow("SELECT name, extra FROM foo WHERE id = :id OR id = :id", sql.Named("id", 1)).Scan(&name, &extra))
	require.Equal(t, "n e", name+" "+extra)
	require.NoError(t, db.QueryRow("SELECT name, extra FROM foo WHERE id = ?", 2).Scan(&name, &extra))
	require.Equal(t, "both both", name+" "+extra)
	harness.Guarded(t, db, path)
}

func TestResultsTellRowsAndLastInsertID(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, n INT)")
	result, err := db.Exec("INSERT INTO foo (n) VALUES (1), (2), (3)")
	require.NoError(t, err)
	id, err := result.LastInsertId()
	require.NoError(t, err)
	require.EqualValues(t, 3, id)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 3, n)

	result, err = db.Exec("UPDATE foo SET n = 0 WHERE n > 1")
	require.NoError(t, err)
	n, err = result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 2, n, "the fence's triggers do not count")

	rows, err := db.Query("DELETE FROM foo WHERE n = 0 RETURNING id")
	require.NoError(t, err)
	var ids []int
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	require.ElementsMatch(t, []int{2, 3}, ids)
	harness.Guarded(t, db, path)
}

func TestSeveralStatementsInOneExec(t *testing.T) {
	db, path := open(t)
	_, err := db.Exec(`
		CREATE TABLE foo (id INTEGER PRIMARY KEY, s TEXT); -- a comment; with a semicolon
		INSERT INTO foo VALUES (1, 'a;b');
		CREATE TRIGGER t AFTER INSERT ON foo BEGIN UPDATE foo SET s = 'x;y' WHERE id = new.id; SELECT 1; END;
		INSERT INTO foo VALUES (2, '');`)
	require.NoError(t, err)
	var s string
	require.NoError(t, db.QueryRow("SELECT group_concat(s, ' ') FROM (SELECT s FROM foo ORDER BY id)").Scan(&s))
	require.Equal(t, "a;b x;y", s)
	harness.Guarded(t, db, path)
}

func TestPoolUnderLoadLosesNoWriteAndIsNeverBusy(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, n INT NOT NULL)", "INSERT INTO foo VALUES (1, 0)")
	const workers, each = 32, 50
	failed := make(chan error, 2*workers)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range each {
				if err := increment(t.Context(), db); err != nil {
					failed <- err
					return
				}
			}
		})
		group.Go(func() {
			for range each {
				var n int
				if err := db.QueryRowContext(t.Context(), "SELECT n FROM foo").Scan(&n); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	var n int
	require.NoError(t, db.QueryRow("SELECT n FROM foo").Scan(&n))
	require.Equal(t, workers*each, n)
	harness.Guarded(t, db, path)
}

// increment reads and then writes in one transaction, which in a deferred
// transaction is what SQLite answers with BUSY.
func increment(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT n FROM foo WHERE id = 1").Scan(&n); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE foo SET n = ? WHERE id = 1", n+1); err != nil {
		return err
	}
	return tx.Commit()
}

func TestCancelledQueryLeavesThePoolUsable(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var n int
	err := db.QueryRowContext(ctx, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c").Scan(&n)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for range 20 {
		_, err := db.Exec("INSERT INTO foo DEFAULT VALUES")
		require.NoError(t, err)
	}
	harness.Guarded(t, db, path)
}

func TestFailedStatementLeavesTheTransactionUsable(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, n INT UNIQUE)")
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("INSERT INTO foo VALUES (1, 1)")
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO foo VALUES (2, 1)")
	require.ErrorContains(t, err, "UNIQUE constraint failed")
	_, err = tx.Query("SELECT * FROM nowhere")
	require.ErrorContains(t, err, "no such table: nowhere")
	_, err = tx.Prepare("not SQL")
	require.ErrorContains(t, err, "syntax error")
	_, err = tx.Exec("INSERT INTO foo VALUES (2, 2)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM foo").Scan(&n))
	require.Equal(t, 2, n)
	harness.Guarded(t, db, path)
}

func TestRowsThatAreNotReadToTheEndHoldNobodyUp(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY)", "INSERT INTO foo VALUES (1), (2), (3)")
	for range 100 {
		rows, err := db.Query("SELECT id FROM foo")
		require.NoError(t, err)
		require.True(t, rows.Next())
		_, err = db.Exec("INSERT INTO foo DEFAULT VALUES")
		require.NoError(t, err, "in WAL mode a reader does not stop the writer")
		require.NoError(t, rows.Close())
	}
	require.Zero(t, db.Stats().InUse)
	harness.Guarded(t, db, path)
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	db, _ := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	insert, err := db.Prepare("INSERT INTO foo DEFAULT VALUES")
	require.NoError(t, err)
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO foo DEFAULT VALUES")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Error(t, tx.Commit(), "the store was given back in the middle of the transaction")
	_, err = insert.Exec()
	require.Error(t, err)
	require.Error(t, db.Ping())
	require.NoError(t, db.Close(), "closing twice is fine")
}
