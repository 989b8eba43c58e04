package coopsqlite_test

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outsider runs a statement on a connection that is not an owner's, and
// returns the error's text, empty if there was none.
type outsider func(statement string) string

// outsiders are the ways in which others reach a store. Each start opens a
// connection, in a process of its own, that has read the schema.
var outsiders = []struct {
	name  string
	start func(t *testing.T, path string) outsider
}{
	{"a Go process with plain mattn", func(t *testing.T, path string) outsider {
		p := start(t, roleOutsider, path)
		require.Empty(t, p.opened.Err)
		require.Empty(t, p.try("SELECT count(*) FROM sqlite_schema"))
		return p.try
	}},
	{"the sqlite3 shell", startShell},
	{"Python's sqlite3 module", func(t *testing.T, path string) outsider {
		p := startPython(t, "outsider", path)
		require.Empty(t, p.opened.Err)
		require.Empty(t, p.try("SELECT count(*) FROM sqlite_schema"))
		return p.try
	}},
}

// shellEnd is what the shell says after each statement, on stderr like its
// errors, so that both come in order.
const shellEnd = "-- end of statement --"

func startShell(t *testing.T, path string) outsider {
	shell, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("there is no sqlite3 shell here")
	}
	cmd := exec.Command(shell, "-batch", path)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	try := func(statement string) string {
		_, err := io.WriteString(stdin, statement+";\n.shell echo '"+shellEnd+"' >&2\n")
		require.NoError(t, err)
		var said []string
		for lines.Scan() && lines.Text() != shellEnd {
			said = append(said, lines.Text())
		}
		require.NoError(t, lines.Err())
		return strings.Join(said, "\n")
	}
	require.Empty(t, try("SELECT count(*) FROM sqlite_schema"))
	return try
}

// writesToT are one statement for each way to change table t.
var writesToT = []string{
	"INSERT INTO t VALUES (2, 'outside')",
	"UPDATE t SET b = 'outside' WHERE a = 1",
	"DELETE FROM t WHERE a = 1",
	"DELETE FROM t",
	"REPLACE INTO t VALUES (1, 'outside')",
	"INSERT OR IGNORE INTO t VALUES (1, 'outside')",
	"INSERT OR REPLACE INTO t VALUES (1, 'outside')",
	"UPDATE OR IGNORE t SET b = 'outside'",
	"INSERT INTO t VALUES (1, 'outside') ON CONFLICT (a) DO UPDATE SET b = excluded.b",
	"INSERT INTO t VALUES (1, 'outside') ON CONFLICT DO NOTHING",
	"UPDATE t SET b = 'outside' RETURNING a",
	"INSERT INTO t SELECT a + 10, b FROM t",
	"INSERT INTO t SELECT a + 10, b FROM t WHERE 0",
	"UPDATE t SET b = 'outside' WHERE 0",
	"DELETE FROM empty",
	"DELETE FROM empty WHERE a = 1",
}

func TestOutsiderIsRefusedWheneverItOpened(t *testing.T) {
	for _, o := range outsiders {
		t.Run(o.name, func(t *testing.T) {
			path := newPath(t)
			plain := openPlain(t, path)
			mustExec(t, plain,
				"CREATE TABLE t (a INTEGER PRIMARY KEY, b)", "CREATE TABLE empty (a)", "INSERT INTO t VALUES (1, 'before')")
			early := o.start(t, path)
			require.Empty(t, early("UPDATE t SET b = 'early'"), "there is no fence yet")

			db := open(t, path)
			mustExec(t, db, "UPDATE t SET b = 'owner'")
			late := o.start(t, path)
			for _, statement := range writesToT {
				require.Contains(t, early(statement), noPermit, "opened before the fence: %s", statement)
				require.Contains(t, late(statement), noPermit, "opened after the fence: %s", statement)
			}
			require.Equal(t, []string{"1", "owner"}, values(t, db, "SELECT * FROM t"), "nothing is written")
			require.Empty(t, early("SELECT * FROM t"), "reading is free")
			require.Empty(t, late("SELECT * FROM t"), "reading is free")

			require.NoError(t, db.Close())
			require.Contains(t, late(writesToT[0]), noPermit, "the fence outlives the owner")
		})
	}
}

func TestForgedPermitAloneLacksTheContext(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	forger := start(t, roleForger, path)
	require.Equal(t, noContext, forger.try("INSERT INTO t VALUES (1)"))
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
}

// The fence is a seatbelt, not a security boundary, and says so: whoever lies
// about both functions writes.
func TestForgingBothFunctionsWrites(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	forger := start(t, roleForger2, path)
	require.Empty(t, forger.try("INSERT INTO t VALUES (1)"))
	require.Equal(t, "1", value(t, db, "SELECT count(*) FROM t"))
}

func TestSecondOwnerIsRefusedWithTheFirstOnesName(t *testing.T) {
	path := newPath(t)
	first := start(t, roleOwner, path+"?_coop_app=first")
	require.Empty(t, first.try("CREATE TABLE t (a)"))
	second := start(t, roleOwner, path)
	require.True(t, second.opened.Conflict, second.opened.Err)
	require.False(t, second.opened.Self)
	require.Contains(t, second.opened.Err, "Another Coop writer owns this store")
	require.Contains(t, second.opened.Err, path)
	require.Contains(t, second.opened.Err, "first, pid ")
	first.stop()
	require.Empty(t, start(t, roleOwner, path).opened.Err, "the first has gone")
}

func TestOwnerThatDiesLeavesTheStoreFree(t *testing.T) {
	path := newPath(t)
	first := start(t, roleOwner, path)
	require.Empty(t, first.try("CREATE TABLE t (a)"))
	require.Empty(t, first.try("INSERT INTO t VALUES (1)"))
	first.kill()
	db := open(t, path)
	require.Equal(t, "1", value(t, db, "SELECT count(*) FROM t"))
	require.EqualValues(t, 2, storeOf(t, db).Epoch())
	mustExec(t, db, "INSERT INTO t VALUES (2)")
}

func TestReadersAreUntouched(t *testing.T) {
	for _, o := range outsiders {
		t.Run(o.name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_journal_mode=WAL")
			mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
			read := o.start(t, path)
			tx, err := db.Begin()
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO t VALUES (2)")
			require.Empty(t, read("SELECT * FROM t"), "while a transaction is open")
			require.NoError(t, tx.Commit())
			require.Empty(t, read("SELECT * FROM t"))
		})
	}
}

func TestWritesThroughViewsAndCascadesMeetTheFence(t *testing.T) {
	for _, o := range outsiders {
		t.Run(o.name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_foreign_keys=on")
			mustExec(t, db,
				"CREATE TABLE parent (id INTEGER PRIMARY KEY, name)",
				"CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES parent ON DELETE CASCADE ON UPDATE SET NULL)",
				"CREATE VIEW v AS SELECT id, name FROM parent",
				"CREATE TRIGGER v_insert INSTEAD OF INSERT ON v BEGIN INSERT INTO parent VALUES (new.id, new.name); END",
				"CREATE TRIGGER v_delete INSTEAD OF DELETE ON v BEGIN DELETE FROM parent WHERE id = old.id; END",
				"CREATE TRIGGER audit AFTER UPDATE ON parent BEGIN UPDATE child SET id = id; END",
				"INSERT INTO parent VALUES (1, 'a')", "INSERT INTO child VALUES (1, 1)")
			try := o.start(t, path)
			try("PRAGMA foreign_keys = on")
			for _, statement := range []string{
				"INSERT INTO v VALUES (2, 'b')",
				"DELETE FROM v",
				"DELETE FROM parent",
				"UPDATE parent SET id = 5",
				"WITH x AS (SELECT 1) DELETE FROM parent WHERE id IN x",
				"CREATE TEMP TRIGGER sneak AFTER INSERT ON main.child BEGIN DELETE FROM parent; END; INSERT INTO child VALUES (9, 1)",
			} {
				require.Contains(t, try(statement), noPermit, statement)
			}
			require.Equal(t, []string{"1", "a", "1"}, values(t, db, "SELECT p.*, c.id FROM parent p JOIN child c ON c.parent = p.id"))
		})
	}
}

// A parent excluded from the fence still cascades into a table that is not.
func TestCascadeFromAnUnfencedParentIsRefused(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_foreign_keys=on&_coop_tables=-parent")
	mustExec(t, db,
		"CREATE TABLE parent (id INTEGER PRIMARY KEY)",
		"CREATE TABLE child (parent REFERENCES parent ON DELETE CASCADE)",
		"INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (1)")
	try := start(t, roleOutsider, path+"?_foreign_keys=on").try
	require.Empty(t, try("INSERT INTO parent VALUES (3)"), "it is excluded")
	require.Equal(t, noPermit, try("DELETE FROM parent WHERE id = 1"))
	require.Equal(t, "1", value(t, db, "SELECT count(*) FROM child"))
}
