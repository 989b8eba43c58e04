package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// readTyped reads all rows as they come, without conversion, and their columns.
func readTyped(t *testing.T, db *sql.DB, query string) (found [][]any, columns []string, failed error) {
	t.Helper()
	rows, err := db.Query(query)
	require.NoError(t, err, query)
	defer rows.Close()
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	for _, c := range types {
		nullable, ok := c.Nullable()
		columns = append(columns, fmt.Sprint(c.Name(), c.DatabaseTypeName(), c.ScanType(), nullable, ok))
	}
	for rows.Next() {
		row := make([]any, len(types))
		dest := make([]any, len(types))
		for i := range row {
			dest[i] = &row[i]
		}
		require.NoError(t, rows.Scan(dest...))
		found = append(found, row)
	}
	return found, columns, rows.Err()
}

// fillWithEverything makes a table that has every kind of value in columns of
// every declared type, short and long.
func fillWithEverything(t *testing.T, db *sql.DB, rows int) {
	t.Helper()
	declared := []string{"", "INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC", "DATETIME", "timestamp", "Date", "BOOLEAN", "VARCHAR(9)", "DOUBLE PRECISION", "CLOB", "DECIMAL(3)", "BIGINT", "odd"}
	columns, marks := make([]string, len(declared)), make([]string, len(declared))
	for i, d := range declared {
		columns[i], marks[i] = fmt.Sprintf("c%d %s", i, d), "?"
	}
	mustExec(t, db, "CREATE TABLE everything (id INTEGER PRIMARY KEY, "+strings.Join(columns, ", ")+")")
	random := rand.New(rand.NewPCG(1, 2))
	tx, err := db.Begin()
	require.NoError(t, err)
	insert, err := tx.Prepare("INSERT INTO everything VALUES (NULL, " + strings.Join(marks, ", ") + ")")
	require.NoError(t, err)
	for range rows {
		values := make([]any, len(declared))
		for i := range values {
			values[i] = []any{
				nil, int64(random.Uint64()), 1700000000, 1700000000123, 0, 1, 2.5, -1e300, "", "ä€𝄞", "2024-05-06 07:08:09", "2024-05-06T07:08:09.5Z",
				"2024-05-06 07:08:09+02:00", "no time", []byte{}, []byte{0, 1, 255}, "with\x00zero", strings.Repeat("x", random.IntN(40)),
			}[random.IntN(18)]
		}
		if random.IntN(40) == 0 {
			values[random.IntN(len(values))] = strings.Repeat("long", random.IntN(8000))
		}
		_, err := insert.Exec(values...)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

func TestRowsReadAheadAreThoseThatMattnsDriverReads(t *testing.T) {
	for _, parameters := range []string{"", "&_loc=America/New_York", "&encoding=utf16"} {
		path := newPath(t)
		if parameters == "&encoding=utf16" {
			mustExec(t, openPlain(t, path), "PRAGMA encoding = 'UTF-16'", "CREATE TABLE first (a)")
		}
		db := open(t, path+"?_journal_mode=WAL"+parameters)
		fillWithEverything(t, db, 1500)
		plain := openPlain(t, path+"?_journal_mode=WAL"+parameters)
		for _, query := range []string{
			"SELECT * FROM everything", "SELECT id FROM everything", "SELECT c7 FROM everything ORDER BY c2", "SELECT c3, c6 FROM everything WHERE id % 7 = 0",
			"SELECT count(*), max(c6) FROM everything", "SELECT * FROM everything WHERE id < 0", "SELECT *, * , * FROM everything LIMIT 70",
		} {
			want, wantColumns, _ := readTyped(t, plain, query)
			got, gotColumns, err := readTyped(t, db, query)
			require.NoError(t, err, query)
			require.Equal(t, wantColumns, gotColumns, query)
			require.Equal(t, len(want), len(got), query)
			for i := range want {
				require.Equal(t, want[i], got[i], "%s: row %d", query, i)
			}
		}
	}
}

func TestErrorBehindRowsReadAheadComesAfterThem(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	mustExec(t, db, "CREATE TABLE t (x)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200) INSERT INTO t SELECT CASE i WHEN 150 THEN -9223372036854775807 - 1 ELSE i END FROM n")
	found, _, err := readTyped(t, db, "SELECT abs(x) FROM t")
	require.Len(t, found, 149)
	require.ErrorContains(t, err, "integer overflow")
	require.Equal(t, "200", value(t, db, "SELECT count(*) FROM t"), "the connection is as good as before")
}

// deleteAhead deletes, at each row, the one that would come next.
func deleteAhead(t *testing.T, q interface {
	coopsqlite.DBTX
}) (seen []int) {
	t.Helper()
	ctx := context.Background()
	rows, err := q.QueryContext(ctx, "SELECT id FROM t ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		seen = append(seen, id)
		_, err := q.ExecContext(ctx, "DELETE FROM t WHERE id = ?", id+1)
		require.NoError(t, err)
	}
	require.NoError(t, rows.Err())
	return seen
}

func TestRowsShowWhatTheirTransactionDoesMeanwhile(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	const fill = "INSERT INTO t SELECT value FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12]')"
	odd := []int{1, 3, 5, 7, 9, 11}
	mustExec(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)", fill)
	tx, err := db.Begin()
	require.NoError(t, err)
	require.Equal(t, odd, deleteAhead(t, tx))
	require.NoError(t, tx.Rollback())

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN")
	require.NoError(t, err)
	require.Equal(t, odd, deleteAhead(t, conn))
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.Equal(t, odd, deleteAhead(t, conn), "in autocommit, on a connection that has been used before")
}

func TestFunctionsOfTheUserRunRowByRow(t *testing.T) {
	calls := 0
	connector, err := coopsqlite.NewConnector(newPath(t)+"?_journal_mode=WAL", &coopsqlite.Options{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		return c.RegisterFunc("called", func(n int64) int64 { calls++; return n }, false)
	}})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	rows, err := db.Query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1000) SELECT called(i) FROM n")
	require.NoError(t, err)
	defer rows.Close()
	for i := 1; i <= 100; i++ {
		require.True(t, rows.Next())
		require.Equal(t, i, calls)
	}
}

func TestRowsOfOneStatementCanBeOpenSeveralTimes(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1), (2), (3)")
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	for _, query := range []string{"SELECT a FROM t ORDER BY a", "UPDATE t SET a = a + 10 RETURNING a", "PRAGMA table_list"} {
		stmt, err := tx.Prepare(query)
		require.NoError(t, err)
		outer, err := stmt.Query()
		require.NoError(t, err, query)
		var n int
		for outer.Next() {
			if strings.HasPrefix(query, "SELECT") {
				_, err := stmt.Exec()
				require.NoError(t, err)
			}
			inner, err := stmt.Query()
			require.NoError(t, err, query)
			for inner.Next() {
				n++
			}
			require.NoError(t, inner.Err())
			require.NoError(t, inner.Close())
		}
		require.NoError(t, outer.Err())
		require.NoError(t, outer.Close())
		require.Positive(t, n)
		if query != "PRAGMA table_list" {
			require.Equal(t, 9, n, query)
		}
	}
}

func TestColumnsOfACachedStatementFollowTheSchema(t *testing.T) {
	path := newPath(t) + "?_journal_mode=WAL"
	db := open(t, path)
	db.SetMaxOpenConns(1)
	mustExec(t, db, "CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)")
	stmt, err := db.Prepare("SELECT * FROM t")
	require.NoError(t, err)
	columns := func() []string {
		rows, err := stmt.Query()
		require.NoError(t, err)
		defer rows.Close()
		names, err := rows.Columns()
		require.NoError(t, err)
		require.True(t, rows.Next())
		return names
	}
	require.Equal(t, []string{"a"}, columns())
	mustExec(t, openPlain(t, path), "ALTER TABLE t ADD COLUMN b DATETIME DEFAULT '2024-05-06 07:08:09'")
	require.Equal(t, []string{"a", "b"}, columns())
	found, _, err := readTyped(t, db, "SELECT * FROM t")
	require.NoError(t, err)
	require.Equal(t, "time.Time", reflect.TypeOf(found[0][1]).String())
	mustExec(t, db, "ALTER TABLE t RENAME COLUMN b TO c")
	require.Equal(t, []string{"a", "c"}, columns())
}

func TestSavepointOverSomePagesNeedsNoTemporaryFile(t *testing.T) {
	p := start(t, roleSession, newPath(t)+"?_journal_mode=WAL")
	files := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	if _, err := os.Stat(files); err != nil {
		t.Skip("what files another process has open is seen under /proc")
	}
	for _, statement := range []string{
		"CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 400) INSERT INTO t SELECT i, randomblob(3000) FROM n",
		"BEGIN; SAVEPOINT s",
		"UPDATE t SET b = randomblob(3000) WHERE id <= 25",
	} {
		require.Empty(t, p.try(statement))
	}
	temporary := func() (found []string) {
		entries, err := os.ReadDir(files)
		require.NoError(t, err)
		for _, e := range entries {
			if name, _ := os.Readlink(filepath.Join(files, e.Name())); strings.HasSuffix(name, "(deleted)") {
				found = append(found, name)
			}
		}
		return found
	}
	require.Empty(t, temporary())
	require.Empty(t, p.try("UPDATE t SET b = randomblob(3000)"))
	require.NotEmpty(t, temporary(), "so this test sees them")
}

func TestArgumentsOfOpenRowsAreTheirs(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	for _, size := range []int{10, 2 << 10, 100 << 10} {
		arg := []byte(strings.Repeat("a", size))
		rows, err := tx.Query("SELECT ?1 FROM json_each('[1,2,3]')", arg)
		require.NoError(t, err)
		var n int
		for rows.Next() {
			clear(arg) // it belongs to the caller again
			var got []byte
			require.NoError(t, rows.Scan(&got))
			require.Equal(t, strings.Repeat("a", size), string(got))
			n++
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 3, n)
	}
}

func TestPreparedPragmaAnswersForNow(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	pragma, err := conn.PrepareContext(t.Context(), "PRAGMA cache_size")
	require.NoError(t, err)
	for want := 100; want < 103; want++ {
		_, err := conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA cache_size = %d", want))
		require.NoError(t, err)
		var got int
		require.NoError(t, pragma.QueryRow().Scan(&got))
		require.Equal(t, want, got)
	}
}

func TestRowsThatHaveEndedLeaveOthersOfTheirStatementAlone(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	mustExec(t, db, "CREATE TABLE t (k, a)", "INSERT INTO t SELECT 1 + value / 6, value FROM json_each('[0,1,2,3,4,5,6,7,8,9]')")
	const query = "SELECT a FROM t WHERE k = ? ORDER BY a"
	count := func(rows *sql.Rows) (n int) {
		for rows.Next() {
			n++
		}
		require.NoError(t, rows.Err())
		return n
	}
	for _, readOnly := range []bool{false, true} { // which reads ahead
		for first := range 4 { // rows that were read of the first by then
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: readOnly})
			require.NoError(t, err)
			none, err := tx.Query(query, 3)
			require.NoError(t, err)
			one, err := tx.Query(query, 1)
			require.NoError(t, err)
			for range first + 2 {
				require.True(t, one.Next())
			}
			two, err := tx.Query(query, 2)
			require.NoError(t, err)
			require.True(t, two.Next())
			require.NoError(t, none.Close())
			require.Equal(t, 6-first-2, count(one))
			require.Equal(t, 3, count(two))
			require.NoError(t, tx.Rollback())
		}
	}
}

func TestRowsReadAheadKeepTheirColumns(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	mustExec(t, db, "CREATE TABLE t (a, b, c DATETIME)", "INSERT INTO t SELECT value, 2, '2024-05-06' FROM json_each('[1,2,3,4,5,6]')")
	conn := grab(t, db)
	defer conn.Close()
	const query = "SELECT * FROM t ORDER BY a"
	before, err := conn.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer before.Close()
	for range 5 {
		require.True(t, before.Next())
	}
	_, err = conn.ExecContext(t.Context(), "ALTER TABLE t DROP COLUMN c")
	require.NoError(t, err)
	after, err := conn.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer after.Close()
	require.True(t, after.Next())
	if before.Next() { // that row has been read ahead
		var a, b, c any
		require.NoError(t, before.Scan(&a, &b, &c))
		require.Equal(t, "time.Time", reflect.TypeOf(c).String())
	}
	require.NoError(t, before.Err())
}

func TestRowsOfAStatementThatIsJudgedAnewGoOn(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_journal_mode=WAL&_coop_watch=0")
	mustExec(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
	conn := grab(t, db)
	defer conn.Close()
	run := func(statement string) {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	run("CREATE TEMP TABLE mine (b)")
	st, err := conn.PrepareContext(t.Context(), "INSERT INTO mine (b) SELECT value FROM json_each('[1,2,3,4,5,6,7,8]') WHERE value > ?1 RETURNING b")
	require.NoError(t, err)
	none, err := st.QueryContext(t.Context(), 100)
	require.NoError(t, err)
	rows, err := st.QueryContext(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, rows.Next())
	run("CREATE TEMP TRIGGER tt AFTER INSERT ON mine BEGIN INSERT INTO t (b) VALUES (new.b); END")
	mustExec(t, openPlain(t, path), "CREATE TABLE other (a)")
	_, _ = st.ExecContext(t.Context(), 0)
	require.NoError(t, none.Close())
	n := 1
	for rows.Next() {
		n++
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	require.Equal(t, 8, n)
}
