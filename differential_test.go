package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
)

// The differential test sends the same random statements through mattn's
// driver and through this one, each with a file and a connection of its own,
// and compares all that a program can see.

// side is one of the two.
type side struct {
	db       *sql.DB
	conn     *sql.Conn
	tx       *sql.Tx
	prepared map[string]*sql.Stmt
}

// step is what both do.
type step struct {
	how   string // exec, query, first row only, prepare and …, begin, commit, rollback
	query string
	args  []any
	ctx   bool // with a context that can end
}

func (s step) String() string {
	return fmt.Sprintf("%s %q %d arguments", s.how, s.query, len(s.args))
}

// outcome is all that came of it.
type outcome struct {
	Err                     string
	Code                    sqlite3.Error // without the text
	LastInsertID, Affected  int64
	Columns                 []string
	Types                   []string
	Values                  [][]any
	RowsErr, CloseErr, Scan string
}

// place is what this driver adds to the error of a text of several statements.
var place = regexp.MustCompile(` \(statement \d+ of the text; .*\)$`)

func (o *outcome) fail(err error) *outcome {
	if err != nil {
		o.Err = place.ReplaceAllString(err.Error(), "")
		var e sqlite3.Error
		if errors.As(err, &e) {
			o.Code = sqlite3.Error{Code: e.Code, ExtendedCode: e.ExtendedCode, SystemErrno: e.SystemErrno}
		}
	}
	return o
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func newSide(t *testing.T, driver, params string) *side {
	db, err := sql.Open(driver, newPath(t)+"?_synchronous=OFF&_journal_mode=WAL"+params)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	c, err := db.Conn(context.Background())
	require.NoError(t, err)
	s := &side{db: db, conn: c, prepared: map[string]*sql.Stmt{}}
	t.Cleanup(func() {
		if s.tx != nil {
			s.tx.Rollback()
		}
		for _, stmt := range s.prepared {
			stmt.Close()
		}
		c.Close()
	})
	return s
}

// statements is what a connection and a transaction have in common.
type statements interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
}

func (s *side) do(st step) *outcome {
	ctx := context.Background()
	if st.ctx {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	o := &outcome{}
	var on statements = s.conn
	if s.tx != nil {
		on = s.tx
	}
	switch st.how {
	case "begin":
		tx, err := s.conn.BeginTx(context.Background(), nil)
		s.tx = tx
		return o.fail(err)
	case "commit", "rollback":
		if s.tx == nil {
			return o // it could not begin
		}
		end := s.tx.Commit
		if st.how == "rollback" {
			end = s.tx.Rollback
		}
		s.tx = nil
		return o.fail(end())
	case "exec":
		res, err := on.ExecContext(ctx, st.query, st.args...)
		return o.result(res, err)
	case "query", "first":
		rows, err := on.QueryContext(ctx, st.query, st.args...)
		return o.rows(rows, err, st.how == "first")
	}
	stmt, err := s.prepare(ctx, on, st.query)
	if err != nil {
		return o.fail(err)
	}
	if st.how == "prepared exec" {
		res, err := stmt.ExecContext(ctx, st.args...)
		return o.result(res, err)
	}
	rows, err := stmt.QueryContext(ctx, st.args...)
	return o.rows(rows, err, false)
}

// prepare keeps the statements that belong to the connection.
func (s *side) prepare(ctx context.Context, on statements, query string) (*sql.Stmt, error) {
	if s.tx != nil {
		return on.PrepareContext(ctx, query)
	}
	if stmt := s.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := on.PrepareContext(context.Background(), query)
	if err == nil {
		s.prepared[query] = stmt
	}
	return stmt, err
}

func (o *outcome) result(res sql.Result, err error) *outcome {
	if err == nil {
		o.LastInsertID, _ = res.LastInsertId()
		o.Affected, _ = res.RowsAffected()
	}
	return o.fail(err)
}

func (o *outcome) rows(rows *sql.Rows, err error, firstOnly bool) *outcome {
	if err != nil {
		return o.fail(err)
	}
	o.Columns, err = rows.Columns()
	o.fail(err)
	types, err := rows.ColumnTypes()
	o.fail(err)
	for _, ct := range types {
		nullable, nullableKnown := ct.Nullable()
		length, lengthKnown := ct.Length()
		precision, scale, decimal := ct.DecimalSize()
		o.Types = append(o.Types, fmt.Sprint(ct.Name(), " ", ct.DatabaseTypeName(), " ", ct.ScanType(), nullable, nullableKnown,
			length, lengthKnown, precision, scale, decimal))
	}
	for rows.Next() {
		values := make([]any, len(o.Columns))
		dest := make([]any, len(o.Columns))
		for i := range values {
			dest[i] = &values[i]
		}
		o.Scan += text(rows.Scan(dest...))
		o.Values = append(o.Values, values)
		if firstOnly {
			break
		}
	}
	o.RowsErr = place.ReplaceAllString(text(rows.Err()), "")
	o.CloseErr = text(rows.Close())
	return o
}

// maker makes random steps.
type maker struct {
	*rand.Rand
	inTx bool
	// With foreign keys on, last_insert_rowid() after a failed INSERT depends
	// on whether the table has a trigger, which a fence is.
	foreignKeys bool
}

func (m *maker) pick(of ...string) string { return of[m.IntN(len(of))] }

var declaredTypes = []string{"INTEGER", "INT", "TEXT", "VARCHAR(10)", "REAL", "DOUBLE", "BLOB", "NUMERIC", "DECIMAL(10,5)", "BOOLEAN",
	"TIMESTAMP", "DATETIME", "DATE", "JSON", "", "timestamp", "UNSIGNED BIG INT", "CHAR", "odd type"}

// columns of the tables a and b; c is WITHOUT ROWID.
var columns = []string{"k", "c0", "c1", "c2", "c3", "c4", "c5"}

// value is a random argument of any type that database/sql takes.
func (m *maker) value() any {
	long := strings.Repeat("long text, ", 400)
	choices := []any{
		nil, int64(m.IntN(8)), int64(m.IntN(8)), int(m.IntN(2000)), int64(math.MaxInt64 / 2), int64(math.MinInt64), int8(-5), uint32(7),
		uint64(9), true, false, 0.0, math.Copysign(0, -1), 1.5, math.Pi * 1e300, math.Inf(1), math.Inf(-1), math.NaN(), float32(0.1),
		"", "text", "it's", "Ünïcödé 表 🙂", "nul\x00inside", "bad \xff\xfe utf8", "12", "1.0", "0x10", " 3 ", long, long[:2047], long[:2048],
		"2021-05-06 07:08:09", "2021-05-06T07:08:09.123456789Z", "2021-05-06", "2021-05-06 07:08:09+02:00", "not a time", "07:08", "2021-05-06 07:08Z",
		[]byte(nil), []byte{}, []byte{0}, []byte("bytes"), []byte(long), []byte(strings.Repeat("x", 70000)), sql.RawBytes("raw"),
		time.Date(2020, 2, 3, 4, 5, 6, 7, time.UTC), time.Date(1969, 12, 31, 23, 0, 0, 0, time.FixedZone("odd", -12345)), time.Time{},
		time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1e9, 999), int64(1600000000), int64(1600000000123), int64(-5e12),
		sql.NullString{}, sql.NullInt64{Int64: 3, Valid: true}, sql.NullTime{Time: time.Unix(5, 0), Valid: true}, ptr("pointer"), (*string)(nil),
		struct{ X int }{1}, complex(1, 2), []int{1}, // not to be converted
	}
	return choices[m.IntN(len(choices))]
}

func ptr[T any](v T) *T { return &v }

func (m *maker) column() string { return columns[m.IntN(len(columns))] }
func (m *maker) table() string  { return m.pick("a", "a", "b", "c", "missing", "w") }

// parameter is one of SQLite's ways to write one, with the arguments it needs.
func (m *maker) parameters(n int) (marks []string, args []any) {
	switch m.IntN(5) {
	case 0: // by number, one of them used twice
		for i := range n {
			marks = append(marks, fmt.Sprintf("?%d", i+1))
		}
	case 1: // by name
		names := []string{"one", "two", "three", "four", "five", "six", "seven"}
		for i := range n {
			marks = append(marks, m.pick(":", "@", "$")+names[i])
			args = append(args, sql.Named(names[i], m.value()))
		}
		m.Shuffle(len(args), func(i, j int) { args[i], args[j] = args[j], args[i] })
		return marks, args
	default:
		for range n {
			marks = append(marks, "?")
		}
	}
	for range n {
		args = append(args, m.value())
	}
	if n > 0 && m.IntN(30) == 0 {
		args = args[:n-1] // not enough
	}
	return marks, args
}

func (m *maker) expression() string {
	return m.pick(m.column(), m.column(), "count(*)", "max("+m.column()+")", "typeof("+m.column()+")", m.column()+" + 1", "'text' AS alias",
		"NULL", "1.5", "x'0102'", "CAST(c1 AS TEXT)", "abs(-9223372036854775808)", "json_object('a', "+m.column()+")", "current_date = date('now')",
		"changes()", m.lastRowID(), "(SELECT k FROM a)", "nonsense(1)", "c2 COLLATE NOCASE", "datetime(c4)", "c4", "c5", "zeroblob(3)")
}

func (m *maker) lastRowID() string {
	if m.foreignKeys {
		return "NULL"
	}
	return "last_insert_rowid()"
}

func (m *maker) where() (string, []any) {
	if m.IntN(3) == 0 {
		return "", nil
	}
	marks, args := m.parameters(1)
	return " WHERE " + m.column() + m.pick(" = ", " < ", " IS ", " LIKE ", " IS NOT ") + marks[0], args
}

func (m *maker) statement() (string, []any) {
	conflict := m.pick("", "", "", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ABORT")
	returning := m.pick("", "", "", " RETURNING *", " RETURNING k, typeof(c1) AS t, c4")
	switch m.IntN(14) {
	case 0, 1, 2, 3:
		n := 1 + m.IntN(len(columns))
		marks, args := m.parameters(n)
		return "INSERT" + conflict + " INTO " + m.table() + "(" + strings.Join(columns[:n], ", ") + ") VALUES(" + strings.Join(marks, ", ") + ")" + returning, args
	case 4:
		return "INSERT" + conflict + " INTO " + m.table() + "(k, c1) SELECT k + " + m.pick("0", "1", "50") + ", c1 FROM a LIMIT 3" + returning, nil
	case 5:
		marks, args := m.parameters(1)
		return "UPDATE" + conflict + " " + m.table() + " SET " + m.column() + " = " + marks[0] + m.pick("", " WHERE k < 4") + returning, args
	case 6:
		where, args := m.where()
		return "DELETE FROM " + m.table() + where + returning, args
	case 7:
		return m.pick("CREATE TABLE extra(x)", "DROP TABLE extra", "CREATE TABLE IF NOT EXISTS extra(x)", "DROP TABLE IF EXISTS extra",
			"ALTER TABLE extra ADD COLUMN y DEFAULT 5", "INSERT INTO extra DEFAULT VALUES", "SELECT * FROM extra", "CREATE INDEX ei ON extra(x)",
			"ALTER TABLE extra DROP COLUMN y", "REINDEX", "ANALYZE", "SELECT * FROM extra JOIN a"), nil
	case 8:
		return m.pick("", "  ", ";", "-- comment", "/* comment */", "SELECT", "SELEC 1", "SELECT 1 FROM", "INSERT INTO a VALUES", "COMMIT TO", "\xff",
			"SELECT 'unterminated", "VALUES(1, 2), (3, 4)", "SELECT 1 WHERE 0", "SELECT ?5, ?2", "PRAGMA table_info(a)", "PRAGMA foreign_keys",
			"PRAGMA user_version", "PRAGMA user_version = 5", "PRAGMA nonsense", "EXPLAIN QUERY PLAN SELECT * FROM a", "PRAGMA cache_size = 100",
			"SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"), nil
	case 9:
		a, aArgs := m.statement()
		b, bArgs := m.statement()
		if strings.Contains(a+b, "-- ") {
			return a, aArgs // mattn's driver forgets the result of what is before a comment
		}
		return a + "; " + b, append(aArgs, bArgs...)
	default:
		n := 1 + m.IntN(4)
		exprs := make([]string, n)
		for i := range exprs {
			exprs[i] = m.expression()
		}
		where, args := m.where()
		what := strings.Join(exprs, ", ")
		if m.IntN(4) == 0 {
			what = "*"
		}
		return "SELECT " + what + " FROM " + m.table() + where + m.pick("", " ORDER BY k", " LIMIT 2", " GROUP BY k"), args
	}
}

var returnsRows = regexp.MustCompile(`^(SELECT|VALUES|PRAGMA|EXPLAIN)|RETURNING`)

func (m *maker) step() step {
	if m.IntN(15) == 0 {
		m.inTx = !m.inTx
		if m.inTx {
			return step{how: "begin"}
		}
		return step{how: m.pick("commit", "rollback")}
	}
	query, args := m.statement()
	how := m.pick("exec", "exec", "query", "query", "first", "prepared exec", "prepared query")
	if how == "prepared exec" && returnsRows.MatchString(query) {
		how = "prepared query" // through mattn's driver the statement would stay open, and lock its table
	}
	if strings.HasPrefix(how, "prepared") && strings.Contains(strings.TrimRight(query, "; "), ";") {
		how = "exec" // Prepare of several is an error here, and cut short there
	}
	switch strings.TrimSpace(query) {
	case "", ";", "-- comment", "/* comment */":
		how = "exec" // prepared, it ends the process of mattn's driver
	}
	return step{how: how, query: query, args: args, ctx: m.IntN(2) == 0}
}

func TestSameStatementsGiveTheSameAsThroughMattnsDriver(t *testing.T) {
	const seeds, steps = 4, 400
	for _, params := range []string{"", "&_loc=auto", "&_loc=America/New_York&_stmt_cache_size=0", "&_foreign_keys=on&_stmt_cache_size=3&_txlock=deferred"} {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprintf("%s/%d", params, seed), func(t *testing.T) {
				compareSides(t, params, seed, steps)
			})
		}
	}
}

func compareSides(t *testing.T, params string, seed uint64, steps int) {
	theirs, ours := newSide(t, "sqlite3", params), newSide(t, "coopsqlite", params)
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 2)), foreignKeys: strings.Contains(params, "_foreign_keys=on")}
	list := make([]string, len(columns))
	for i := range list {
		list[i] = columns[i] + " " + declaredTypes[m.IntN(len(declaredTypes))]
	}
	setUp := []string{
		"CREATE TABLE a(k INTEGER PRIMARY KEY, " + strings.Join(list[1:], ", ") + ", UNIQUE(c1))",
		"CREATE TABLE b(k INTEGER REFERENCES a(k), " + strings.Join(list[1:], ", ") + " CHECK (c5 IS NOT 12), c6 GENERATED ALWAYS AS (k * 2))",
		"CREATE TABLE c(k PRIMARY KEY NOT NULL, " + strings.Join(list[1:], ", ") + ") WITHOUT ROWID",
		"CREATE VIEW w AS SELECT * FROM a",
		"CREATE TRIGGER ai AFTER INSERT ON a BEGIN INSERT INTO b(k, c1) VALUES(NEW.k, NEW.c1); END",
	}
	for _, s := range setUp {
		st := step{how: "exec", query: s}
		require.Equal(t, theirs.do(st), ours.do(st), s)
	}
	var done []step
	for n := range steps {
		st := m.step()
		done = append(done, st)
		// SQLite tells the rows apart by what is written, so both must do all.
		want, got := theirs.do(st), ours.do(st)
		if m.foreignKeys {
			want.LastInsertID, got.LastInsertID = 0, 0
		}
		require.Equal(t, want, got, "step %d, after %v", n, done[max(0, n-5):])
	}
	require.Equal(t, theirs.do(step{how: "query", query: "SELECT * FROM a"}), ours.do(step{how: "query", query: "SELECT * FROM a"}))
	require.Equal(t, theirs.do(step{how: "query", query: "SELECT * FROM b ORDER BY 1, 2"}), ours.do(step{how: "query", query: "SELECT * FROM b ORDER BY 1, 2"}))
}
