package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// requireCode checks that err is mattn's error itself, with this code.
func requireCode(t testing.TB, err error, code sqlite3.ErrNo) {
	t.Helper()
	require.IsType(t, sqlite3.Error{}, err)
	require.Equal(t, code, err.(sqlite3.Error).Code, err.Error())
}

var readOnly = &sql.TxOptions{ReadOnly: true}

func TestReadOnlyTransactionsNeverWaitForAWriter(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "&_busy_timeout=60000")
	mustExec(t, db, "INSERT INTO t(v) VALUES(1)")
	writer := begin(t, db)
	mustExec(t, writer, "INSERT INTO t(v) VALUES(2)")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				tx, err := db.BeginTx(ctx, readOnly)
				if !assertNoError(t, err) {
					return
				}
				var n int
				assertNoError(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&n))
				assertNoError(t, tx.Commit())
				if n != 1 {
					t.Errorf("a read-only transaction saw %d rows, of which one was not committed", n)
				}
			}
		})
	}
	wg.Wait() // the writer is there all the time
	require.NoError(t, writer.Commit())
}

func TestReadOnlyTransactionRefusesToWrite(t *testing.T) {
	ctx := context.Background()
	inEachJournalMode(t, "", func(t *testing.T, db *sql.DB, path string) {
		c := grab(t, db)
		for _, write := range []string{
			"INSERT INTO t(v) VALUES(1)",
			"WITH x(v) AS (VALUES(1)) INSERT INTO t(v) SELECT v FROM x",
			"INSERT INTO t(v) VALUES(1) RETURNING id",
			"CREATE TABLE u(x)",
			"CREATE TABLE IF NOT EXISTS t(x)",
			"PRAGMA user_version=5",
			"CREATE TEMP TABLE u(x)",
			"BEGIN IMMEDIATE",
		} {
			tx, err := c.BeginTx(ctx, readOnly)
			require.NoError(t, err)
			_, err = tx.Exec(write)
			requireCode(t, err, sqlite3.ErrReadonly)
			_, err = tx.Query(write)
			requireCode(t, err, sqlite3.ErrReadonly)
			stmt, err := tx.Prepare(write)
			require.NoError(t, err)
			_, err = stmt.Exec()
			requireCode(t, err, sqlite3.ErrReadonly)
			var n int
			require.NoError(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&n), "it can still read")
			require.Equal(t, 0, n)
			require.NoError(t, tx.Commit())
		}
		// Both ways out leave the connection writable.
		connExec(t, c, "INSERT INTO t(v) VALUES(1)")
		tx, err := c.BeginTx(ctx, readOnly)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		connExec(t, c, "INSERT INTO t(v) VALUES(2)")
		require.Equal(t, "2", value(t, db, "SELECT count(*) FROM t"))
		require.Equal(t, "0", value(t, db, "PRAGMA user_version"))
	})
}

func TestReadOnlyTransactionSeesOneSnapshot(t *testing.T) {
	db := newStore(t, "")
	tx, err := db.BeginTx(context.Background(), readOnly)
	require.NoError(t, err)
	defer tx.Rollback()
	var n int
	require.NoError(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&n))
	mustExec(t, db, "INSERT INTO t(v) VALUES(1)")
	require.NoError(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&n))
	require.Equal(t, 0, n)
}

func TestIsolationLevelThatSQLiteLacksIsNamedInTheError(t *testing.T) {
	db := newStore(t, "")
	for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelWriteCommitted,
		sql.LevelRepeatableRead, sql.LevelSnapshot, sql.IsolationLevel(77)} {
		_, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		require.ErrorContains(t, err, level.String())
	}
	for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelSerializable, sql.LevelLinearizable} {
		tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
	}
}

func TestReadThenWriteInATransactionIsNeverBusy(t *testing.T) {
	inEachJournalMode(t, "&_busy_timeout=60000", func(t *testing.T, db *sql.DB, path string) {
		mustExec(t, db, "INSERT INTO t(id, v) VALUES(1, 0)")
		var wg sync.WaitGroup
		const workers, each = 8, 40
		for range workers {
			wg.Go(func() {
				for range each {
					assertNoError(t, increment(db))
				}
			})
		}
		wg.Wait()
		require.Equal(t, fmt.Sprint(workers*each), value(t, db, "SELECT v FROM t"))
	})
}

// increment reads a value and writes what it has read back, plus one.
func increment(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var v int
	if err := tx.QueryRow("SELECT v FROM t WHERE id = 1").Scan(&v); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE t SET v = ? WHERE id = 1", v+1); err != nil {
		return err
	}
	return tx.Commit()
}

// endless runs until it is interrupted, and inserts all the while.
const endless = "INSERT INTO t(v) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n FROM c"

// selfRollbacks are the ways in which SQLite ends a transaction by itself. Each
// runs on a store with the rows 1 and 2, and returns the error.
var selfRollbacks = map[string]func(t *testing.T, exec func(ctx context.Context, query string) error) error{
	"ON CONFLICT ROLLBACK": func(t *testing.T, exec func(context.Context, string) error) error {
		return exec(context.Background(), "INSERT OR ROLLBACK INTO t(id) VALUES(1)")
	},
	"RAISE(ROLLBACK)": func(t *testing.T, exec func(context.Context, string) error) error {
		return exec(context.Background(), "UPDATE t SET v = 'forbidden'")
	},
	"interrupt": func(t *testing.T, exec func(context.Context, string) error) error {
		// Long enough for the statement to have begun, on a busy machine too.
		return exec(within(t, 300*time.Millisecond), endless+" WHERE n < 0")
	},
	"disk full": func(t *testing.T, exec func(context.Context, string) error) error {
		// Statements with triggers, such as a fence, have a journal of their own
		// and would only be undone themselves.
		return exec(context.Background(), "INSERT INTO plain VALUES(zeroblob(3000000))")
	},
}

// newFragileStore has a trigger that rolls back, two rows, and little space.
func newFragileStore(t *testing.T) *sql.DB {
	path := newPath(t)
	params := "?_journal_mode=WAL&_synchronous=OFF&_coop_tables=-plain"
	db, err := sql.Open("coopsqlite", path+params)
	require.NoError(t, err)
	mustExec(t, db, "CREATE TABLE plain(x)", "CREATE TABLE t(id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES(1, NULL), (2, NULL)",
		"CREATE TRIGGER no BEFORE UPDATE ON t WHEN NEW.v = 'forbidden' BEGIN SELECT RAISE(ROLLBACK, 'forbidden'); END")
	require.NoError(t, db.Close())
	driver := &coopsqlite.Driver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		_, err := c.Exec("PRAGMA max_page_count=200; PRAGMA cache_size=10", nil)
		return err
	}}
	connector, err := driver.OpenConnector(path + params)
	require.NoError(t, err)
	db = sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestNothingRunsAfterSQLiteRolledATransactionBack(t *testing.T) {
	ctx := context.Background()
	for name, abort := range selfRollbacks {
		t.Run(name, func(t *testing.T) {
			db := newFragileStore(t)
			tx := begin(t, db)
			mustExec(t, tx, "INSERT INTO t(id, v) VALUES(10, 'lost')")
			prepared, err := tx.Prepare("INSERT INTO t(id, v) VALUES(11, 'prepared')")
			require.NoError(t, err)
			cause := abort(t, func(ctx context.Context, query string) error {
				_, err := tx.ExecContext(ctx, query)
				return err
			})
			require.Error(t, cause)
			require.NotErrorIs(t, cause, coopsqlite.ErrTxAborted, "the first error is SQLite's own")

			// Others can write at once.
			requireGateFree(t, db)

			for _, query := range []string{"INSERT INTO t(id, v) VALUES(12, 'outside')", "CREATE TABLE outside(x)", "SELECT 1", "COMMIT", "SAVEPOINT s", "PRAGMA user_version=7"} {
				_, err := tx.Exec(query)
				require.ErrorIs(t, err, coopsqlite.ErrTxAborted, query)
				require.ErrorIs(t, err, cause)
				require.ErrorContains(t, err, cause.Error())
				_, err = tx.Query(query)
				require.ErrorIs(t, err, coopsqlite.ErrTxAborted, query)
			}
			_, err = prepared.Exec()
			require.ErrorIs(t, err, coopsqlite.ErrTxAborted)
			require.ErrorIs(t, tx.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(new(int)), coopsqlite.ErrTxAborted)
			require.ErrorIs(t, tx.Commit(), coopsqlite.ErrTxAborted)
			require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE id BETWEEN 10 AND 12 OR v = 1"))
			requireGateFree(t, db)
		})
	}
}

func TestNothingRunsAfterSQLiteRolledARawTransactionBack(t *testing.T) {
	for name, abort := range selfRollbacks {
		for _, end := range []string{"COMMIT", "ROLLBACK", "BEGIN", ""} {
			t.Run(name+"/"+end, func(t *testing.T) {
				db := newFragileStore(t)
				c := grab(t, db)
				exec := func(ctx context.Context, query string) error {
					_, err := c.ExecContext(ctx, query)
					return err
				}
				connExec(t, c, "BEGIN", "SAVEPOINT inner", "INSERT INTO t(id, v) VALUES(10, 'lost')")
				cause := abort(t, exec)
				require.Error(t, cause)
				requireGateFree(t, db)
				for _, query := range []string{"INSERT INTO t(id, v) VALUES(11, 'outside')", "SELECT 1",
					"RELEASE inner", "ROLLBACK TO inner", "SAVEPOINT other", "INSERT INTO t(id, v) VALUES(11, 'outside')"} {
					err := exec(context.Background(), query)
					require.ErrorIs(t, err, coopsqlite.ErrTxAborted)
					require.ErrorIs(t, err, cause)
				}
				switch end {
				case "COMMIT": // says what became of it, once
					require.ErrorIs(t, exec(context.Background(), end), coopsqlite.ErrTxAborted)
				case "ROLLBACK": // is what has happened
					require.NoError(t, exec(context.Background(), end))
				case "BEGIN": // the next try
					connExec(t, c, end, "INSERT INTO t(id, v) VALUES(12, 'again')", "COMMIT")
				case "":
					require.NoError(t, c.Close())
					require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE id > 9"))
					return
				}
				connExec(t, c, "INSERT INTO t(id, v) VALUES(13, 'later')")
				require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE id IN (10, 11)"))
				require.Equal(t, "1", value(t, db, "SELECT count(*) FROM t WHERE id = 13"))
			})
		}
	}
}

func TestRollbackAfterSQLiteRolledBackIsFine(t *testing.T) {
	db := newFragileStore(t)
	tx := begin(t, db)
	_, err := tx.Exec("INSERT OR ROLLBACK INTO t(id) VALUES(1)")
	requireCode(t, err, sqlite3.ErrConstraint)
	require.NoError(t, tx.Rollback())
	requireGateFree(t, db)
}

func TestTransactionSurvivesAnErrorThatOnlyUndoesAStatement(t *testing.T) {
	db := newFragileStore(t)
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t(id, v) VALUES(10, 'kept')")
	for _, query := range []string{"INSERT INTO t(id) VALUES(1)", "INSERT OR FAIL INTO t(id) VALUES(1)", "SELECT * FROM missing", "nonsense"} {
		_, err := tx.Exec(query)
		require.IsType(t, sqlite3.Error{}, err)
	}
	require.NoError(t, tx.Commit())
	require.Equal(t, "1", value(t, db, "SELECT count(*) FROM t WHERE id = 10"))
}

func TestStatementsAfterARawCommitInATxAreRefused(t *testing.T) {
	db := newStore(t, "")
	for _, end := range []string{"COMMIT", "END", "ROLLBACK"} {
		tx := begin(t, db)
		mustExec(t, tx, "DELETE FROM t", "INSERT INTO t(id) VALUES(1)", end)
		_, err := tx.Exec("INSERT INTO t(id) VALUES(2)")
		require.ErrorIs(t, err, coopsqlite.ErrTxAborted)
		require.ErrorContains(t, err, "COMMIT or ROLLBACK")
		require.ErrorIs(t, tx.Commit(), coopsqlite.ErrTxAborted)
		require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE id = 2"))
	}
	// A new one may follow in the same Tx.
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t(id) VALUES(3)", "COMMIT", "BEGIN IMMEDIATE", "INSERT INTO t(id) VALUES(4)")
	require.NoError(t, tx.Rollback())
	require.Equal(t, []string{"3"}, values(t, db, "SELECT id FROM t WHERE id IN (3, 4)"))
	requireGateFree(t, db)
}

func TestRawTransactionThatIsLeftOpenIsRolledBackAndItsConnectionDropped(t *testing.T) {
	for _, begin := range []string{"BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT s", "/* x */ begin; select 1"} {
		t.Run(begin, func(t *testing.T) {
			db := newStore(t, "")
			opened := storeOf(t, db).Stats().Opened
			c := grab(t, db)
			connExec(t, c, begin, "INSERT INTO t(v) VALUES('left')")
			require.NoError(t, c.Close())
			requireGateFree(t, db)
			require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE v = 'left'"))
			for range 3 { // no connection of the pool is in a transaction
				c := grab(t, db)
				require.True(t, inAutocommit(t, c))
			}
			require.Greater(t, storeOf(t, db).Stats().Opened, opened)
		})
	}
	t.Run("through the pool", func(t *testing.T) {
		db := newStore(t, "")
		mustExec(t, db, "BEGIN", "INSERT INTO t(v) VALUES('alone')")
		require.Equal(t, "1", value(t, db, "SELECT count(*) FROM t"), "each statement had a connection of its own")
	})
}

// inAutocommit asks mattn's driver.
func inAutocommit(t testing.TB, c *sql.Conn) (auto bool) {
	t.Helper()
	require.NoError(t, c.Raw(func(dc any) error {
		source, ok := coopsqlite.SQLiteConn(dc)
		if !ok {
			return errors.New("not our connection")
		}
		auto = source.AutoCommit()
		return nil
	}))
	return auto
}

func TestBusyAtCommitRollsBackAndFreesTheGate(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_journal_mode=DELETE&_synchronous=OFF&_busy_timeout=50")
	mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	// An outside reader, for which COMMIT would have to wait.
	reader := start(t, roleOutsider, path)
	require.Empty(t, reader.try("BEGIN"))
	require.Empty(t, reader.try("SELECT * FROM t"))

	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t(v) VALUES('lost')")
	err := tx.Commit()
	require.ErrorIs(t, err, coopsqlite.ErrBusy)
	var e sqlite3.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, sqlite3.ErrBusy, e.Code)

	// Autocommit, and RETURNING, whose commit comes when the rows close.
	_, err = db.Exec("INSERT INTO t(v) VALUES('lost')")
	require.ErrorIs(t, err, coopsqlite.ErrBusy)
	require.ErrorIs(t, db.QueryRow("INSERT INTO t(v) VALUES('lost') RETURNING id").Scan(new(int)), coopsqlite.ErrBusy)

	require.Empty(t, reader.try("COMMIT"))
	requireGateFree(t, db)
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE v = 'lost'"))
}

func TestLongTransactionCommitsWhatItsSavepointsLeft(t *testing.T) {
	db := newStore(t, "")
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t(id) VALUES(1)", "SAVEPOINT a", "INSERT INTO t(id) VALUES(2)", "ROLLBACK TO a", "RELEASE a",
		"SAVEPOINT b", "INSERT INTO t(id) VALUES(3)", "RELEASE b")
	require.NoError(t, tx.Commit())
	require.Equal(t, "1,3", strings.Join(values(t, db, "SELECT id FROM t"), ","))
}

func TestTxLockOfTheDSNDecidesHowTransactionsBegin(t *testing.T) {
	for lock, holds := range map[string]bool{"deferred": false, "immediate": true, "exclusive": true} {
		db := newStore(t, "&_txlock="+lock)
		begin(t, db)
		_, err := db.ExecContext(within(t, 20*time.Millisecond), "INSERT INTO t(v) VALUES(1)")
		if holds {
			require.ErrorIs(t, err, coopsqlite.ErrBusy, lock)
		} else {
			require.NoError(t, err, lock)
		}
	}
}
