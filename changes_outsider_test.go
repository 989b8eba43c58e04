package coopsqlite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// SQLite may compile the tracking triggers before the fence, whose words the
// outsider must still get, whatever DDL has made the triggers anew.
func TestOutsidersOfATrackedStoreAreRefusedInTheFencesWords(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_changes=*")
	mustExec(t, db,
		"CREATE TABLE plain (a, b)",
		"CREATE TABLE keyed (id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INT, UNIQUE (name, n))",
		"CREATE TABLE worded (name TEXT PRIMARY KEY, n INT UNIQUE) WITHOUT ROWID",
		"INSERT INTO plain VALUES (1, 1)", "INSERT INTO keyed VALUES (1, 'a', 1)", "INSERT INTO worded VALUES ('a', 1)")
	for _, change := range []string{
		"SELECT 1",
		"ALTER TABLE plain ADD COLUMN c; ALTER TABLE keyed ADD COLUMN c; ALTER TABLE worded ADD COLUMN c",
		"ALTER TABLE plain RENAME TO p2; ALTER TABLE p2 RENAME TO plain; CREATE UNIQUE INDEX plain_a ON plain (a)",
	} {
		mustExec(t, db, change)
		for role, want := range map[string]string{roleOutsider: noPermit, roleForger: noContext} {
			p := start(t, role, path)
			for _, table := range []string{"plain", "keyed", "worded"} {
				for _, statement := range []string{
					"INSERT INTO " + table + " DEFAULT VALUES",
					"REPLACE INTO " + table + " DEFAULT VALUES",
					"UPDATE " + table + " SET c = 1",
					"DELETE FROM " + table,
				} {
					if change == "SELECT 1" && statement[0] == 'U' {
						continue // there is no c yet
					}
					require.Equal(t, want, p.try(statement), "%s: %s after %s", role, statement, change)
				}
			}
			p.stop()
		}
	}
}

// writesToTracked are one statement for each trigger that may be met first.
var writesToTracked = []string{
	"INSERT INTO t VALUES (2, 'outside')",
	"INSERT INTO t VALUES (1, 'outside') ON CONFLICT DO NOTHING",
	"REPLACE INTO t VALUES (1, 'outside')",
	"UPDATE t SET b = 'outside'",
	"UPDATE t SET a = 9",
	"DELETE FROM t",
	"INSERT INTO u VALUES ('outside')",
	"UPDATE u SET b = 'outside'",
	"DELETE FROM u",
	"INSERT INTO coop_changes(tbl) VALUES ('t')",
	"UPDATE coop_changes SET actor = 'outside'",
	"DELETE FROM coop_changes",
}

func TestATrackedTableRefusesOutsidersInTheUsualWords(t *testing.T) {
	for _, who := range outsiders {
		t.Run(who.name, func(t *testing.T) {
			db := openTracked(t, "", "CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "CREATE TABLE u(b)", "INSERT INTO t VALUES(1,'x')", "INSERT INTO u VALUES('x')")
			try := who.start(t, storeOf(t, db).Path())
			for _, statement := range writesToTracked {
				require.Contains(t, try(statement), noPermit, statement)
			}
			require.Len(t, feedOf(t, db, 0), 2)
			require.Equal(t, []string{"1", "x"}, values(t, db, "SELECT * FROM t"))
		})
	}
}

func TestAForgedPermitWithoutTheContextWritesNothing(t *testing.T) {
	for name, parameters := range map[string]string{"fence and feed": "", "feed alone": "&_coop_epoch=off"} {
		t.Run(name, func(t *testing.T) {
			db := openTracked(t, parameters, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "CREATE TABLE u(b)", "INSERT INTO t VALUES(1,'x')", "INSERT INTO u VALUES('x')")
			forger := startPython(t, "forger", storeOf(t, db).Path())
			require.Empty(t, forger.opened.Err)
			for _, statement := range writesToTracked {
				if parameters != "" && strings.Contains(statement, "coop_changes") {
					continue // coop_changes has the first arm alone then
				}
				require.Equal(t, noContext, forger.try(statement), statement)
			}
			require.Len(t, feedOf(t, db, 0), 2)
			require.Equal(t, []string{"1", "x"}, values(t, db, "SELECT * FROM t"))
		})
	}
}
