package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// kindSetup runs before each statement of the two lists below, on the same
// connection. DIR stands for the store's directory.
var kindSetup = []string{
	"CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
	"CREATE INDEX tv ON t(v)",
	"INSERT INTO t(v) VALUES(1), (2), (3)",
	"CREATE VIEW w AS SELECT v FROM t",
	"CREATE TRIGGER wi INSTEAD OF INSERT ON w BEGIN INSERT INTO t(v) VALUES(NEW.v); END",
	"CREATE TEMP TABLE mine(x)",
	"CREATE TEMP TABLE spy(x)",
	"CREATE TEMP TRIGGER spying AFTER INSERT ON spy BEGIN INSERT INTO main.t(v) VALUES(NEW.x); END",
	"ATTACH 'DIR/other.db' AS other",
	"PRAGMA other.synchronous=OFF",
	"CREATE TABLE other.o(x)",
}

// These leave the store as it is, and so must not wait for its writer.
var onlyReads = []string{
	"SELECT * FROM t",
	"/* a comment; INSERT */ SELECT * FROM t",
	"-- a comment; INSERT\n SELECT * FROM t -- and another",
	"WITH x AS (SELECT 1) SELECT * FROM x",
	"VALUES(1)",
	"SELECT 1; SELECT 2;",
	"",
	" ; -- nothing\n;",
	"EXPLAIN INSERT INTO t(v) VALUES(1)",
	"EXPLAIN QUERY PLAN DELETE FROM t",
	"EXPLAIN CREATE TABLE x(y)",
	"EXPLAIN BEGIN IMMEDIATE",
	"PRAGMA table_info(t)",
	"PRAGMA index_list('t')",
	"PRAGMA journal_mode",
	"PRAGMA user_version",
	"PRAGMA integrity_check",
	"PRAGMA busy_timeout",
	"PRAGMA foreign_keys=ON",
	"PRAGMA cache_size=50",
	"SELECT * FROM pragma_table_info('t')",
	"SELECT * FROM w",
	"BEGIN; SELECT * FROM t; COMMIT",
	"SAVEPOINT s; RELEASE s",
	"BEGIN; ROLLBACK",
	"CREATE TEMP TABLE x(y)",
	"CREATE TEMP VIEW x AS SELECT 1",
	"CREATE TEMP TABLE copy AS SELECT * FROM t",
	"INSERT INTO mine VALUES(1)",
	"UPDATE mine SET x = 2",
	"DELETE FROM temp.mine",
	"DROP TABLE mine",
	"ATTACH ':memory:' AS more",
	"DETACH other",
	"VACUUM INTO 'DIR/copy.db'",
}

// These may change the store, or lock it.
var writes = []string{
	"INSERT INTO t(v) VALUES(9)",
	"/* SELECT */ INSERT INTO t(v) VALUES(9)",
	"-- SELECT\n\tINSERT INTO t(v) VALUES(9)",
	"WITH x(y) AS (SELECT 9) INSERT INTO t(v) SELECT y FROM x",
	"WITH x AS (SELECT 1) UPDATE t SET v = 9",
	"WITH x AS (SELECT 1) DELETE FROM t",
	"REPLACE INTO t(id, v) VALUES(1, 9)",
	"INSERT OR REPLACE INTO t(id, v) VALUES(1, 9)",
	"INSERT INTO t(id, v) VALUES(1, 9) ON CONFLICT DO UPDATE SET v = 8",
	"UPDATE t SET v = v WHERE 0",
	"DELETE FROM t WHERE 0",
	"INSERT INTO t(v) VALUES(9) RETURNING id",
	"UPDATE t SET v = 9 RETURNING id, v",
	"DELETE FROM t RETURNING *",
	"SELECT 1; INSERT INTO t(v) VALUES(9); SELECT 2",
	"INSERT INTO w VALUES(9)",
	"INSERT INTO spy VALUES(9)",
	"CREATE TABLE n(x)",
	"/* c */ CREATE TABLE n(x)",
	"CREATE TABLE n AS SELECT * FROM t",
	"CREATE TABLE IF NOT EXISTS t(other)",
	"CREATE INDEX IF NOT EXISTS tv ON t(v)",
	"CREATE INDEX n ON t(v, id)",
	"CREATE VIEW n AS SELECT 1",
	"CREATE TRIGGER n AFTER DELETE ON t BEGIN SELECT 1; END",
	"DROP INDEX tv",
	"DROP TABLE t",
	"ALTER TABLE t ADD COLUMN more",
	"ALTER TABLE t RENAME TO renamed",
	"ALTER TABLE t RENAME COLUMN id TO w",
	"REINDEX",
	"ANALYZE",
	"VACUUM",
	"PRAGMA user_version=3",
	"PRAGMA application_id(4)",
	"PRAGMA incremental_vacuum",
	"PRAGMA journal_mode=DELETE",
	"PRAGMA wal_checkpoint(TRUNCATE)",
	"BEGIN IMMEDIATE; COMMIT",
	"BEGIN EXCLUSIVE; ROLLBACK",
	"BEGIN; SELECT * FROM t; INSERT INTO t(v) VALUES(9); COMMIT",
	"SAVEPOINT s; UPDATE t SET v = 9; RELEASE s",
}

// kindStore opens a store with what the lists need, on one connection.
func kindStore(t *testing.T, hook func(*sqlite3.SQLiteConn) error) (db *sql.DB, fill func(string) string) {
	path := newPath(t)
	connector, err := coopsqlite.NewConnector(path+"?_journal_mode=WAL&_synchronous=OFF", &coopsqlite.Options{ConnectHook: hook})
	require.NoError(t, err)
	db = sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	fill = func(statement string) string { return strings.ReplaceAll(statement, "DIR", filepath.Dir(path)) }
	for _, statement := range kindSetup {
		mustExec(t, db, fill(statement))
	}
	return db, fill
}

// waysToRun are the doors through which a statement comes.
var waysToRun = map[string]func(db *sql.DB, statement string) error{
	"exec": func(db *sql.DB, statement string) error { _, err := db.Exec(statement); return err },
	"query": func(db *sql.DB, statement string) error {
		_, err := queryAll(db, statement)
		return err
	},
	"prepared": func(db *sql.DB, statement string) error {
		stmt, err := db.Prepare(statement)
		if err != nil {
			return err
		}
		defer stmt.Close()
		_, err = stmt.Exec()
		return err
	},
	"prepared query": func(db *sql.DB, statement string) error {
		stmt, err := db.Prepare(statement)
		if err != nil {
			return err
		}
		defer stmt.Close()
		rows, err := stmt.Query()
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return rows.Close()
	},
}

// severalStatements reports whether Prepare would refuse the text.
func severalStatements(text string) bool {
	first, rest, _ := strings.Cut(text, ";")
	return !strings.Contains(first, "/*") && !strings.Contains(first, "--") && !strings.Contains(first, "TRIGGER") && rest != ""
}

// requireKind checks how many times each statement goes through the gate.
func requireKind(t *testing.T, statements []string, passages int64, hook func(*sqlite3.SQLiteConn) error, exceptions ...string) {
	for _, statement := range statements {
		t.Run(statement, func(t *testing.T) {
			for way, run := range waysToRun {
				if strings.HasPrefix(way, "prepared") && (hook != nil || severalStatements(statement)) {
					continue
				}
				db, fill := kindStore(t, hook)
				before := storeOf(t, db).Stats().Transactions
				require.NoError(t, run(db, fill(statement)), way)
				after := storeOf(t, db).Stats().Transactions
				want := passages
				for _, exception := range exceptions {
					if exception == statement {
						want = 1 - passages
					}
				}
				require.Equal(t, want, after-before, "passages through the gate by %s", way)
				requireGateIsFreeOnOneConnection(t, db)
				if passages > 0 {
					requireCovered(t, storeOf(t, db).Path())
				}
			}
		})
	}
}

func requireGateIsFreeOnOneConnection(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(within(t, patience), "PRAGMA main.user_version=1")
	require.NoError(t, err)
}

func TestStatementsThatOnlyReadDoNotTakeTheGate(t *testing.T) { requireKind(t, onlyReads, 0, nil) }

func TestStatementsThatWriteTakeTheGateOnce(t *testing.T) { requireKind(t, writes, 1, nil) }

// replaceAuthorizer lets the user's own authorizer take the place of the
// driver's, which SQLite does without a word.
func replaceAuthorizer(c *sqlite3.SQLiteConn) error {
	c.RegisterAuthorizer(func(int, string, string, string) int { return sqlite3.SQLITE_OK })
	return nil
}

func TestUsersAuthorizerChangesNothingButCaution(t *testing.T) {
	t.Run("reads", func(t *testing.T) {
		// Of PRAGMAs nobody tells then that this one only asks.
		requireKind(t, onlyReads, 0, replaceAuthorizer, "PRAGMA journal_mode")
	})
	t.Run("writes", func(t *testing.T) { requireKind(t, writes, 1, replaceAuthorizer) })
	t.Run("set later", func(t *testing.T) {
		ctx := context.Background()
		db := newStore(t, "&_busy_timeout=60000")
		c := grab(t, db)
		connExec(t, c, "INSERT INTO t(v) VALUES(1)") // cached while ours was there
		require.NoError(t, c.Raw(func(dc any) error {
			source, _ := coopsqlite.SQLiteConn(dc)
			return replaceAuthorizer(source)
		}))
		connExec(t, c, "INSERT INTO t(v) VALUES(1)", "CREATE TABLE later(x)", "BEGIN", "CREATE TABLE inside(x)", "COMMIT",
			"PRAGMA busy_timeout=50")
		requireCovered(t, storeOf(t, db).Path())
		begin(t, db)
		begun := time.Now()
		_, err := c.ExecContext(ctx, "INSERT INTO t(v) VALUES(1)")
		require.ErrorIs(t, err, coopsqlite.ErrBusy)
		require.Less(t, time.Since(begun), soon, "PRAGMA busy_timeout is understood all the same")
	})
	t.Run("asked each time", func(t *testing.T) {
		answer := sqlite3.SQLITE_OK
		db, _ := kindStore(t, func(c *sqlite3.SQLiteConn) error {
			c.RegisterAuthorizer(func(int, string, string, string) int { return answer })
			return nil
		})
		for _, statement := range []string{"SELECT * FROM t", "UPDATE t SET v = 1", "INSERT INTO t(v) VALUES(1) RETURNING id"} {
			answer = sqlite3.SQLITE_OK
			for range 2 {
				_, err := queryAll(db, statement)
				require.NoError(t, err)
			}
			answer = sqlite3.SQLITE_DENY
			_, err := queryAll(db, statement)
			requireCode(t, err, sqlite3.ErrAuth)
			_, err = db.Exec(statement)
			requireCode(t, err, sqlite3.ErrAuth)
		}
	})
	t.Run("that denies", func(t *testing.T) {
		db, _ := kindStore(t, nil)
		require.NoError(t, grabOnce(t, db, func(source *sqlite3.SQLiteConn) error {
			source.RegisterAuthorizer(func(action int, _, _, _ string) int {
				if action == sqlite3.SQLITE_DELETE {
					return sqlite3.SQLITE_DENY
				}
				return sqlite3.SQLITE_OK
			})
			return nil
		}))
		_, err := db.Exec("DELETE FROM t")
		requireCode(t, err, sqlite3.ErrAuth)
		mustExec(t, db, "INSERT INTO t(v) VALUES(1)")
	})
}

// grabOnce runs fn with mattn's connection below a pool of one.
func grabOnce(t *testing.T, db *sql.DB, fn func(*sqlite3.SQLiteConn) error) error {
	c, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer c.Close()
	return c.Raw(func(dc any) error {
		source, ok := coopsqlite.SQLiteConn(dc)
		require.True(t, ok)
		return fn(source)
	})
}

func TestReadsGoOnWhileAWriterHoldsTheGate(t *testing.T) {
	// The proof by time, for a few: none of these may wait 60 seconds.
	db := newStore(t, "&_busy_timeout=60000")
	dir := filepath.Dir(storeOf(t, db).Path())
	mustExec(t, begin(t, db), "INSERT INTO t(v) VALUES(1)")
	ctx := within(t, 30*time.Second)
	for _, statement := range []string{"SELECT * FROM t", "PRAGMA table_info(t)", "EXPLAIN DELETE FROM t",
		"ATTACH '" + dir + "/x.db' AS x", "CREATE TEMP TABLE m(x)", "VACUUM INTO '" + dir + "/copy.db'"} {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err, statement)
	}
}

func TestDDLIsRefusedWhileRowsOfReturningAreOpen(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "")
	c := grab(t, db)
	rows, err := c.QueryContext(ctx, "INSERT INTO t(v) VALUES(1), (2) RETURNING id")
	require.NoError(t, err)
	require.True(t, rows.Next())
	_, err = c.ExecContext(ctx, "CREATE TABLE u(x)")
	requireCode(t, err, sqlite3.ErrLocked)
	require.ErrorContains(t, err, "RETURNING")
	require.NoError(t, rows.Close())
	connExec(t, c, "CREATE TABLE u(x)")
	requireCovered(t, storeOf(t, db).Path())
}

func TestPragmaIsJudgedAnewEachTime(t *testing.T) {
	db := newStore(t, "")
	db.SetMaxOpenConns(1)
	// SQLite fixes some answers when the PRAGMA is prepared.
	for i := range 3 {
		mustExec(t, db, fmt.Sprintf("PRAGMA cache_size=%d", 100+i))
		require.Equal(t, fmt.Sprint(100+i), value(t, db, "PRAGMA cache_size"))
		mustExec(t, db, fmt.Sprintf("PRAGMA user_version=%d", i))
		require.Equal(t, fmt.Sprint(i), value(t, db, "PRAGMA user_version"))
	}
}

func TestCachedStatementsSeeTheSchemaAsItIs(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "")
	mustExec(t, db, "INSERT INTO t(v) VALUES(1)")
	a, b := grab(t, db), grab(t, db)
	columns := func(c *sql.Conn) []string {
		rows, err := c.QueryContext(ctx, "SELECT * FROM t")
		require.NoError(t, err)
		defer rows.Close()
		names, err := rows.Columns()
		require.NoError(t, err)
		require.True(t, rows.Next())
		dest := make([]any, len(names))
		for i := range dest {
			dest[i] = new(any)
		}
		require.NoError(t, rows.Scan(dest...))
		return names
	}
	require.Equal(t, []string{"id", "v"}, columns(a))
	connExec(t, b, "ALTER TABLE t ADD COLUMN w DEFAULT 7")
	require.Equal(t, []string{"id", "v", "w"}, columns(a))
	connExec(t, b, "ALTER TABLE t RENAME COLUMN w TO x")
	require.Equal(t, []string{"id", "v", "x"}, columns(a))
	// RETURNING and writes too.
	returning := func() []string {
		rows, err := a.QueryContext(ctx, "UPDATE t SET v = 1 RETURNING *")
		require.NoError(t, err)
		defer rows.Close()
		names, err := rows.Columns()
		require.NoError(t, err)
		return names
	}
	require.Equal(t, []string{"id", "v", "x"}, returning())
	connExec(t, b, "ALTER TABLE t DROP COLUMN x")
	require.Equal(t, []string{"id", "v"}, returning())
	requireCovered(t, storeOf(t, db).Path())
}

func TestOnConflictFailKeepsWhatCameBeforeTheError(t *testing.T) {
	t.Run("", func(t *testing.T) { requireFailKeeps(t, newStore(t, "")) })
	t.Run("with the user's authorizer", func(t *testing.T) {
		connector, err := coopsqlite.NewConnector(newPath(t)+"?_journal_mode=WAL&_synchronous=OFF",
			&coopsqlite.Options{ConnectHook: replaceAuthorizer})
		require.NoError(t, err)
		db := sql.OpenDB(connector)
		defer db.Close()
		mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
		requireFailKeeps(t, db)
	})
}

func requireFailKeeps(t *testing.T, db *sql.DB) {
	mustExec(t, db, "INSERT INTO t(id) VALUES(3)",
		"CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.v = 'no' BEGIN SELECT RAISE(FAIL, 'no'); END")
	for query, kept := range map[string]string{
		"INSERT OR FAIL INTO t(id) VALUES(1), (2), (3), (4)":                 "3",
		"INSERT OR ABORT INTO t(id) VALUES(1), (2), (3), (4)":                "1",
		"INSERT OR ROLLBACK INTO t(id) VALUES(1), (2), (3), (4)":             "1",
		"INSERT OR IGNORE INTO t(id) VALUES(1), (2), (3), (4); SELECT error": "4",
		"INSERT INTO t(id, v) VALUES(1, 'yes'), (2, 'no'), (4, 'yes')":       "2",
	} {
		before := storeOf(t, db).Stats().Transactions
		_, err := db.Exec(query)
		require.Error(t, err)
		require.Equal(t, kept, value(t, db, "SELECT count(*) FROM t"), query)
		require.EqualValues(t, 1, storeOf(t, db).Stats().Transactions-before)
		mustExec(t, db, "DELETE FROM t WHERE id != 3")
	}
}

func TestAutocommitWriteLocksNoAttachedDatabase(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	attach := "ATTACH '" + filepath.Join(filepath.Dir(path), "other.db") + "' AS other"
	for name, how := range map[string]func(c *sql.Conn) error{
		"statement": func(c *sql.Conn) error { _, err := c.ExecContext(ctx, attach); return err },
		"mattn's connection": func(c *sql.Conn) error {
			return c.Raw(func(dc any) error {
				source, _ := coopsqlite.SQLiteConn(dc)
				_, err := source.Exec(attach, nil)
				return err
			})
		},
		"hook": func(c *sql.Conn) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			connector, err := coopsqlite.NewConnector(path+"?_journal_mode=WAL&_synchronous=OFF&_busy_timeout=100", &coopsqlite.Options{
				ConnectHook: func(c *sqlite3.SQLiteConn) error {
					if name != "hook" {
						return nil
					}
					_, err := c.Exec(attach, nil)
					return err
				}})
			require.NoError(t, err)
			db := sql.OpenDB(connector)
			defer db.Close()
			mustExec(t, db, "CREATE TABLE IF NOT EXISTS t(v)")
			first := grab(t, db)
			defer first.Close()
			c := grab(t, db) // has not begun a transaction yet
			defer c.Close()
			require.NoError(t, how(c))
			connExec(t, c, "CREATE TABLE IF NOT EXISTS other.o(x)")

			outsider := openPlain(t, filepath.Join(filepath.Dir(path), "other.db")+"?_txlock=immediate")
			busy := begin(t, outsider)
			connExec(t, c, "INSERT INTO t VALUES(2)", "UPDATE t SET v = 3")
			_, err = c.ExecContext(ctx, "INSERT INTO other.o VALUES(1)")
			require.ErrorIs(t, err, coopsqlite.ErrBusy)
			require.NoError(t, busy.Rollback())
			connExec(t, c, "INSERT INTO other.o VALUES(1)")
		})
	}
}
