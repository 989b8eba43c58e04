//go:build sqlite_fts5 || fts5

package coopsqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What an outsider is told by FTS5, which hides the reason. Some commands hide
// it in another way.
const (
	malformed = "database disk image is malformed"
	hidden    = malformed + " or SQL logic error"
)

func TestVirtualTablesOfFTS5AreFencedThroughTheirShadowTables(t *testing.T) {
	upkeep := []string{
		"INSERT INTO v(v) VALUES ('optimize')", "INSERT INTO v(v, rank) VALUES ('automerge', 4)", "INSERT INTO v(v, rank) VALUES ('merge', 16)",
		"INSERT INTO v(v, rank) VALUES ('usermerge', 2)", "INSERT INTO v(v, rank) VALUES ('crisismerge', 8)", "INSERT INTO v(v, rank) VALUES ('secure-delete', 1)",
		"INSERT INTO v(v, rank) VALUES ('rank', 'bm25(10.0)')", "INSERT INTO v(v) VALUES ('integrity-check')",
	}
	contentless := append([]string{"INSERT INTO v(rowid, a) VALUES (1, 'one word')", "INSERT INTO v(v) VALUES ('delete-all')", "INSERT INTO v(rowid, a) VALUES (1, 'one word')"}, upkeep...)
	external := append([]string{"CREATE TABLE IF NOT EXISTS docs (id INTEGER PRIMARY KEY, a)",
		"CREATE TRIGGER IF NOT EXISTS docs_ai AFTER INSERT ON docs BEGIN INSERT INTO v(rowid, a) VALUES (new.id, new.a); END",
		"CREATE TRIGGER IF NOT EXISTS docs_ad AFTER DELETE ON docs BEGIN INSERT INTO v(v, rowid, a) VALUES ('delete', old.id, old.a); END",
		"INSERT INTO docs VALUES (1, 'one word')", "DELETE FROM docs WHERE id = 1", "INSERT INTO v(v) VALUES ('rebuild')"}, upkeep...)
	for _, c := range []virtualCase{
		{"fts5(a)", []string{"content", "docsize"}, malformed, append(ftsOwner, upkeep...), ftsOutside},
		{"fts5(a, columnsize=0)", []string{"content"}, malformed, append(ftsOwner, upkeep...), ftsOutside},
		{"fts5(a, detail=none)", []string{"content", "docsize"}, malformed, append(ftsOwner, upkeep...), ftsOutside},
		{"fts5(a, content='')", []string{"docsize"}, hidden, contentless, []string{"INSERT INTO v(rowid, a) VALUES (7, 'x')", "INSERT INTO v(v) VALUES ('delete-all')",
			"INSERT INTO v(v, rowid, a) VALUES ('delete', 1, 'one word')"}},
		{"fts5(a, content='', contentless_delete=1)", []string{"docsize"}, malformed, contentless,
			[]string{"INSERT INTO v(rowid, a) VALUES (7, 'x')", "DELETE FROM v WHERE rowid = 1"}},
	} {
		t.Run(c.module, func(t *testing.T) { testVirtual(t, c) })
	}
	t.Run("external content", func(t *testing.T) {
		path := newPath(t)
		db := open(t, path+"?_coop_virtual=on")
		mustExec(t, db, "CREATE VIRTUAL TABLE v USING fts5(a, content='docs', content_rowid='id')")
		mustExec(t, db, external...)
		mustExec(t, db, external...)
		_, err := openPlain(t, path).Exec("INSERT INTO v(rowid, a) VALUES (7, 'x')")
		require.EqualError(t, err, malformed)
		_, err = openPlain(t, path).Exec("INSERT INTO docs VALUES (7, 'x')")
		require.EqualError(t, err, noPermit)
	})
}

// Nothing that it writes with the rows can carry a fence.
func TestVirtualTableOfFTS5WithoutSizesAndContentCannotBeFenced(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_virtual=on")
	mustExec(t, db, "CREATE VIRTUAL TABLE v USING fts5(a, content='', columnsize=0)", "INSERT INTO v(rowid, a) VALUES (1, 'one')")
	requireVirtual(t, db, path, nil)
	mustExec(t, openPlain(t, path), "INSERT INTO v(rowid, a) VALUES (2, 'two')")
}

// The statement that used to end the process when _config had a fence.
func TestVirtualTableOfFTS5SurvivesSecureDelete(t *testing.T) {
	db := open(t, newPath(t)+"?_coop_virtual=on")
	mustExec(t, db, "CREATE VIRTUAL TABLE v USING fts5(a)", "INSERT INTO v(rowid, a) VALUES (1, 'one')", "INSERT INTO v(v, rank) VALUES ('secure-delete', 1)", "DELETE FROM v")
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM v"))
}
