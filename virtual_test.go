package coopsqlite_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// virtualCase is a kind of virtual table and how a fence on it shows.
type virtualCase struct {
	module string
	// fenced are the suffixes of the shadow tables that carry it.
	fenced []string
	// refusal is what an outsider is told; one of several.
	refusal string
	byOwner []string // what the owner must be able to do with v
	outside []string // what an outsider must not
}

var (
	ftsOwner = []string{
		"INSERT INTO v(rowid, a) VALUES (1, 'one word'), (2, 'two words')", "UPDATE v SET a = 'another word' WHERE rowid = 1",
		"DELETE FROM v WHERE rowid = 2", "INSERT INTO v(v) VALUES ('optimize')", "INSERT INTO v(v) VALUES ('rebuild')", "INSERT INTO v(v) VALUES ('integrity-check')",
	}
	ftsOutside = []string{"INSERT INTO v(rowid, a) VALUES (7, 'x')", "UPDATE v SET a = 'x' WHERE rowid = 1", "DELETE FROM v WHERE rowid = 1", "DELETE FROM v"}
	rtreeOwner = []string{
		"INSERT INTO v VALUES (1, 1, 2), (2, 3, 4)", "UPDATE v SET x1 = 9 WHERE id = 1", "DELETE FROM v WHERE id = 2", "REPLACE INTO v VALUES (1, 5, 6)",
		"INSERT INTO v WITH RECURSIVE n(i) AS (VALUES (10) UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i, i, i + 1 FROM n",
	}
	rtreeOutside = []string{"INSERT INTO v VALUES (7, 1, 2)", "DELETE FROM v WHERE id = 1", "DELETE FROM v", "UPDATE v SET id = 70 WHERE id = 1", "REPLACE INTO v VALUES (1, 7, 8)"}
)

var virtualCases = []virtualCase{
	{"rtree(id, x0, x1)", []string{"rowid"}, noPermit, rtreeOwner, rtreeOutside},
	{"rtree_i32(id, x0, x1)", []string{"rowid"}, noPermit, rtreeOwner, rtreeOutside},
	{"fts4(a)", []string{"content", "docsize"}, "SQL logic error", ftsOwner, ftsOutside},
	{"fts4(a, matchinfo='fts3')", []string{"content"}, "SQL logic error", ftsOwner, ftsOutside},
	{"fts4(a, content='')", []string{"docsize"}, "SQL logic error", []string{"INSERT INTO v(docid, a) VALUES (1, 'one word')", "INSERT INTO v(v) VALUES ('optimize')"},
		[]string{"INSERT INTO v(docid, a) VALUES (7, 'x')"}},
	{"fts3(a)", []string{"content"}, "SQL logic error", ftsOwner, ftsOutside},
}

// testVirtual runs with the fences as they are for others, and as they are for an
// owner without triggers of its own.
func testVirtual(t *testing.T, c virtualCase) {
	t.Run("with triggers", func(t *testing.T) { testVirtualWith(t, c, ownTrigger) })
	t.Run("plain", func(t *testing.T) { testVirtualWith(t, c, "SELECT 1") })
}

func testVirtualWith(t *testing.T, c virtualCase, first string) {
	byDefault := strings.HasPrefix(c.module, "rtree")
	path := newPath(t)
	db := open(t, path+"?_coop_virtual=on")
	db.SetMaxOpenConns(1)
	mustExec(t, db, "CREATE TABLE plain (a)", "CREATE VIRTUAL TABLE v USING "+c.module, first)

	work := func(statements ...string) {
		for _, s := range statements {
			mustExec(t, db, s)
		}
	}
	work(c.byOwner...)
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "DELETE FROM plain", "SAVEPOINT s")
	for i, s := range c.byOwner {
		if strings.Contains(s, "VALUES (1") {
			s = strings.NewReplacer("VALUES (1", "VALUES (1001", "(2, ", "(1002, ").Replace(s)
		}
		mustExec(t, tx, s, fmt.Sprintf("INSERT INTO plain VALUES (%d)", i), fmt.Sprintf("SAVEPOINT s%d", i))
	}
	mustExec(t, tx, "ROLLBACK TO s", "RELEASE s")
	require.NoError(t, tx.Commit())

	want := []string{}
	for _, suffix := range c.fenced {
		want = append(want, "v_"+suffix)
	}
	requireVirtual(t, db, path, want)
	refused := func(statement string) {
		outside := openPlain(t, path)
		defer outside.Close()
		_, err := outside.Exec(statement)
		require.Error(t, err, statement)
		require.Contains(t, c.refusal, err.Error(), statement)
	}
	count := value(t, db, "SELECT count(*) FROM "+want[0])
	for _, s := range c.outside {
		refused(s)
	}
	require.Equal(t, count, value(t, db, "SELECT count(*) FROM "+want[0]))
	require.Equal(t, "ok", value(t, db, "PRAGMA integrity_check"))

	mustExec(t, db, "ALTER TABLE v RENAME TO w")
	for i := range want {
		want[i] = "w" + strings.TrimPrefix(want[i], "v")
	}
	requireVirtual(t, db, path, want)
	refused(strings.Replace(c.outside[0], "INTO v", "INTO w", 1))
	mustExec(t, db, "ALTER TABLE w RENAME TO v")

	// Bulk takes the fences of the shadow tables away, too.
	require.NoError(t, storeOf(t, db).Bulk(t.Context(), []string{"v"}, func(tx coopsqlite.DBTX) error {
		var n int
		err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name LIKE 'v%'").Scan(&n)
		require.NoError(t, err)
		if first == ownTrigger {
			require.Zero(t, n)
		} else {
			require.Equal(t, 3*len(want), n, "they are not in the way")
		}
		return nil
	}))
	refused(c.outside[0])
	require.NoError(t, db.Close())

	// An owner that does not ask for it leaves FTS alone.
	db = open(t, path)
	_, err = openPlain(t, path).Exec(c.outside[0])
	if byDefault {
		require.ErrorContains(t, err, c.refusal)
	} else {
		require.NoError(t, err)
		requireVirtual(t, db, path, nil)
	}
	mustExec(t, db, "DROP TABLE v", "INSERT INTO plain VALUES (1)")
	requireCovered(t, path)
}

// requireVirtual checks that these shadow tables of the one virtual table, and
// no others, carry fences, and that Verify knows it.
func requireVirtual(t *testing.T, db *sql.DB, path string, shadows []string) {
	t.Helper()
	coverage, err := storeOf(t, db).Verify(t.Context())
	require.NoError(t, err)
	require.True(t, coverage.Complete(), "%+v", coverage)
	fenced := []string{}
	for _, table := range coverage.Tables {
		switch {
		case table.Name == "coop_owner" || table.Name == "plain":
		case table.State == coopsqlite.Fenced:
			require.True(t, table.Tracked)
			fenced = append(fenced, table.Name)
		default:
			require.Equal(t, coopsqlite.NotFenced, table.State, table.Name)
			require.NotEmpty(t, table.Why, table.Name)
		}
		if table.Name == "v" || table.Name == "w" {
			if len(shadows) > 0 {
				require.Contains(t, table.Why, "guarded through "+shadows[0])
			} else {
				require.NotContains(t, table.Why, "guarded")
			}
		}
	}
	require.ElementsMatch(t, shadows, fenced)
}

func TestVirtualTablesAreFencedThroughTheirShadowTables(t *testing.T) {
	for _, c := range virtualCases {
		t.Run(c.module, func(t *testing.T) { testVirtual(t, c) })
	}
}

func TestVirtualTablesThatCannotBeFencedAreListedWithTheReason(t *testing.T) {
	path := newPath(t)
	plain := openPlain(t, path)
	mustExec(t, plain, "CREATE VIRTUAL TABLE bare USING fts4(a, content='', matchinfo='fts3')", "CREATE VIRTUAL TABLE quiet USING rtree(id, x, y)",
		"CREATE TABLE odd_data (a)", "CREATE TABLE bare_data (a)", "CREATE TABLE oddly (a)")
	mustExec(t, plain, "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('table', 'odd', 'odd', 0, 'CREATE VIRTUAL TABLE odd USING nobodyknows(a)')")
	db := open(t, path+"?_coop_virtual=on&_coop_tables=-quiet")
	coverage, err := storeOf(t, db).Verify(t.Context())
	require.NoError(t, err)
	require.True(t, coverage.Complete())
	why, fenced := map[string]string{}, []string{}
	for _, table := range coverage.Tables {
		why[table.Name] = table.Why
		if table.State == coopsqlite.Fenced {
			fenced = append(fenced, table.Name)
		}
	}
	require.ElementsMatch(t, []string{"coop_owner", "bare_data", "oddly"}, fenced, "a name that only looks like a shadow table's is fenced")
	require.Equal(t, "a virtual table (nobodyknows): SQLite allows no trigger on it", why["odd"])
	require.Equal(t, "a shadow table of odd (nobodyknows)", why["odd_data"], "what an unknown module does with it, nobody knows")
	require.Equal(t, "a virtual table (fts4) without a shadow table that can carry a fence", why["bare"])
	require.Equal(t, "a shadow table of bare (fts4)", why["bare_segdir"])
	require.Equal(t, "excluded by _coop_tables", why["quiet"])
	require.Equal(t, "a shadow table of quiet (rtree)", why["quiet_rowid"])
}

// However a module's name is written, it is found.
func TestVirtualTablesAreRecognizedHoweverTheyAreWritten(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	for i, s := range []string{
		"CREATE VIRTUAL TABLE r0 USING rtree(id, x, y)", `create virtual table "r1"using"rtree"(id, x, y)`, "CREATE VIRTUAL TABLE [r2] USING [RTree] (id, x, y)",
		"CREATE VIRTUAL TABLE IF NOT EXISTS main.`r3` USING `rtree`(id, x, y)", "CREATE VIRTUAL TABLE 'r4' /* USING fts4 */ USING -- so\n rtree(id, x, y)",
		"CREATE\nVIRTUAL\tTABLE r5\nUSING\n'rtree'(id, x, y)", "CREATE VIRTUAL TABLE/**/r6/**/USING/**/rtree(id, x, y)",
	} {
		mustExec(t, db, s)
		_, err := openPlain(t, path).Exec(fmt.Sprintf("INSERT INTO r%d VALUES (1, 2, 3)", i))
		require.EqualError(t, err, noPermit, s)
	}
}
