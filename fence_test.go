package coopsqlite_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

func TestEveryKindOfTableIsFenced(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db,
		"CREATE TABLE ordinary (a, b)",
		"CREATE TABLE strict (a INTEGER, b TEXT) STRICT",
		"CREATE TABLE without_rowid (a PRIMARY KEY, b) WITHOUT ROWID",
		"CREATE TABLE strict_without_rowid (a TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
		"CREATE TABLE generated (a, b AS (a + 1) STORED, c AS (a + 2) VIRTUAL)",
		"CREATE TABLE numbered (a INTEGER PRIMARY KEY AUTOINCREMENT, b)",
		"CREATE TABLE unique_columns (a UNIQUE, b, UNIQUE (a, b))",
		"CREATE TABLE checked (a CHECK (a > 0) NOT NULL)",
		"CREATE TABLE parent (a PRIMARY KEY)",
		"CREATE TABLE child (a REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
		"CREATE TABLE selected AS SELECT * FROM ordinary",
		"CREATE TEMP TABLE temporary (a)",
		"CREATE VIEW v AS SELECT * FROM ordinary",
	)
	tables := []string{"ordinary", "strict", "without_rowid", "strict_without_rowid", "generated", "numbered", "unique_columns",
		"checked", "parent", "child", "selected"}
	for _, table := range tables {
		columns := "a"
		mustExec(t, db, "INSERT INTO "+table+" ("+columns+") VALUES (1)", "UPDATE "+table+" SET a = 2", "DELETE FROM "+table)
	}
	mustExec(t, db, "INSERT INTO temporary VALUES (1)")
	requireFenced(t, path, tables...)
}

// oddNames are table names that SQLite allows and quoting must survive.
var oddNames = []string{
	`quote"d`, `""`, `'`, `it's`, "`back`", "[bracket]", "dot.ted", "with space", " leading", "trailing ", "semi;colon", "new\nline", "tab\t",
	"select", "TABLE", "order", "1", "12e3", "-", "--", "/*", "%s", "%", "_", "?", "$1", ":a", "@b", "ünïcödé", "日本語", "🔒", "\u202eright",
	"main.t", "sqlite", "x_insert", "fence", "coopering", strings.Repeat("x", 60), strings.Repeat("long name ", 30),
	"Case", "ÄRGER", "ärger", "END; DROP TABLE t",
}

func TestTableNamesMayBeAnything(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	for _, name := range oddNames {
		mustExec(t, db, "CREATE TABLE "+quote(name)+" (a)")
		mustExec(t, db, "INSERT INTO "+quote(name)+" VALUES (1)")
	}
	requireFenced(t, path, oddNames...)
	require.NoError(t, db.Close())
	db = open(t, path)
	coverage, err := storeOf(t, db).Verify(context.Background())
	require.NoError(t, err)
	require.True(t, coverage.Complete(), "%+v", coverage)
	for _, name := range oddNames {
		mustExec(t, db, "UPDATE "+quote(name)+" SET a = 2", "ALTER TABLE "+quote(name)+" RENAME TO "+quote("renamed "+name))
	}
	renamed := make([]string, len(oddNames))
	for i, name := range oddNames {
		renamed[i] = "renamed " + name
	}
	requireFenced(t, path, renamed...)
	for _, name := range renamed {
		mustExec(t, db, "DROP TABLE "+quote(name))
	}
	requireFenced(t, path)
}

// SQLite takes names that differ in the case of ASCII letters for one table,
// and all others for different ones.
func TestNamesThatDifferInCaseOnly(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_tables=-todos,-ÄRGER")
	mustExec(t, db, "CREATE TABLE Todos (a)", "CREATE TABLE ärger (a)", "CREATE TABLE ÄRGER (a)")
	requireFenced(t, path, "ärger")
}

func TestOnlySelectedTablesAreFenced(t *testing.T) {
	for _, c := range []struct {
		tables string
		fenced []string
	}{
		{"*", []string{"a", "b", "later"}},
		{"a", []string{"a"}},
		{"a,later", []string{"a", "later"}},
		{"-b", []string{"a", "later"}},
		{"*,-b", []string{"a", "later"}},
		{"A,nobody", []string{"a"}},
	} {
		t.Run(c.tables, func(t *testing.T) {
			path := newPath(t)
			mustExec(t, openPlain(t, path), "CREATE TABLE a (x)", "CREATE TABLE b (x)")
			db := open(t, path+"?_coop_tables="+c.tables)
			mustExec(t, db, "CREATE TABLE later (x)")
			requireFenced(t, path, c.fenced...)
		})
	}
}

func TestSelectionMayChangeWithTheNextOwner(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE a (x)", "CREATE TABLE b (x)")
	require.NoError(t, db.Close())
	require.NoError(t, open(t, path+"?_coop_tables=-b").Close())
	requireFenced(t, path, "a")
	require.NoError(t, open(t, path).Close())
	requireFenced(t, path, "a", "b")
}

func TestEpochOffLeavesTheFirstArmAlone(t *testing.T) {
	path := newPath(t)
	for _, c := range []struct {
		parameters string
		arms       int
	}{{"", 2}, {"?_coop_epoch=off", 1}, {"?_coop_epoch=on", 2}} {
		db := open(t, path+c.parameters)
		mustExec(t, db, "CREATE TABLE IF NOT EXISTS t (a)", "INSERT INTO t VALUES (1)")
		text := value(t, db, "SELECT sql FROM sqlite_schema WHERE name = 'coop_guard'")
		require.Equal(t, c.arms, strings.Count(text, "RAISE(ABORT,"), text)
		text = value(t, db, "SELECT sql FROM sqlite_schema WHERE name = 'coop_fence_coop_owner_insert'")
		require.Equal(t, 1, strings.Count(text, "RAISE(ABORT,"), "or nobody could take over: %s", text)
		require.NoError(t, db.Close())
	}
}

func TestFenceOffInstallsNothing(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_fence=off")
	mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
	require.Equal(t, []string{"t"}, values(t, db, "SELECT name FROM sqlite_schema"))
	require.Empty(t, start(t, roleOutsider, path).try("INSERT INTO t VALUES (2)"))
	require.True(t, start(t, roleOwner, path).opened.Conflict, "the lock is held all the same")
}

func TestOpeningAStoreThatIsFencedChangesNoSchema(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	version := value(t, db, "PRAGMA schema_version")
	require.NoError(t, db.Close())
	db = open(t, path)
	require.Equal(t, version, value(t, db, "PRAGMA schema_version"), "nothing was missing, so nothing was installed")
	mustExec(t, db, "DROP TRIGGER coop_fence_t_update")
	requireFenced(t, path, "t")
}

func TestOpeningRepairsOnlyWhatIsWrong(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)", "CREATE TABLE u (a)")
	require.NoError(t, db.Close())
	plain := openPlain(t, path)
	mustExec(t, plain,
		"DROP TRIGGER coop_fence_t_insert",
		"DROP TRIGGER coop_fence_t_delete",
		"CREATE TRIGGER coop_fence_t_delete BEFORE DELETE ON t BEGIN SELECT 1; END",
		"CREATE TRIGGER coop_fence_gone_insert BEFORE INSERT ON u BEGIN SELECT 1; END",
		"CREATE TABLE w (a)")
	db = open(t, path)
	mustExec(t, db, "INSERT INTO t VALUES (1)")
	requireFenced(t, path, "t", "u", "w")
	coverage, err := storeOf(t, db).Verify(context.Background())
	require.NoError(t, err)
	require.Empty(t, coverage.Stray)
}

func TestFencesAreCompleteAfterEveryCommit(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	requireFenced(t, path, "t")
	mustExec(t, db, "ALTER TABLE t RENAME TO t_old", "CREATE TABLE t (a, b)")
	requireFenced(t, path, "t", "t_old")
	mustExec(t, db, "CREATE TABLE copy AS SELECT * FROM t")
	requireFenced(t, path, "t", "t_old", "copy")
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, // the twelve steps in which a table is rebuilt
		"CREATE TABLE new_t (a NOT NULL, b)", "INSERT INTO new_t SELECT * FROM t", "DROP TABLE t", "ALTER TABLE new_t RENAME TO t",
		"DROP TABLE t_old", "ALTER TABLE copy ADD COLUMN c", "ALTER TABLE copy DROP COLUMN a", "ALTER TABLE copy RENAME COLUMN b TO d")
	require.NoError(t, tx.Commit())
	requireFenced(t, path, "t", "copy")
	mustExec(t, db, "BEGIN; CREATE TABLE raw (a); COMMIT", "SAVEPOINT s; CREATE TABLE saved (a); RELEASE s")
	requireFenced(t, path, "t", "copy", "raw", "saved")
	_, err = db.Exec("CREATE TABLE rolled (a); INSERT INTO nowhere VALUES (1)")
	require.Error(t, err)
	requireFenced(t, path, "t", "copy", "raw", "saved", "rolled")
}

// A migrator's "drop all" takes coop_owner with it, after which every fence
// would refuse everybody.
func TestDroppedOwnerTableComesBackWithItsEpoch(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	require.NoError(t, db.Close())
	db = open(t, path)
	mustExec(t, db, "DROP TABLE coop_owner")
	mustExec(t, db, "INSERT INTO t VALUES (1)")
	require.Equal(t, "2", value(t, db, "SELECT epoch FROM coop_owner"))
	requireFenced(t, path, "t")
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "DROP TABLE t", "DROP TABLE coop_owner", "CREATE TABLE u (a)")
	require.NoError(t, tx.Commit())
	mustExec(t, db, "INSERT INTO u VALUES (1)")
	requireFenced(t, path, "u")
	require.NoError(t, db.Close())
	require.EqualValues(t, 3, storeOf(t, open(t, path)).Epoch())
}

func TestOwnerTableDroppedByAnOutsiderComesBack(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_watch=0")
	mustExec(t, db, "CREATE TABLE t (a)")
	require.Empty(t, start(t, roleOutsider, path).try("DROP TABLE coop_owner"), "no trigger sees DDL")
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO t VALUES (1)")
	require.NoError(t, tx.Commit())
	require.Equal(t, "1", value(t, db, "SELECT epoch FROM coop_owner"))
	requireFenced(t, path, "t")
}

func TestUntrustedSchemaDoesNotBreakTheOwner(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	db.SetMaxOpenConns(1)
	mustExec(t, db, "PRAGMA trusted_schema = OFF", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)", "UPDATE t SET a = 2", "DELETE FROM t")
	require.Equal(t, "0", value(t, db, "PRAGMA trusted_schema"))
}

// Owning one store gives no right to write another that has an owner.
func TestOwnerOfOneStoreCannotWriteAnAttachedOne(t *testing.T) {
	pathA, pathB, pathC := newPath(t), newPath(t), newPath(t)
	b := open(t, pathB)
	mustExec(t, b, "CREATE TABLE t (a)", "CREATE TABLE bare (a)", "INSERT INTO t VALUES (1)")
	require.NoError(t, b.Close())
	mustExec(t, openPlain(t, pathC), "CREATE TABLE t (a)")

	a := open(t, pathA)
	a.SetMaxOpenConns(1)
	mustExec(t, a, "CREATE TABLE own (a)")
	_, err := a.Exec("ATTACH ? AS b", pathB)
	require.NoError(t, err)
	_, err = a.Exec("ATTACH ? AS c", pathC)
	require.NoError(t, err)
	for _, statement := range []string{
		"INSERT INTO b.t VALUES (2)", "UPDATE b.t SET a = 2", "DELETE FROM b.t", "CREATE TABLE b.u (a)", "DROP TABLE b.t",
		"ALTER TABLE b.t RENAME TO x", "CREATE INDEX b.i ON t (a)", "DELETE FROM b.coop_owner",
	} {
		_, err := a.Exec(statement)
		require.ErrorIs(t, err, coopsqlite.ErrFenced, statement)
	}
	require.Equal(t, "1", value(t, a, "SELECT a FROM b.t"), "reading is free")
	mustExec(t, a, "INSERT INTO c.t VALUES (1)", "CREATE TABLE c.u (a)", "INSERT INTO own SELECT a FROM b.t")
}

func TestManyTablesAreFencedInOnePass(t *testing.T) {
	path := newPath(t)
	plain := openPlain(t, path)
	tx, err := plain.Begin()
	require.NoError(t, err)
	const tables = 1000
	for i := range tables {
		mustExec(t, tx, fmt.Sprintf("CREATE TABLE t%d (a)", i))
	}
	require.NoError(t, tx.Commit())
	db := open(t, path)
	require.Equal(t, fmt.Sprint(3*tables+3), value(t, db, "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'"))
}

func TestReplacedStoreIsNotTheOneThatWasOwned(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	other := newPath(t)
	mustExec(t, openPlain(t, other), "CREATE TABLE t (a)", "INSERT INTO t VALUES (7)")
	require.NoError(t, db.Close())
	require.NoError(t, os.Rename(other, path))
	db = open(t, path)
	require.Equal(t, "7", value(t, db, "SELECT a FROM t"))
	requireFenced(t, path, "t")
}
