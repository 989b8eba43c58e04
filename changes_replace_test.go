package coopsqlite_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replaced runs statements and returns what the last one left in the feed.
func replaced(t *testing.T, statements ...string) []string {
	t.Helper()
	db := openTracked(t, "", statements[:len(statements)-1]...)
	before := len(feedOf(t, db, 0))
	mustExec(t, db, statements[len(statements)-1])
	return allSaid(feedOf(t, db, 0)[before:])
}

func TestREPLACEIsRecordedByTheCollationOfTheIndex(t *testing.T) {
	require.Equal(t, []string{`delete t {"id":1} {"id":1,"a":"x"} null`, `insert t {"id":2} null {"id":2,"a":"X"}`}, replaced(t,
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "CREATE UNIQUE INDEX ta ON t(a COLLATE NOCASE)",
		"INSERT INTO t VALUES(1,'x')", "REPLACE INTO t VALUES(2,'X')"))
	require.Equal(t, []string{`insert t {"id":2} null {"id":2,"a":"X"}`}, replaced(t,
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a COLLATE NOCASE)", "CREATE UNIQUE INDEX ta ON t(a COLLATE BINARY)",
		"INSERT INTO t VALUES(1,'x')", "REPLACE INTO t VALUES(2,'X')"))
}

func TestOneRowInTheWayOfTwoKeysIsRecordedOnce(t *testing.T) {
	require.Equal(t, []string{`delete t {"id":1} {"id":1,"a":1,"b":1} null`, `insert t {"id":1} null {"id":1,"a":1,"b":1}`}, replaced(t,
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b UNIQUE)", "INSERT INTO t VALUES(1,1,1)", "REPLACE INTO t VALUES(1,1,1)"))
	require.ElementsMatch(t, []string{
		`delete t {"id":1} {"id":1,"a":1,"b":1} null`, `delete t {"id":2} {"id":2,"a":2,"b":2} null`, `delete t {"id":3} {"id":3,"a":3,"b":3} null`,
		`insert t {"id":1} null {"id":1,"a":2,"b":3}`,
	}, replaced(t, "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b UNIQUE)", "INSERT INTO t VALUES(1,1,1),(2,2,2),(3,3,3)", "REPLACE INTO t VALUES(1,2,3)"))
}

// The first row is ignored because of row 1; the second one's a is the same, but
// the partial index leaves it out, so row 1 stays.
func TestARowThatAPartialIndexLeavesOutReplacesNothing(t *testing.T) {
	require.Equal(t, []string{`insert t {"id":3} null {"id":3,"a":5,"b":0}`}, replaced(t,
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "CREATE UNIQUE INDEX ta ON t(a) WHERE b > 0",
		"INSERT INTO t VALUES(1,5,1)", "INSERT OR IGNORE INTO t VALUES(2,5,2),(3,5,0)"))
}

func TestARowThatIsMovedOutOfTheWayIsNotReplaced(t *testing.T) {
	require.Equal(t, []string{`update t {"id":1} {"id":1,"a":5} {"id":1,"a":6}`, `insert t {"id":2} null {"id":2,"a":5}`}, replaced(t,
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE)", "INSERT INTO t VALUES(1,5)",
		"CREATE TRIGGER aside BEFORE INSERT ON t BEGIN UPDATE t SET a = a + 1 WHERE a = NEW.a; END",
		"REPLACE INTO t VALUES(2,5)"))
}

func TestARowThatIsChangedWhereItStandsIsReplacedAsItIsThen(t *testing.T) {
	require.Equal(t, []string{
		`update t {"id":1} {"id":1,"a":5,"n":0} {"id":1,"a":5,"n":1}`,
		`delete t {"id":1} {"id":1,"a":5,"n":1} null`,
		`insert t {"id":2} null {"id":2,"a":5,"n":7}`,
	}, replaced(t, "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, n)", "INSERT INTO t VALUES(1,5,0)",
		"CREATE TRIGGER count BEFORE INSERT ON t BEGIN UPDATE t SET n = n + 1 WHERE a = NEW.a; END",
		"REPLACE INTO t VALUES(2,5,7)"))
}

func TestARowThatATriggerDeletesFirstIsNotReplacedToo(t *testing.T) {
	require.Equal(t, []string{`delete t {"id":1} {"id":1,"a":5} null`, `insert t {"id":2} null {"id":2,"a":5}`}, replaced(t,
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE)", "INSERT INTO t VALUES(1,5)",
		"CREATE TRIGGER clear BEFORE INSERT ON t BEGIN DELETE FROM t WHERE a = NEW.a; END",
		"REPLACE INTO t VALUES(2,5)"))
}

func TestAChangedRowidIsOneDeletionAndOneInsertWhateverElseChanges(t *testing.T) {
	require.Equal(t, []string{`delete t {"rowid":1} {"a":"x"} null`, `insert t {"rowid":5} null {"a":"y"}`}, replaced(t,
		"CREATE TABLE t(a)", "INSERT INTO t VALUES('x')", "UPDATE t SET rowid=5, a='y'"))
	require.Equal(t, []string{`delete t {"rowid":2} {"a":"z"} null`, `delete t {"rowid":1} {"a":"x"} null`, `insert t {"rowid":2} null {"a":"x"}`}, replaced(t,
		"CREATE TABLE t(a)", "INSERT INTO t VALUES('x'),('z')", "UPDATE OR REPLACE t SET rowid=2 WHERE rowid=1"))
}

// What one statement found in its way says nothing about the next.
func TestARowInTheWayOfOneStatementIsForgottenByTheNext(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE)")
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO t VALUES(1,5)", "INSERT OR IGNORE INTO t VALUES(2,5)")
	require.NoError(t, tx.Rollback())
	db.SetMaxOpenConns(1)
	require.Equal(t, []string{"2"}, values(t, db, "INSERT INTO t VALUES(2,5) RETURNING id"))
	require.Equal(t, []string{`insert t {"id":2} null {"id":2,"a":5}`}, allSaid(feedOf(t, db, 0)))
}

// Where nothing can replace a row, the driver does not look for rows that would be.
// Each of these is a way in which something can, after a statement was prepared when
// nothing could.
func TestRowsReplacedByWhatCameLaterAreRecorded(t *testing.T) {
	const insert = "INSERT INTO t (id, u) VALUES (?, ?)"
	for name, come := range map[string]func(t *testing.T, path string, db *sql.DB, tx *sql.Tx){
		"a trigger of an outsider's": func(t *testing.T, path string, _ *sql.DB, _ *sql.Tx) {
			mustExec(t, openPlain(t, path), "CREATE TRIGGER later AFTER INSERT ON t WHEN NEW.u != 'b' BEGIN INSERT OR REPLACE INTO t (id, u) VALUES (NEW.id + 100, 'b'); END")
		},
		"a trigger of the owner's": func(t *testing.T, _ string, db *sql.DB, _ *sql.Tx) {
			mustExec(t, db, "CREATE TRIGGER later AFTER INSERT ON t WHEN NEW.u != 'b' BEGIN REPLACE INTO t (id, u) VALUES (NEW.id + 100, 'b'); END")
		},
		"a trigger in the same transaction": func(t *testing.T, _ string, _ *sql.DB, tx *sql.Tx) {
			mustExec(t, tx, "CREATE TRIGGER later AFTER INSERT ON t WHEN NEW.u != 'b' BEGIN REPLACE INTO t (id, u) VALUES (NEW.id + 100, 'b'); END")
		},
		"the statement itself": func(t *testing.T, _ string, _ *sql.DB, tx *sql.Tx) {
			mustExec(t, tx, "INSERT oR rEPLACE INTO t (id, u) VALUES (9, 'b')")
		},
		"a temporary trigger": func(t *testing.T, _ string, _ *sql.DB, tx *sql.Tx) {
			mustExec(t, tx, "CREATE TEMP TRIGGER later AFTER INSERT ON t WHEN NEW.u != 'b' BEGIN UPDATE OR REPLACE t SET u = 'b' WHERE id = NEW.id; END")
		},
		"the table made anew, with a constraint": func(t *testing.T, _ string, db *sql.DB, _ *sql.Tx) {
			mustExec(t, db, "CREATE TABLE n (id INTEGER PRIMARY KEY, u TEXT UNIQUE ON CONFLICT REPLACE)", "INSERT INTO n SELECT * FROM t",
				"DROP TABLE t", "ALTER TABLE n RENAME TO t")
		},
		"the table made anew in the same transaction": func(t *testing.T, _ string, _ *sql.DB, tx *sql.Tx) {
			mustExec(t, tx, "CREATE TABLE n (id INTEGER PRIMARY KEY, u TEXT UNIQUE ON CONFLICT REPLACE)", "INSERT INTO n SELECT * FROM t",
				"DROP TABLE t", "ALTER TABLE n RENAME TO t")
		},
	} {
		for _, again := range []string{insert, insert + " -- again"} { // what was prepared before, and what is only now
			t.Run(name+": "+again, func(t *testing.T) {
				path := newPath(t)
				db := open(t, path+"?_journal_mode=WAL&_coop_changes=*")
				db.SetMaxOpenConns(1)
				mustExec(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT UNIQUE)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
				inSame := strings.Contains(name, "same") || strings.Contains(name, "temporary") || strings.Contains(name, "itself")
				within := func(fn func(tx *sql.Tx)) {
					tx, err := db.Begin()
					require.NoError(t, err)
					fn(tx)
					require.NoError(t, tx.Commit())
				}
				within(func(tx *sql.Tx) { _, err := tx.Exec(insert, 3, "c"); require.NoError(t, err) })
				if !inSame {
					come(t, path, db, nil)
				}
				within(func(tx *sql.Tx) {
					if inSame {
						_, err := tx.Exec(insert, 4, "d")
						require.NoError(t, err)
						come(t, path, db, tx)
					}
					u := "e"
					if strings.Contains(name, "anew") {
						u = "b" // as in the second row
					}
					_, err := tx.Exec(again, 5, u)
					require.NoError(t, err)
				})
				require.Equal(t, "1", value(t, db, `SELECT count(*) FROM coop_changes WHERE tbl = 't' AND op = 'delete' AND key = '{"id":2}' AND seq > 3`),
					values(t, db, "SELECT op || ' ' || coalesce(new, old) FROM coop_changes ORDER BY seq"))
			})
		}
	}
}
