package coopsqlite_test

import (
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
