package coopsqlite_test

import (
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
