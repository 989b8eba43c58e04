//go:build cgo && !windows

package shim_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// fence is the number of the ownership in these tests.
const fence = 1<<62 + 7

func open(t testing.TB, dsn string) *sqlite3.SQLiteConn {
	t.Helper()
	c, err := (&sqlite3.SQLiteDriver{}).Open(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(*sqlite3.SQLiteConn)
}

// attach opens a database in memory as its owner.
func attach(t testing.TB) (*shim.Conn, *sqlite3.SQLiteConn, *shim.Store) {
	t.Helper()
	source := open(t, ":memory:")
	store := shim.NewStore(fence)
	c, err := shim.Attach(source, store, 1000)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		source.Close()
		c.Free()
	})
	return c, source, store
}

func prepare(t testing.TB, c *shim.Conn, sql string) *shim.Stmt {
	t.Helper()
	p, err := c.Prepare(sql, false, 0)
	require.NoError(t, err)
	require.NotNil(t, p.Stmt)
	t.Cleanup(p.Stmt.Finalize)
	return p.Stmt
}

func named(values ...any) []driver.NamedValue {
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return args
}

func query(t testing.TB, c *shim.Conn, sql string) []any {
	t.Helper()
	v, err := c.Query(sql)
	require.NoError(t, err)
	return v
}

func TestConnectionThatIsNotOpenIsAnErrorAndNoCrash(t *testing.T) {
	_, err := shim.Attach(nil, nil, 0)
	require.ErrorIs(t, err, shim.ErrIncompatible)
	closed := open(t, ":memory:")
	require.NoError(t, closed.Close())
	_, err = shim.Attach(closed, nil, 0)
	require.ErrorIs(t, err, shim.ErrIncompatible)
	_, err = shim.Attach(&sqlite3.SQLiteConn{}, nil, 0)
	require.ErrorIs(t, err, shim.ErrIncompatible)
}

func TestHandleBelongsToTheConnectionItWasReadFrom(t *testing.T) {
	c, source, _ := attach(t)
	require.NoError(t, c.Verify())
	rows, err := source.Query("SELECT coop_context('probe')", nil)
	require.NoError(t, err)
	defer rows.Close()
	dest := make([]driver.Value, 1)
	require.NoError(t, rows.Next(dest))
	require.Nil(t, dest[0], "nothing of the probe is left")
}

func TestArgumentsOfAllTypesAndSizesArriveUnchanged(t *testing.T) {
	c, _, _ := attach(t)
	require.NoError(t, c.Exec("CREATE TABLE t(i INTEGER PRIMARY KEY, a, b)"))
	insert := prepare(t, c, "INSERT INTO t(a, b) VALUES(?1, ?2)")
	var args shim.Args
	values := []any{nil, int64(math.MinInt64), int64(math.MaxInt64), 0.5, math.Inf(1), "", "text", "nul\x00inside", []byte{}, []byte{0, 1}}
	for _, n := range []int{1, 100, 2047, 2048, 2049, 70_000, 3 << 20} {
		values = append(values, strings.Repeat("s", n), []byte(strings.Repeat("b", n)), strings.Repeat("cut", n)[1:n+1])
	}
	for i, a := range values {
		b := values[(i*7+3)%len(values)]
		rowid, changes, err := c.Run(insert, &args, named(a, b))
		require.NoError(t, err)
		require.EqualValues(t, i+1, rowid)
		require.EqualValues(t, 1, changes)
	}
	got := query(t, c, "SELECT a, b FROM t ORDER BY i")
	for i, a := range values {
		require.Equal(t, a, got[2*i])
		require.Equal(t, values[(i*7+3)%len(values)], got[2*i+1])
	}
	for value, want := range map[any]any{true: int64(1), false: int64(0),
		time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC): "2020-01-02 03:04:05.000000006+00:00"} {
		_, _, err := c.Run(insert, &args, named(value, []byte(nil)))
		require.NoError(t, err)
		last := query(t, c, "SELECT a, b FROM t ORDER BY i DESC LIMIT 1")
		require.Equal(t, []any{want, nil}, last)
	}
}

// A pinned argument beside one that cannot be bound must not stay behind for
// the next run to trip over.
func TestFailedBindingLeavesNothingForTheNextRun(t *testing.T) {
	c, _, _ := attach(t)
	s := prepare(t, c, "SELECT ?1, ?2, ?3")
	var args shim.Args
	for range 10 {
		_, _, err := c.Run(s, &args, named(strings.Repeat("x", 5000), strings.Repeat("y", 5000), struct{}{}))
		require.ErrorContains(t, err, "unsupported bind type")
		_, _, err = c.Run(s, &args, named(int64(1)))
		require.NoError(t, err)
		_, _, err = c.Run(s, &args, []driver.NamedValue{{Ordinal: 99, Value: int64(1)}})
		require.Equal(t, sqlite3.ErrRange, err.(sqlite3.Error).Code)
	}
}

func TestNamedParametersAreFoundUnderEachPrefix(t *testing.T) {
	c, _, _ := attach(t)
	require.NoError(t, c.Exec("CREATE TABLE t(a, b, c, d)"))
	s := prepare(t, c, "INSERT INTO t VALUES(:x, @x, $x, $y)")
	var args shim.Args
	for range 2 { // the second time from what was remembered
		_, _, err := c.Run(s, &args, []driver.NamedValue{{Name: "y", Value: int64(2)}, {Name: "x", Value: "v"}, {Name: "none", Value: "z"}})
		require.NoError(t, err)
	}
	require.Equal(t, []any{"v", "v", "v", int64(2), "v", "v", "v", int64(2)}, query(t, c, "SELECT * FROM t"))
	// Bindings do not outlive the run.
	_, _, err := c.Run(s, &args, nil)
	require.NoError(t, err)
	require.Equal(t, []any{nil, nil, nil, nil}, query(t, c, "SELECT * FROM t ORDER BY rowid DESC LIMIT 1"))
}

func TestTokenEndsItsStatementAndNoOther(t *testing.T) {
	c, source, _ := attach(t)
	slow := prepare(t, c, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 1000000000) SELECT max(n) FROM c")
	quick := prepare(t, c, "SELECT 1")
	rows, err := source.Query("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 5000) SELECT n FROM c", nil)
	require.NoError(t, err)
	defer rows.Close()
	dest := make([]driver.Value, 1)
	require.NoError(t, rows.Next(dest))

	token := shim.NewToken()
	defer token.Free()
	var args shim.Args
	for range 20 {
		c.Watch(token, 0)
		timer := time.AfterFunc(time.Millisecond, token.Cancel)
		_, _, err = c.Run(slow, &args, nil)
		require.Equal(t, sqlite3.ErrInterrupt, err.(sqlite3.Error).Code)
		timer.Stop()
		c.Unwatch()
		_, _, err = c.Run(quick, &args, nil)
		require.NoError(t, err)
		token.Reset()
	}
	for n := 1; ; n++ {
		if err := rows.Next(dest); err == io.EOF {
			require.Equal(t, 5000, n)
			break
		} else {
			require.NoError(t, err)
		}
	}
}

func TestBusyWaitEndsWithItsTokenOrItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	holder := open(t, path)
	_, err := holder.Exec("CREATE TABLE t(a); BEGIN IMMEDIATE", nil)
	require.NoError(t, err)
	source := open(t, path)
	c, err := shim.Attach(source, nil, 60_000)
	require.NoError(t, err)
	defer c.Free()
	defer source.Close()
	defer c.Close()

	token := shim.NewToken()
	defer token.Free()
	c.Watch(token, 0)
	time.AfterFunc(20*time.Millisecond, token.Cancel)
	_, err = c.Begin(shim.BeginImmediate, false)
	require.Equal(t, sqlite3.ErrBusy, err.(sqlite3.Error).Code)
	waited, asked := c.BusyWaited()
	require.True(t, asked)
	require.GreaterOrEqual(t, waited, 15*time.Millisecond)
	require.Less(t, waited, 30*time.Second)

	c.Watch(nil, 0)
	_, asked = c.BusyWaited()
	require.False(t, asked)
	require.NoError(t, c.Exec("PRAGMA busy_timeout=10"))
	c.AdoptBusyTimeout()
	require.EqualValues(t, 10, c.BusyLimit())
	_, err = c.Begin(shim.BeginImmediate, false)
	require.Equal(t, sqlite3.ErrBusy, err.(sqlite3.Error).Code)
	waited, _ = c.BusyWaited()
	require.Less(t, waited, 30*time.Second)
}

func TestPermitIsWithdrawnOnAllConnectionsAtOnce(t *testing.T) {
	store := shim.NewStore(fence)
	var conns []*shim.Conn
	for range 3 {
		source := open(t, ":memory:")
		c, err := shim.Attach(source, store, 0)
		require.NoError(t, err)
		defer c.Free()
		defer source.Close()
		defer c.Close()
		require.Equal(t, []any{int64(1), int64(fence)}, query(t, c, "SELECT coop_write_permit(), coop_context('fence')"))
		conns = append(conns, c)
	}
	store.SetPermit(false)
	store.SetFence(5)
	for _, c := range conns {
		require.Equal(t, []any{int64(0), int64(5)}, query(t, c, "SELECT coop_write_permit(), coop_context('fence')"))
		state, err := c.CheckFence()
		require.NoError(t, err)
		require.Equal(t, shim.Stopped, state)
	}
}

func TestFenceAnswersWhatCoopOwnerSays(t *testing.T) {
	c, _, store := attach(t)
	begin := func() shim.FenceState {
		state, err := c.Begin(shim.BeginImmediate, true)
		require.NoError(t, err)
		require.NoError(t, c.Control(shim.Rollback))
		return state
	}
	require.Equal(t, shim.NoOwner, begin())
	require.NoError(t, c.Exec(fmt.Sprintf("CREATE TABLE coop_owner(fence); INSERT INTO coop_owner VALUES(%d)", int64(fence))))
	require.Equal(t, shim.Fenced, begin())
	require.NoError(t, c.Exec("UPDATE coop_owner SET fence = 1"))
	require.Equal(t, shim.Superseded, begin())
	require.NoError(t, c.Exec("DELETE FROM coop_owner"))
	require.Equal(t, shim.NoOwner, begin())
	require.NoError(t, c.Exec("DROP TABLE coop_owner"))
	require.Equal(t, shim.NoOwner, begin())
	store.SetPermit(false)
	require.Equal(t, shim.Stopped, begin())
}

func TestMetadataIsComparedToTheLastByte(t *testing.T) {
	c, _, _ := attach(t)
	long := strings.Repeat("long", 50_000)
	var pairs []byte
	for k, v := range map[string]string{"a": "1", "ab": "2", "": "empty", "nul\x00key": "nul\x00value", "long": long, "fence": "forged"} {
		pairs = shim.EncodePair(pairs, k, v)
	}
	require.NoError(t, c.SetMetadata(pairs))
	require.Equal(t, []any{"1", "2", "empty", long, nil, nil, nil, int64(fence)}, query(t, c,
		"SELECT coop_context('a'), coop_context('ab'), coop_context(''), coop_context('long'), coop_context('abc'), coop_context(NULL), coop_context(x'00'), coop_context('fence')"))
	require.NoError(t, c.SetMetadata(nil))
	require.Equal(t, []any{nil}, query(t, c, "SELECT coop_context('a')"))
}

func TestPackedValuesComeBackAsTheyAre(t *testing.T) {
	c, _, _ := attach(t)
	require.Equal(t, []any{int64(-5), 1.25, "text", "", []byte{1, 0}, []byte{}, nil, int64(7)},
		query(t, c, "SELECT -5, 1.25, 'text', '', x'0100', x'', NULL, 7"))
	require.Empty(t, query(t, c, "SELECT 1 WHERE 0"))
	big := query(t, c, "SELECT zeroblob(3000000), 1 UNION ALL SELECT zeroblob(10), 2")
	require.Len(t, big[0], 3_000_000)
	require.Len(t, big[2], 10)
	_, err := c.Query("SELECT abs(-9223372036854775808)")
	require.ErrorContains(t, err, "integer overflow")
	_, err = c.Query("nonsense")
	require.ErrorContains(t, err, "syntax error")
}

// What is seen of a statement decides about the gate and the fence, so both
// ways to see it must agree.
func TestAuthorizerAndProgramAgreeOnWhatAStatementDoes(t *testing.T) {
	c, _, _ := attach(t)
	require.NoError(t, c.Exec("CREATE TABLE t(a); CREATE INDEX i ON t(a); CREATE VIEW v AS SELECT a FROM t; CREATE TEMP TABLE mine(x); ATTACH ':memory:' AS other; CREATE TABLE other.o(x)"))
	const compared = shim.DDL | shim.WriteMain | shim.WriteTemp | shim.WriteAttached | shim.OpensTx | shim.CommitsTx | shim.RollsBack | shim.InSavepoint
	for sql, want := range map[string]shim.Seen{
		"SELECT * FROM t":                       0,
		"INSERT INTO t VALUES(1)":               shim.WriteMain,
		"WITH x AS (SELECT 1) DELETE FROM t":    shim.WriteMain,
		"INSERT INTO mine VALUES(1)":            shim.WriteTemp,
		"INSERT INTO other.o VALUES(1)":         shim.WriteAttached,
		"CREATE TABLE u(x)":                     shim.WriteMain | shim.DDL,
		"CREATE TABLE u AS SELECT * FROM t":     shim.WriteMain | shim.DDL,
		"DROP TABLE t":                          shim.WriteMain | shim.DDL,
		"DROP INDEX i":                          shim.WriteMain | shim.DDL,
		"DROP VIEW v":                           shim.WriteMain | shim.DDL,
		"ALTER TABLE t ADD COLUMN b":            shim.WriteMain | shim.DDL,
		"ALTER TABLE t RENAME TO u":             shim.WriteMain | shim.WriteTemp | shim.DDL, // temporary views may name it
		"CREATE TABLE other.u(x)":               shim.WriteAttached,
		"BEGIN":                                 shim.OpensTx,
		"BEGIN IMMEDIATE":                       shim.OpensTx,
		"COMMIT":                                shim.CommitsTx,
		"END":                                   shim.CommitsTx,
		"ROLLBACK":                              shim.RollsBack,
		"SAVEPOINT s":                           shim.OpensTx | shim.InSavepoint,
		"RELEASE s":                             shim.CommitsTx | shim.InSavepoint,
		"ROLLBACK TO s":                         shim.RollsBack | shim.InSavepoint,
		"INSERT INTO t SELECT * FROM other.o":   shim.WriteMain,
		"UPDATE t SET a = (SELECT x FROM mine)": shim.WriteMain,
	} {
		p, err := c.Prepare(sql, false, 0)
		require.NoError(t, err, sql)
		require.True(t, p.Authorized, sql)
		require.Equal(t, want, p.Stmt.Seen&compared, sql)
		p.Stmt.Finalize()
		seen, err := c.Explain(sql)
		require.NoError(t, err, sql)
		// BEGIN IMMEDIATE is a write to every database, as a program.
		if sql != "BEGIN IMMEDIATE" {
			require.Equal(t, want, seen&compared, "by its program: %s", sql)
		}
	}
}

func TestFunctionsSurviveWhateverTheyAreCalledWith(t *testing.T) {
	c, _, _ := attach(t)
	require.NoError(t, c.SetMetadata(shim.EncodePair(nil, "k", "v")))
	names := query(t, c, "SELECT DISTINCT name FROM pragma_function_list WHERE name LIKE 'coop\\_%' ESCAPE '\\' ORDER BY name")
	require.GreaterOrEqual(t, len(names), 8)
	literals := []string{"NULL", "0", "-1", "3", "-2147483648", "2147483647", "9223372036854775807", "1.5", "1e999", "''", "'old'", "'new'", "'key'",
		"'row'", "'metadata'", "'tx'", "'time'", "'epoch'", "'fence'", "'t'", "'? ? ?'", "'?'", "x''", "x'00ff'", "zeroblob(100000)", "char(55296)", "CAST(x'c328ff' AS TEXT)"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		args := make([]string, random.IntN(8))
		for i := range args {
			args[i] = literals[random.IntN(len(literals))]
		}
		_, _ = c.Query("SELECT " + names[random.IntN(len(names))].(string) + "(" + strings.Join(args, ", ") + ")")
	}
	require.Equal(t, []any{int64(1)}, query(t, c, "SELECT coop_write_permit()"))
}

// A value of coop_change('metadata') may be kept by a statement whose rows are
// still being read when another statement runs with other metadata.
func TestMetadataOutlivesItsReplacement(t *testing.T) {
	c, source, _ := attach(t)
	value := strings.Repeat("v", 1000)
	require.NoError(t, c.SetMetadata(shim.EncodePair(nil, "k", value)))
	rows, err := source.Query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 3) SELECT (SELECT coop_change('metadata')) FROM n", nil)
	require.NoError(t, err)
	defer rows.Close()
	dest := make([]driver.Value, 1)
	for i := range 3 {
		require.NoError(t, rows.Next(dest))
		require.Equal(t, `{"k":"`+value+`"}`, dest[0])
		require.NoError(t, c.SetMetadata(shim.EncodePair(nil, "k", strings.Repeat("other", 200+i))))
		query(t, c, "SELECT coop_change('metadata')")
	}
}

func TestStateLivesUntilSQLiteAndGoHaveBothLetGo(t *testing.T) {
	store := shim.NewStore(fence)
	source := open(t, ":memory:")
	c, err := shim.Attach(source, store, 0)
	require.NoError(t, err)
	p, err := c.Prepare("SELECT coop_write_permit(), coop_context('fence')", false, 0)
	require.NoError(t, err)
	stmt, err := source.Prepare("SELECT coop_context('fence')")
	require.NoError(t, err)
	c.Close()
	c.Free() // before mattn's connection is closed
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	require.NoError(t, err)
	dest := make([]driver.Value, 1)
	require.NoError(t, rows.Next(dest))
	require.EqualValues(t, fence, dest[0])
	require.NoError(t, rows.Close())
	require.NoError(t, source.Close()) // p keeps the handle alive
	p.Stmt.Finalize()
	p.Stmt.Finalize() // once more is harmless
}

func TestUserMayReplaceOurFunctions(t *testing.T) {
	c, source, _ := attach(t)
	for i := range 5 {
		require.NoError(t, source.RegisterFunc("coop_context", func(key string) string { return fmt.Sprint(key, i) }, false))
		require.NoError(t, source.RegisterFunc("coop_row", func(args ...any) int { return len(args) }, false))
		require.Equal(t, []any{fmt.Sprint("x", i), int64(3)}, query(t, c, "SELECT coop_context('x'), coop_row(1, 2, 3)"))
	}
}

func TestConnectionsOfOneStoreComeAndGoConcurrently(t *testing.T) {
	store := shim.NewStore(fence)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 50 {
				source, err := (&sqlite3.SQLiteDriver{}).Open(":memory:")
				if err != nil {
					t.Error(err)
					return
				}
				c, err := shim.Attach(source.(*sqlite3.SQLiteConn), store, 0)
				if err != nil {
					t.Error(err)
					return
				}
				store.SetPermit(i%2 == 0)
				if _, err := c.Query("SELECT coop_write_permit()"); err != nil {
					t.Error(err)
				}
				c.Close()
				source.Close()
				c.Free()
			}
		})
	}
	wg.Wait()
}

func TestAnnotatedErrorStaysAnErrorOfSQLite(t *testing.T) {
	c, _, _ := attach(t)
	err := c.Exec("SELECT * FROM missing")
	annotated := shim.Annotate(err, func(message string) string { return "here: " + message })
	require.EqualError(t, annotated, "here: no such table: missing")
	require.IsType(t, sqlite3.Error{}, annotated)
	require.Equal(t, err.(sqlite3.Error).Code, annotated.(sqlite3.Error).Code)
	require.Equal(t, io.EOF, shim.Annotate(io.EOF, func(string) string { return "never" }))
}
