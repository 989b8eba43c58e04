package coopsqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// replica is what a consumer makes of the feed: all tables, row by row.
type replica map[string]map[string]string // table, key, row

func inJSON(row coopsqlite.Row) string {
	b, _ := json.Marshal(row)
	return string(b)
}

// apply changes the replica, and is strict: what is inserted must not be there
// yet, and what is updated or deleted must be there, as the change says it was.
func (r replica) apply(c coopsqlite.Change, primary []string) error {
	table := r[c.Table]
	if table == nil {
		table = map[string]string{}
		r[c.Table] = table
	}
	key := inJSON(c.Key)
	was, there := table[key]
	if c.Op == coopsqlite.OpInsert {
		if there {
			return fmt.Errorf("inserted twice: %s", said(c))
		}
		table[key] = inJSON(c.New)
		return nil
	}
	if !there || was != inJSON(c.Old) {
		return fmt.Errorf("was %q: %s", was, said(c))
	}
	delete(table, key)
	if c.Op == coopsqlite.OpDelete {
		return nil
	}
	if len(primary) > 0 { // an update may move the row
		var moved coopsqlite.Row
		for _, name := range primary {
			v, _ := c.New.Get(name)
			moved = append(moved, coopsqlite.Column{Name: name, Value: v})
		}
		key = inJSON(moved)
	}
	if _, there := table[key]; there {
		return fmt.Errorf("moved onto another row: %s", said(c))
	}
	table[key] = inJSON(c.New)
	return nil
}

// read makes the same of the tables themselves.
func read(t testing.TB, db *sql.DB, table string, primary, columns []string) map[string]string {
	t.Helper()
	key := primary
	if len(key) == 0 {
		key = []string{"rowid"}
	}
	rows, err := db.Query("SELECT " + strings.Join(append(append([]string{}, key...), columns...), ",") + " FROM " + table)
	require.NoError(t, err)
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		values := make([]any, len(key)+len(columns))
		dest := make([]any, len(values))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, rows.Scan(dest...))
		var k, row coopsqlite.Row
		for i, name := range key {
			k = append(k, coopsqlite.Column{Name: name, Value: values[i]})
		}
		for i, name := range columns {
			row = append(row, coopsqlite.Column{Name: name, Value: values[len(key)+i]})
		}
		out[inJSON(k)] = inJSON(row)
	}
	require.NoError(t, rows.Err())
	return out
}

// walks are tables on which rows can collide in every way that SQLite knows.
var walks = map[string]struct {
	schema  []string
	primary []string
}{
	"rowid alias and unique columns": {[]string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c, d)"}, []string{"a"}},
	"composite and collated": {[]string{
		"CREATE TABLE t(a TEXT COLLATE NOCASE NOT NULL, b NOT NULL, c, d, PRIMARY KEY(a,b), UNIQUE(c,a))"}, []string{"a", "b"}},
	"without rowid": {[]string{
		"CREATE TABLE t(a, b TEXT COLLATE RTRIM, c, d, PRIMARY KEY(b,a), UNIQUE(c)) WITHOUT ROWID"}, []string{"b", "a"}},
	"no primary key": {[]string{
		"CREATE TABLE t(a, b, c, d)", "CREATE UNIQUE INDEX ta ON t(a)"}, nil},
	"partial and on expressions": {[]string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b, c, d)",
		"CREATE UNIQUE INDEX t1 ON t(b) WHERE c > 2 AND d IS NOT NULL",
		"CREATE UNIQUE INDEX \"t ON (2)\" /* ( */ ON \"t\" ( (c % 3) DESC, lower(b||',)') COLLATE NOCASE ASC, d) -- ,)",
		"CREATE UNIQUE INDEX t3 ON t(abs(coalesce(d, -a))) WHERE b IN (1,2)"}, []string{"a"}},
	"conflict clauses of its own": {[]string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY ON CONFLICT REPLACE, b UNIQUE ON CONFLICT IGNORE, c UNIQUE ON CONFLICT REPLACE, d NOT NULL ON CONFLICT REPLACE DEFAULT 3 UNIQUE ON CONFLICT REPLACE)"}, []string{"a"}},
	"defaults in place of nulls": {[]string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b INT NOT NULL DEFAULT (1+1) UNIQUE, c NOT NULL DEFAULT 'x', d, UNIQUE(c,d))"}, []string{"a"}},
	"generated": {[]string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b, c, d)",
		"ALTER TABLE t ADD COLUMN g AS (b % 4)",
		"CREATE UNIQUE INDEX tg ON t(g, c)"}, []string{"a"}},
	"triggers of the user": {[]string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c, d)",
		"CREATE TABLE l(a INTEGER PRIMARY KEY, b UNIQUE, c, d)",
		"CREATE TRIGGER u1 BEFORE INSERT ON t WHEN NEW.d = 1 BEGIN DELETE FROM t WHERE b = NEW.b; END",
		"CREATE TRIGGER u2 BEFORE INSERT ON t WHEN NEW.d = 2 BEGIN UPDATE t SET d = 9 WHERE b = NEW.b; END",
		"CREATE TRIGGER u3 BEFORE INSERT ON t WHEN NEW.d = 3 BEGIN INSERT OR REPLACE INTO t VALUES(NEW.a+1, NEW.b+1, NEW.c, 7); END",
		"CREATE TRIGGER u4 AFTER INSERT ON t WHEN NEW.d = 4 BEGIN REPLACE INTO l VALUES(NEW.b, NEW.a, NEW.c, 7); END",
		"CREATE TRIGGER u5 AFTER INSERT ON t WHEN NEW.d = 5 BEGIN UPDATE t SET c = c+1 WHERE a = NEW.a; END",
		"CREATE TRIGGER u6 AFTER DELETE ON t WHEN OLD.d = 6 BEGIN INSERT INTO l VALUES(OLD.a, OLD.b, 1, 8) ON CONFLICT(a) DO NOTHING ON CONFLICT(b) DO UPDATE SET c=c+1; END",
		"CREATE TRIGGER u7 BEFORE UPDATE ON t WHEN NEW.d = 7 BEGIN INSERT OR IGNORE INTO l VALUES(NEW.a, NEW.b, NEW.c, 9); END",
		"CREATE TRIGGER u8 AFTER UPDATE ON t WHEN NEW.d = 8 BEGIN REPLACE INTO l VALUES(NEW.a, OLD.b, NEW.c, 9); DELETE FROM t WHERE c = NEW.c AND a != NEW.a; END",
	}, []string{"a"}},
}

// randomWrite is a statement that may collide, in any of SQLite's ways.
func randomWrite(r *rand.Rand, columns string) string {
	v := func() string {
		return []string{"NULL", "0", "1", "2", "3", "4", "5", "'1'", "'x'", "'X'", "'x '", "1.0", "x'01'"}[r.IntN(13)]
	}
	id := func() string { return fmt.Sprint(r.IntN(9)) }
	or := []string{"", "", " OR REPLACE", " OR REPLACE", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ABORT", " OR ROLLBACK"}[r.IntN(9)]
	row := func() string { return "(" + strings.Join([]string{id(), v(), v(), v()}, ",") + ")" }
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		return "INSERT" + or + " INTO t(" + columns + ") VALUES" + row() + "," + row() + "," + row()
	case 4:
		return "INSERT" + or + " INTO t(b,c,d) VALUES(" + v() + "," + v() + "," + v() + ")"
	case 5:
		return "INSERT INTO t(" + columns + ") VALUES" + row() + "," + row() + " ON CONFLICT DO UPDATE SET " + string("abcd"[r.IntN(4)]) + "=" + id() + ", d=" + v()
	case 6:
		return "INSERT INTO t(" + columns + ") VALUES" + row() + "," + row() + " ON CONFLICT DO NOTHING"
	case 7:
		return "UPDATE" + or + " t SET " + string("abcd"[r.IntN(4)]) + "=" + v() + ", " + string("bcd"[r.IntN(3)]) + "=" + v() + " WHERE a >= " + id()
	case 8:
		return "UPDATE" + or + " t SET a=a+1, b=" + v() + " WHERE b IS " + v()
	}
	return "DELETE FROM t WHERE a = " + id() + " OR c IS " + v()
}

func TestWhoeverReplaysTheFeedHasTheTables(t *testing.T) {
	const seeds, statements = 1, 150
	for name, w := range walks {
		for _, recursive := range []string{"", "&_recursive_triggers=1"} {
			t.Run(name+recursive, func(t *testing.T) {
				for seed := range uint64(seeds) {
					db := openTracked(t, "&_synchronous=off"+recursive, w.schema...)
					r := rand.New(rand.NewPCG(seed, 6))
					walk(t, db, r, w.primary, statements)
					require.NoError(t, db.Close())
				}
			})
		}
	}
}

func walk(t *testing.T, db *sql.DB, r *rand.Rand, primary []string, statements int) {
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	var columns []string
	for _, name := range values(t, db, "SELECT name FROM pragma_table_xinfo('t')") {
		columns = append(columns, name)
	}
	copied := replica{}
	var last int64
	var log, changes []string
	inTx := false
	exec := func(statement string) {
		_, err := conn.ExecContext(context.Background(), statement)
		log = append(log, fmt.Sprintf("%s -- %v", statement, err))
	}
	for range statements {
		switch n := r.IntN(20); {
		case !inTx && n < 4:
			exec("BEGIN")
			inTx = true
		case inTx && n < 3:
			exec("COMMIT")
			inTx = false
		case inTx && n < 5:
			exec("ROLLBACK")
			inTx = false
		case inTx && n < 7:
			exec("SAVEPOINT s")
			exec(randomWrite(r, "a,b,c,d"))
			exec("ROLLBACK TO s")
		default:
			exec(randomWrite(r, "a,b,c,d"))
		}
		for _, c := range feedOf(t, db, last) {
			require.Equal(t, last+1, c.Seq)
			last = c.Seq
			key := primary
			if c.Table == "l" {
				key = []string{"a"}
			}
			changes = append(changes, said(c))
			require.NoError(t, copied.apply(c, key), "%s\n%s", tail(log, 12), tail(changes, 12))
		}
		want := read(t, db, "t", primary, columns)
		got := copied["t"]
		if got == nil {
			got = map[string]string{}
		}
		require.Equal(t, want, got, "%s\n%s", tail(log, 12), tail(changes, 12))
	}
}

// Each change on its own says enough to be taken back: undo is that of the
// example.
func TestTheWholeFeedUndoneBackwardsLeavesNothing(t *testing.T) {
	for name, w := range walks {
		if strings.Contains(name, "triggers") {
			continue // they would act once more
		}
		t.Run(name, func(t *testing.T) {
			db := openTracked(t, "&_synchronous=off", w.schema...)
			r := rand.New(rand.NewPCG(7, 6))
			for range 150 {
				_, _ = db.Exec(randomWrite(r, "a,b,c,d"))
			}
			changes := feedOf(t, db, 0)
			require.Greater(t, len(changes), 100)
			require.NoError(t, storeOf(t, db).Write(t.Context(), func(tx coopsqlite.DBTX) error {
				for _, change := range slices.Backward(changes) {
					if err := undo(t.Context(), tx, change); err != nil {
						return fmt.Errorf("%w: %s", err, said(change))
					}
				}
				return nil
			}))
			require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
		})
	}
}

func tail(lines []string, n int) string { return strings.Join(lines[max(0, len(lines)-n):], "\n") }
