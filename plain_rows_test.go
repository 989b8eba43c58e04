package coopsqlite_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// takenOver is what a newer owner does to the store.
const takenOver = "BEGIN; DROP TRIGGER coop_fence_coop_owner_update; UPDATE coop_owner SET epoch = 7, fence = 77, app = 'newer'; COMMIT"

// Turning triggers on or off would abort rows that have a table to open yet.
const twoTables = "SELECT a FROM t UNION ALL SELECT 7 FROM log"

func TestOpenRowsSurviveAWriteBesideThem(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL&_coop_watch=0")
	mustExec(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)", "CREATE TABLE log (b)", "INSERT INTO t (b) VALUES (1), (2), (3)", "INSERT INTO log VALUES (1)")
	one, c := grab(t, db), grab(t, db)
	defer one.Close()
	defer c.Close()
	rows, err := c.QueryContext(t.Context(), twoTables)
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	_, err = c.ExecContext(t.Context(), "INSERT INTO log VALUES (99)")
	require.NoError(t, err)
	require.NoError(t, readAll(rows, nil))
}

// rowsInTx leaves rows open in a transaction of a connection without triggers.
func rowsInTx(t *testing.T) (*sql.DB, *sql.Tx, *sql.Rows) {
	t.Helper()
	db, _ := plainStore(t)
	mustExec(t, db, "INSERT INTO t (b) VALUES (1), (2), (3)", "INSERT INTO log VALUES (1)")
	tx, err := db.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	rows, err := tx.Query(twoTables)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rows.Close() })
	require.True(t, rows.Next())
	return db, tx, rows
}

func TestOpenRowsInATransactionSurviveItsDDL(t *testing.T) {
	_, tx, rows := rowsInTx(t)
	mustExec(t, tx, "CREATE TABLE zz (a)", "INSERT INTO zz VALUES (1)", loggedInsert)
	require.NoError(t, readAll(rows, nil))
}

// The write is refused, not the rows aborted nor the trigger passed over.
func TestATriggerThatComesBesideOpenRowsLetsNoWritePassItOver(t *testing.T) {
	db, tx, rows := rowsInTx(t)
	mustExec(t, tx, logTrigger)
	_, err := tx.Exec(loggedInsert)
	require.ErrorContains(t, err, "close them")
	require.NoError(t, readAll(rows, nil))
	mustExec(t, tx, loggedInsert)
	require.NoError(t, tx.Commit())
	require.Equal(t, "2", value(t, db, "SELECT count(*) FROM log"))
}

// OR FAIL keeps what came before the error.
func TestReturningThatFailsHalfWayIsFencedToo(t *testing.T) {
	const half = "INSERT OR FAIL INTO t (a, b) VALUES (1, 'x'), (2, 'x'), (1, 'x') RETURNING a"
	db, path := plainStore(t)
	require.Error(t, readAll(db.Query(half)))
	require.Equal(t, "2", value(t, db, "SELECT count(*) FROM t"))
	mustExec(t, db, "DELETE FROM t")
	mustExec(t, openPlain(t, path), logTrigger)
	require.Error(t, readAll(db.Query(half)))
	require.Equal(t, "2", value(t, db, "SELECT count(*) FROM t"))
	require.Equal(t, "2", value(t, db, "SELECT count(*) FROM log"))

	db, path = plainStore(t)
	mustExec(t, openPlain(t, path), takenOver)
	require.ErrorIs(t, readAll(db.Query(half)), coopsqlite.ErrSuperseded)
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
}

// A temporary trigger can write something and let no row through.
func TestReturningThatReturnsNothingIsFencedAndRunsOnce(t *testing.T) {
	db, path := plainStore(t)
	c := grab(t, db)
	defer c.Close()
	run := func() error { return readAll(c.QueryContext(t.Context(), loggedInsert+" RETURNING a")) }
	_, err := c.ExecContext(t.Context(), "CREATE TEMP TRIGGER tt BEFORE INSERT ON main.t BEGIN INSERT INTO log VALUES (new.b); SELECT RAISE(IGNORE); END")
	require.NoError(t, err)
	require.NoError(t, run())
	mustExec(t, openPlain(t, path), "CREATE TABLE another (a)")
	require.NoError(t, run())
	require.Equal(t, "2", value(t, db, "SELECT count(*) FROM log"))
	mustExec(t, openPlain(t, path), takenOver)
	require.ErrorIs(t, run(), coopsqlite.ErrSuperseded)
	require.Equal(t, "2", value(t, db, "SELECT count(*) FROM log"))
}

// The driver's transaction around it is not seen: what is begun while the rows
// are open contains what they have written, as with SQLite.
func TestABeginBesideOpenReturningRowsContainsThem(t *testing.T) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		for _, way := range []string{"BEGIN", "BeginTx"} {
			t.Run(way+" "+end, func(t *testing.T) {
				db, _ := plainStore(t)
				c := grab(t, db)
				defer c.Close()
				ctx := t.Context()
				rows, err := c.QueryContext(ctx, "INSERT INTO t (b) VALUES (1), (2) RETURNING a")
				require.NoError(t, err)
				require.True(t, rows.Next())
				run := func(s string) {
					_, err := c.ExecContext(ctx, s)
					require.NoError(t, err, s)
				}
				finish := func() { run(end) }
				if way == "BEGIN" {
					run("BEGIN")
				} else {
					tx, err := c.BeginTx(ctx, nil)
					require.NoError(t, err)
					finish = func() {
						if end == "COMMIT" {
							require.NoError(t, tx.Commit())
						} else {
							require.NoError(t, tx.Rollback())
						}
					}
				}
				run(loggedInsert)
				require.NoError(t, readAll(rows, nil))
				finish()
				want := map[string]string{"COMMIT": "3", "ROLLBACK": "0"}[end]
				require.Equal(t, want, value(t, db, "SELECT count(*) FROM t"))
				run(loggedInsert)
				mustExec(t, db, loggedInsert)
			})
		}
	}
}

func TestAStatementBesideOpenReturningRowsIsCommittedWithThem(t *testing.T) {
	db, path := plainStore(t)
	c := grab(t, db)
	defer c.Close()
	rows, err := c.QueryContext(t.Context(), "INSERT INTO t (b) VALUES (1), (2) RETURNING a")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	_, err = c.ExecContext(t.Context(), loggedInsert)
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	require.Equal(t, "3", value(t, openPlain(t, path), "SELECT count(*) FROM t"))
	// An error that ends everything leaves no transaction that is believed in.
	mustExec(t, db, "CREATE TABLE u (a UNIQUE ON CONFLICT ROLLBACK)", "INSERT INTO u VALUES (1)")
	require.Error(t, readAll(c.QueryContext(t.Context(), "INSERT INTO u VALUES (2), (1) RETURNING a")))
	_, err = c.ExecContext(t.Context(), loggedInsert)
	require.NoError(t, err)
}

func TestReturningSeesTheLastWriteBeforeIt(t *testing.T) {
	db, path := plainStore(t)
	c := grab(t, db)
	defer c.Close()
	_, err := c.ExecContext(t.Context(), "INSERT INTO t (a, b) VALUES (98, 1), (99, 1), (100, 1)")
	require.NoError(t, err)
	mustExec(t, openPlain(t, path), "CREATE TABLE another (a)")
	var rowid, changes int
	require.NoError(t, c.QueryRowContext(t.Context(), "INSERT INTO t (b) SELECT last_insert_rowid() RETURNING b, changes()").Scan(&rowid, &changes))
	require.Equal(t, 100, rowid)
	require.NoError(t, onConn(t.Context(), db, "INSERT INTO t (b) VALUES (1), (2), (3)", "BEGIN", "INSERT INTO log SELECT changes()", "COMMIT"))
	require.Equal(t, "3", value(t, db, "SELECT b FROM log"), "also as the first write of a transaction that was deferred")
}

// A statement that wrote a temporary table takes no gate and is not asked for.
func TestATemporaryNameThatMovedToMainIsFenced(t *testing.T) {
	for name, c := range map[string]struct{ before, statement, after string }{
		"table":     {"CREATE TEMP TABLE t (a INTEGER PRIMARY KEY, b)", "INSERT INTO t (b) VALUES ('yy')", "DROP TABLE temp.t"},
		"RETURNING": {"CREATE TEMP TABLE t (a INTEGER PRIMARY KEY, b)", "INSERT INTO t (b) VALUES ('yy') RETURNING a", "DROP TABLE temp.t"},
		"trigger":   {"CREATE TEMP TABLE mine (b)", "INSERT INTO mine (b) VALUES ('yy')", "CREATE TEMP TRIGGER tt AFTER INSERT ON mine BEGIN INSERT INTO t (b) VALUES (new.b); END"},
	} {
		for _, comes := range []string{takenOver, logTrigger} {
			t.Run(name, func(t *testing.T) {
				db, path := plainStore(t)
				conn := grab(t, db)
				defer conn.Close()
				run := func(s string) {
					_, err := conn.ExecContext(t.Context(), s)
					require.NoError(t, err, s)
				}
				run(c.before)
				st, err := conn.PrepareContext(t.Context(), c.statement)
				require.NoError(t, err)
				run(c.after)
				run("DELETE FROM main.t")
				mustExec(t, openPlain(t, path), comes)
				err = readAll(st.QueryContext(t.Context()))
				if comes == takenOver {
					require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
					require.Equal(t, "0", value(t, db, "SELECT count(*) FROM main.t"))
					return
				}
				require.NoError(t, err)
				require.Equal(t, "1", value(t, db, "SELECT count(*) FROM main.t"))
				require.Equal(t, "1", value(t, db, "SELECT count(*) FROM log"))
			})
		}
	}
}

func TestAStoreWithoutItsOwnersRowIsWrittenByReturning(t *testing.T) {
	db, _ := plainStore(t)
	d, c := grab(t, db), grab(t, db)
	defer d.Close()
	_, err := d.ExecContext(t.Context(), loggedInsert)
	require.NoError(t, err)
	require.NoError(t, c.Raw(func(driverConn any) error {
		inner, _ := coopsqlite.SQLiteConn(driverConn)
		_, err := inner.Exec("DELETE FROM coop_owner", nil)
		return err
	}))
	require.NoError(t, c.Close())
	require.NoError(t, readAll(d.QueryContext(t.Context(), loggedInsert+" RETURNING a")))
}

func TestAViewCanBeWrittenOnceItHasItsTrigger(t *testing.T) {
	const instead = "CREATE TRIGGER iv INSTEAD OF INSERT ON v BEGIN INSERT INTO log VALUES (new.b); END"
	for way, write := range waysToWrite {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			db, path := plainStore(t)
			two := grab(t, db)
			mustExec(t, db, loggedInsert)
			mustExec(t, openPlain(t, path), instead)
			require.NoError(t, two.Close())
			err := write(t.Context(), db, "INSERT INTO v (b) VALUES (5)")
			switch {
			case strings.Contains(way, "open rows"):
				require.ErrorContains(t, err, "close them")
			case strings.Contains(way, "RETURNING"):
				require.ErrorContains(t, err, "no such column: a")
			default:
				require.NoError(t, err)
				require.Equal(t, "1", value(t, db, "SELECT count(*) FROM log"))
			}
		})
	}
}

func TestASchemaVersionThatWasSetBackHidesNoTrigger(t *testing.T) {
	db, _ := plainStore(t)
	version := value(t, db, "PRAGMA schema_version")
	inTransaction(t, db, logTrigger, "PRAGMA schema_version = "+version)
	mustExec(t, db, loggedInsert)
	require.Equal(t, "1", value(t, db, "SELECT count(*) FROM log"))
}

func TestTheOnlyConnectionRemembersItsLastInsert(t *testing.T) {
	db, _ := plainStore(t)
	db.SetMaxOpenConns(1)
	mustExec(t, db, "INSERT INTO t (a, b) VALUES (100, 1)")
	require.NoError(t, storeOf(t, db).Write(t.Context(), func(tx coopsqlite.DBTX) error {
		return insert(t.Context(), tx, "x", "y")
	}))
	require.Equal(t, "100", value(t, db, "SELECT last_insert_rowid()"))

	db = open(t, newPath(t)+"?_coop_changes=*&_coop_watch=0")
	db.SetMaxOpenConns(1)
	mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1), (2), (3), (4), (5)")
	pruned, err := storeOf(t, db).PruneChanges(t.Context(), 3)
	require.NoError(t, err)
	require.EqualValues(t, 2, pruned)
	require.Equal(t, "5", value(t, db, "SELECT changes()"))
}

func TestTwoOpenWritesInAutocommitAreCommittedByTheLast(t *testing.T) {
	for _, own := range []string{"", ownTrigger} {
		db := open(t, newPath(t)+"?_journal_mode=WAL")
		mustExec(t, db, "CREATE TABLE w (id INTEGER PRIMARY KEY, x)", own)
		conn := grab(t, db)
		const query = "INSERT INTO w (x) VALUES (1), (2), (3) RETURNING id"
		a, err := conn.QueryContext(t.Context(), query)
		require.NoError(t, err)
		require.True(t, a.Next())
		b, err := conn.QueryContext(t.Context(), query)
		require.NoError(t, err)
		require.True(t, b.Next())
		require.NoError(t, a.Close())
		n := 1
		for b.Next() {
			n++
		}
		require.NoError(t, b.Err())
		require.NoError(t, b.Close())
		require.Equal(t, 3, n)
		require.NoError(t, conn.Close())
		require.Equal(t, "6", value(t, db, "SELECT count(*) FROM w"))
		mustExec(t, db, "INSERT INTO w (x) VALUES (4)") // the gate is free
	}
}

// A statement whose rows are open is compiled once more for others, and by then its
// names may lead elsewhere.
func TestStatementThatIsCompiledBesideItsRowsIsJudgedToo(t *testing.T) {
	for _, comes := range []string{takenOver, logTrigger} {
		for _, query := range []bool{true, false} {
			db, path := plainStore(t)
			conn := grab(t, db)
			run := func(statement string) {
				_, err := conn.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
			run("CREATE TEMP TABLE mine (b)")
			st, err := conn.PrepareContext(t.Context(), "INSERT INTO mine (b) VALUES ('yy'), ('zz') RETURNING b")
			require.NoError(t, err)
			mustExec(t, openPlain(t, path), comes)
			run("SELECT count(*) FROM t")
			rows, err := st.QueryContext(t.Context())
			require.NoError(t, err)
			require.True(t, rows.Next())
			run("CREATE TEMP TRIGGER tt AFTER INSERT ON mine BEGIN INSERT INTO t (b) VALUES (new.b); END")
			if query {
				err = readAll(st.QueryContext(t.Context()))
			} else {
				_, err = st.ExecContext(t.Context())
			}
			require.NoError(t, rows.Close())
			require.NoError(t, conn.Close())
			if comes == takenOver {
				require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
				require.Equal(t, "0", value(t, db, "SELECT count(*) FROM main.t"))
				continue
			}
			require.Equal(t, value(t, db, "SELECT count(*) FROM log"), value(t, db, "SELECT count(*) FROM main.t"))
		}
	}
}
