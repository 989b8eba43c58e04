package coopsqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// lastSaid describes the newest change.
func lastSaid(t testing.TB, db *sql.DB) string {
	t.Helper()
	changes := feedOf(t, db, 0)
	require.NotEmpty(t, changes)
	return said(changes[len(changes)-1])
}

// inAndOutside runs a test in autocommit, in a transaction, and in one that was
// begun deferred.
func inAndOutside(t *testing.T, test func(t *testing.T, db *sql.DB, exec func(statement string) error)) {
	for _, begin := range []string{"", "BEGIN IMMEDIATE", "BEGIN"} {
		t.Run("after "+begin, func(t *testing.T) {
			db := openTracked(t, "")
			test(t, db, func(statement string) error {
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				if begin == "" {
					_, err = conn.ExecContext(t.Context(), statement)
					return err
				}
				_, err = conn.ExecContext(t.Context(), begin)
				require.NoError(t, err)
				_, failed := conn.ExecContext(t.Context(), statement)
				_, err = conn.ExecContext(t.Context(), "COMMIT")
				require.NoError(t, err)
				return failed
			})
		})
	}
}

func TestColumnsAreAddedDroppedAndRenamedAndTheFeedSaysWhichThereWere(t *testing.T) {
	inAndOutside(t, func(t *testing.T, db *sql.DB, exec func(string) error) {
		mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "CREATE INDEX ta ON t(a)", "INSERT INTO t VALUES(1,2,3)")
		require.Equal(t, `insert t {"id":1} null {"id":1,"a":2,"b":3}`, lastSaid(t, db))
		require.NoError(t, exec("ALTER TABLE t ADD COLUMN c DEFAULT 'new'"))
		mustExec(t, db, "UPDATE t SET a=5")
		require.Equal(t, `update t {"id":1} {"id":1,"a":2,"b":3,"c":"new"} {"id":1,"a":5,"b":3,"c":"new"}`, lastSaid(t, db))
		require.NoError(t, exec("ALTER TABLE t RENAME COLUMN a TO \"it's\""))
		mustExec(t, db, "UPDATE t SET b=6")
		require.Equal(t, `update t {"id":1} {"id":1,"it's":5,"b":3,"c":"new"} {"id":1,"it's":5,"b":6,"c":"new"}`, strings.ReplaceAll(lastSaid(t, db), `\u0027`, "'"))
		require.NoError(t, exec("ALTER TABLE t DROP COLUMN b"))
		mustExec(t, db, "UPDATE t SET c='x'")
		require.Equal(t, `update t {"id":1} {"id":1,"it's":5,"c":"new"} {"id":1,"it's":5,"c":"x"}`, strings.ReplaceAll(lastSaid(t, db), `\u0027`, "'"))
		require.NoError(t, exec("ALTER TABLE t RENAME TO u"))
		mustExec(t, db, "REPLACE INTO u VALUES(1,2,3)", "DELETE FROM u")
		require.Equal(t, `delete u {"id":1} {"id":1,"it's":2,"c":3} null`, strings.ReplaceAll(lastSaid(t, db), `\u0027`, "'"))
	})
}

func TestAFailedALTERLeavesTheTableRecorded(t *testing.T) {
	inAndOutside(t, func(t *testing.T, db *sql.DB, exec func(string) error) {
		mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "CREATE INDEX ta ON t(a)", "INSERT INTO t VALUES(1,2,3)")
		before := values(t, db, "SELECT name, sql FROM sqlite_schema WHERE type='trigger' ORDER BY name")
		require.Error(t, exec("ALTER TABLE t DROP COLUMN a"), "an index uses it")
		require.Error(t, exec("ALTER TABLE t DROP COLUMN id"))
		require.Equal(t, before, values(t, db, "SELECT name, sql FROM sqlite_schema WHERE type='trigger' ORDER BY name"))
		mustExec(t, db, "UPDATE t SET a=7")
		require.Equal(t, `update t {"id":1} {"id":1,"a":2,"b":3} {"id":1,"a":7,"b":3}`, lastSaid(t, db))
	})
}

func TestAFailedALTERLeavesTheRestOfItsTransaction(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "CREATE TABLE u(x, y)", "CREATE VIEW v AS SELECT y FROM u", "INSERT INTO u VALUES(1,2)")
	_, err = tx.Exec("ALTER TABLE u DROP COLUMN z")
	require.ErrorContains(t, err, "no such column")
	_, err = tx.Exec("ALTER TABLE u DROP COLUMN y")
	require.ErrorContains(t, err, "error in view v")
	mustExec(t, tx, "INSERT INTO u VALUES(3,4)", "ALTER TABLE u DROP COLUMN x", "INSERT INTO u VALUES(5)")
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{`insert u {"rowid":1} null {"x":1,"y":2}`, `insert u {"rowid":2} null {"x":3,"y":4}`, `insert u {"rowid":3} null {"y":5}`},
		allSaid(feedOf(t, db, 1)))
}

func TestARebuiltTableIsRecordedUnderItsName(t *testing.T) {
	db := openTracked(t, "&_foreign_keys=1", "CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES(1,2)", "CREATE VIEW v AS SELECT * FROM t")
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "DROP VIEW v", "CREATE TABLE new_t(id INTEGER PRIMARY KEY, a TEXT NOT NULL UNIQUE)", "INSERT INTO new_t SELECT * FROM t",
		"DROP TABLE t", "ALTER TABLE new_t RENAME TO t", "CREATE VIEW v AS SELECT * FROM t")
	require.NoError(t, tx.Commit())
	mustExec(t, db, "REPLACE INTO t VALUES(3,'2')")
	changes := allSaid(feedOf(t, db, 0))
	require.Equal(t, []string{`delete t {"id":1} {"id":1,"a":"2"} null`, `insert t {"id":3} null {"id":3,"a":"2"}`}, changes[len(changes)-2:])
}

func TestAUniqueIndexIsKnownOnceItIsThere(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES(1,'x')",
		"CREATE UNIQUE INDEX ta ON t(lower(a)) WHERE a IS NOT NULL", "REPLACE INTO t VALUES(2,'X')")
	require.Equal(t, []string{`delete t {"id":1} {"id":1,"a":"x"} null`, `insert t {"id":2} null {"id":2,"a":"X"}`}, allSaid(feedOf(t, db, 1)))
	mustExec(t, db, "DROP INDEX ta", "REPLACE INTO t VALUES(3,'x')")
	require.Equal(t, []string{`insert t {"id":3} null {"id":3,"a":"x"}`}, allSaid(feedOf(t, db, 3)))
}

func TestARowIsRecordedBeforeWhatTriggersOfTheUserMakeOfIt(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(id INTEGER PRIMARY KEY, a, touched)",
		"CREATE TRIGGER touch AFTER INSERT ON t BEGIN UPDATE t SET touched=1 WHERE id=NEW.id; END",
		"CREATE TRIGGER touch2 AFTER UPDATE OF a ON t BEGIN UPDATE t SET touched=touched+1 WHERE id=NEW.id; END",
		"INSERT INTO t VALUES(1,'x',0)", "UPDATE t SET a='y'")
	require.Equal(t, []string{
		`insert t {"id":1} null {"id":1,"a":"x","touched":0}`,
		`update t {"id":1} {"id":1,"a":"x","touched":0} {"id":1,"a":"x","touched":1}`,
		`update t {"id":1} {"id":1,"a":"x","touched":1} {"id":1,"a":"y","touched":1}`,
		`update t {"id":1} {"id":1,"a":"y","touched":1} {"id":1,"a":"y","touched":2}`,
	}, allSaid(feedOf(t, db, 0)))
}

func TestNothingOfTheUsersIsHinderedByTracking(t *testing.T) {
	statements := []string{
		"CREATE TABLE a(id INTEGER PRIMARY KEY, x)", "CREATE TABLE b(id INTEGER PRIMARY KEY, a REFERENCES a)",
		"CREATE TRIGGER ab AFTER INSERT ON a BEGIN INSERT INTO b VALUES(NEW.id, NEW.id); END",
		"INSERT INTO a VALUES(1,2)",
		"ALTER TABLE b RENAME TO c", "INSERT INTO a VALUES(2,2)", "ALTER TABLE a RENAME COLUMN x TO y", "INSERT INTO a VALUES(3,2)",
		"DROP TRIGGER ab", "DROP TABLE c", "ALTER TABLE a RENAME TO z", "ALTER TABLE z ADD COLUMN n", "ALTER TABLE z DROP COLUMN y",
		"INSERT INTO z VALUES(9,9)", "CREATE TABLE y AS SELECT * FROM z", "INSERT INTO y VALUES(1,2)", "DROP TABLE z", "ALTER TABLE y RENAME TO a",
		"DELETE FROM a", "VACUUM", "REINDEX", "ANALYZE", "DROP TABLE a", "CREATE TABLE a(q)", "INSERT INTO a VALUES(1)",
	}
	for _, legacy := range []string{"OFF", "ON"} {
		t.Run("legacy_alter_table="+legacy, func(t *testing.T) {
			plain, err := sql.Open("sqlite3", filepath.Join(t.TempDir(), "plain.db"))
			require.NoError(t, err)
			defer plain.Close()
			db := openTracked(t, "")
			for _, db := range []*sql.DB{plain, db} {
				db.SetMaxOpenConns(1)
				mustExec(t, db, "PRAGMA legacy_alter_table="+legacy)
			}
			for _, statement := range statements {
				_, want := plain.Exec(statement)
				_, got := db.Exec(statement)
				if want == nil {
					require.NoError(t, got, statement)
				} else {
					require.EqualError(t, got, want.Error(), statement)
				}
			}
			schema := "SELECT sql FROM sqlite_schema WHERE substr(name,1,5) != 'coop_' ORDER BY name"
			require.Equal(t, values(t, plain, schema), values(t, db, schema))
		})
	}
}

func TestTheFeedIsThereAgainAfterEverythingWasDropped(t *testing.T) {
	inAndOutside(t, func(t *testing.T, db *sql.DB, exec func(string) error) {
		mustExec(t, db, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)", "CREATE TABLE u(a,b)")
		require.NoError(t, exec("DROP TABLE coop_changes"))
		require.NoError(t, exec("ALTER TABLE u RENAME TO v"))
		require.NoError(t, exec("ALTER TABLE v DROP COLUMN b"))
		mustExec(t, db, "INSERT INTO t VALUES(2)")
		require.Equal(t, `insert t {"rowid":2} null {"a":2}`, lastSaid(t, db))
		// Somebody who had read the old feed hears that it is gone.
		require.ErrorIs(t, feedError(t, db, 7), coopsqlite.ErrChangesMissing)
	})
}

func TestWhatAnOutsiderDroppedDoesNotHinderTheOwner(t *testing.T) {
	db := openTracked(t, "&_coop_watch=0", "CREATE TABLE t(a,b)", "INSERT INTO t VALUES(1,2)")
	outside, err := sql.Open("sqlite3", storeOf(t, db).Path())
	require.NoError(t, err)
	defer outside.Close()
	mustExec(t, outside, "DROP TABLE coop_changes")
	mustExec(t, db, "ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES(2,3)")
	require.Equal(t, `insert u {"rowid":2} null {"a":2,"b":3}`, lastSaid(t, db))
	mustExec(t, outside, "DROP TRIGGER coop_change_u_delete", "DROP TRIGGER coop_change_u_insert_collision")
	mustExec(t, db, "ALTER TABLE u DROP COLUMN b", "DELETE FROM u WHERE a=1")
	require.Equal(t, `delete u {"rowid":1} {"a":1} null`, lastSaid(t, db))
}

func TestALTERWorksUnderAnAuthorizerOfTheUsers(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a,b,c)", "INSERT INTO t VALUES(1,2,3)")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(dc any) error {
		source, ok := coopsqlite.SQLiteConn(dc)
		require.True(t, ok)
		source.RegisterAuthorizer(func(int, string, string, string) int { return sqlite3.SQLITE_OK })
		return nil
	}))
	for _, statement := range []string{"ALTER TABLE t DROP COLUMN b", "BEGIN", "ALTER TABLE t RENAME COLUMN c TO d", "COMMIT", "UPDATE t SET a=5"} {
		_, err = conn.ExecContext(context.Background(), statement)
		require.NoError(t, err, statement)
	}
	require.Equal(t, `update t {"rowid":1} {"a":1,"d":3} {"a":5,"d":3}`, lastSaid(t, db))
}

func TestNamesOfEveryKindAreRecorded(t *testing.T) {
	for _, name := range []string{`we"ird 't?able`, "r", "old", "select", "ünï", "coop", "x_insert", "-- /* [", "NEW"} {
		t.Run(name, func(t *testing.T) {
			quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
			db := openTracked(t, "", "CREATE TABLE "+quoted+`("old" INTEGER PRIMARY KEY, "new", "r" UNIQUE, "select", "a""b", "'?'", `+quoted[:len(quoted)-1]+`2")`,
				"CREATE UNIQUE INDEX "+quoted[:len(quoted)-1]+`x" ON `+quoted+`("r" || "new", "'?'")`,
				"INSERT INTO "+quoted+" VALUES(1,2,3,4,5,6,7)", "REPLACE INTO "+quoted+" VALUES(2,2,3,4,5,6,7)", "UPDATE "+quoted+` SET "select"=1`,
				"ALTER TABLE "+quoted+` RENAME COLUMN "select" TO "from"`, "DELETE FROM "+quoted)
			changes := feedOf(t, db, 0)
			require.Len(t, changes, 5)
			for _, c := range changes {
				require.Equal(t, name, c.Table)
			}
			var names []string
			for _, c := range changes[4].Old {
				names = append(names, c.Name)
			}
			require.Equal(t, []string{"old", "new", "r", "from", `a"b`, "'?'", name + "2"}, names)
		})
	}
}

func TestTheWatcherRestoresTrackingThatAnOutsiderRemoved(t *testing.T) {
	db := openTracked(t, "&_coop_watch=5ms", "CREATE TABLE t(a)")
	triggers := "SELECT count(*) FROM sqlite_schema WHERE substr(name,1,12) = 'coop_change_'"
	before := value(t, db, triggers)
	mustExec(t, openPlain(t, storeOf(t, db).Path()), "DROP TRIGGER coop_change_t_insert")
	require.Eventually(t, func() bool { return value(t, db, triggers) == before }, patience, time.Millisecond)
	mustExec(t, db, "INSERT INTO t VALUES(1)")
	require.Len(t, feedOf(t, db, 0), 1)
}

func TestRowsOfACreatedOrDroppedTableAreNoChanges(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t AS SELECT 1 AS a", "DROP TABLE t")
	require.Empty(t, feedOf(t, db, 0))
}
