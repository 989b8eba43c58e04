package coopsqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// feedOf returns the changes after a number.
func feedOf(t testing.TB, db *sql.DB, after int64) []coopsqlite.Change {
	t.Helper()
	store := storeOf(t, db)
	var changes []coopsqlite.Change
	for change, err := range store.Changes(t.Context(), after) {
		require.NoError(t, err)
		changes = append(changes, change)
	}
	return changes
}

// openTracked opens a new store that records all changes, and runs statements.
func openTracked(t testing.TB, parameters string, statements ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("coopsqlite", filepath.Join(t.TempDir(), "tracked.db")+"?_journal_mode=WAL&_coop_changes=*"+parameters)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	mustExec(t, db, statements...)
	return db
}

// said describes a change in short: op, table, key, old, new.
func said(c coopsqlite.Change) string {
	parts := []string{string(c.Op), c.Table}
	for _, row := range []coopsqlite.Row{c.Key, c.Old, c.New} {
		b, _ := json.Marshal(row)
		parts = append(parts, string(b))
	}
	return strings.Join(parts, " ")
}

func allSaid(changes []coopsqlite.Change) []string {
	out := []string{}
	for _, c := range changes {
		out = append(out, said(c))
	}
	return out
}

func TestEachOperationIsRecordedWithItsRows(t *testing.T) {
	db := openTracked(t, "",
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
		"INSERT INTO t VALUES(1,'x'),(2,'y')",
		"UPDATE t SET a='z' WHERE id=2",
		"UPDATE t SET id=3 WHERE id=2",
		"DELETE FROM t WHERE id=1",
		"DELETE FROM t")
	require.Equal(t, []string{
		`insert t {"id":1} null {"id":1,"a":"x"}`,
		`insert t {"id":2} null {"id":2,"a":"y"}`,
		`update t {"id":2} {"id":2,"a":"y"} {"id":2,"a":"z"}`,
		`update t {"id":2} {"id":2,"a":"z"} {"id":3,"a":"z"}`,
		`delete t {"id":1} {"id":1,"a":"x"} null`,
		`delete t {"id":3} {"id":3,"a":"z"} null`,
	}, allSaid(feedOf(t, db, 0)))
}

func TestAChangeSaysWhoWhenAndInWhichTransaction(t *testing.T) {
	before := time.Now().Add(-time.Millisecond)
	db := openTracked(t, "&_coop_actor=service", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	ctx := coopsqlite.WithMetadata(t.Context(), "actor", "alice", "request", "r-17")
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	for range 2 {
		_, err = tx.Exec("INSERT INTO t VALUES(2)")
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	tx, err = db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO t VALUES(3)")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	mustExec(t, db, "INSERT INTO t VALUES(4)")
	store := storeOf(t, db)

	changes := feedOf(t, db, 0)
	require.Len(t, changes, 4)
	for i, tx := range []int64{1, 2, 2, 4} {
		c := changes[i]
		require.Equal(t, int64(i+1), c.Seq)
		require.Equal(t, tx, c.Tx)
		require.Equal(t, store.Epoch(), c.Epoch)
		require.True(t, c.Time.After(before) && c.Time.Before(time.Now().Add(time.Millisecond)), c.Time)
		if tx == 2 {
			require.Equal(t, "alice", c.Actor)
			require.Equal(t, map[string]string{"actor": "alice", "request": "r-17"}, c.Metadata)
		} else {
			require.Equal(t, "service", c.Actor)
			require.Equal(t, map[string]string{"actor": "service"}, c.Metadata)
		}
	}
}

func TestWithoutMetadataThereIsNone(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	require.Equal(t, []string{"NULL", "NULL"}, values(t, db, "SELECT actor, metadata FROM coop_changes"))
	require.Nil(t, feedOf(t, db, 0)[0].Metadata)
}

func TestTheEpochOfAChangeIsItsOwnership(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	for i := range 3 {
		db, err := sql.Open("coopsqlite", path+"?_coop_changes=*")
		require.NoError(t, err)
		mustExec(t, db, "CREATE TABLE IF NOT EXISTS t(a)", "INSERT INTO t VALUES(1)")
		changes := feedOf(t, db, 0)
		store := storeOf(t, db)
		require.Len(t, changes, i+1)
		require.Equal(t, store.Epoch(), changes[i].Epoch)
		require.NoError(t, db.Close())
	}
}

// storable is what SQLite can hold, at its limits.
var storable = []any{
	nil, int64(0), int64(1), int64(-1), int64(math.MaxInt64), int64(math.MinInt64), int64(1)<<53 + 1,
	0.0, math.Copysign(0, -1), 1.0, 0.1, 1.0 / 3, -1e300, 5e-324, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e15, 1e16, 1e17, 123456789012345678.0,
	math.Inf(1), math.Inf(-1),
	"", "x", "1", "1.0", "null", "a\x00b", "\x00", "'\"\\/\b\f\n\r\t\x1f\x7f", "<&>\u2028\u2029", "ä€𝄞\ufffd\ufeff\U0010ffff",
	"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "ok\xe2\x82", "?", `{"blob":"00"}`,
	[]byte{}, []byte{0}, []byte("text"), []byte{0xff, 0x00, 0x7f}, make([]byte, 5000), []byte(strings.Repeat("é", 3000)),
}

func TestEveryValueSurvivesTheFeedExactly(t *testing.T) {
	for _, encoding := range []string{"UTF-8", "UTF-16le", "UTF-16be"} {
		t.Run(encoding, func(t *testing.T) {
			db := openTracked(t, "", "PRAGMA encoding='"+encoding+"'", "CREATE TABLE t(k INTEGER PRIMARY KEY, v)")
			require.Equal(t, []string{encoding}, values(t, db, "PRAGMA encoding"))
			for _, v := range storable {
				_, err := db.Exec("INSERT INTO t(v) VALUES(?)", v)
				require.NoError(t, err)
			}
			for i, c := range feedOf(t, db, 0) {
				var stored any
				require.NoError(t, db.QueryRow("SELECT v FROM t WHERE k=?", i+1).Scan(&stored))
				got, ok := c.New.Get("v")
				require.True(t, ok)
				requireSame(t, stored, got)
				if encoding == "UTF-8" {
					requireSame(t, storable[i], got)
				}
				// Through JSON once more, as whoever sends it on would.
				b, err := json.Marshal(c)
				require.NoError(t, err)
				var again coopsqlite.Change
				require.NoError(t, json.Unmarshal(b, &again))
				got, _ = again.New.Get("v")
				requireSame(t, stored, got)
				require.Equal(t, c.Time, again.Time)
			}
		})
	}
}

// requireSame compares to the bit: 0.0 is not -0.0.
func requireSame(t testing.TB, want, got any) {
	t.Helper()
	require.IsType(t, want, got)
	if f, ok := want.(float64); ok {
		require.Equal(t, math.Float64bits(f), math.Float64bits(got.(float64)), "%v, not %v", want, got)
		return
	}
	require.Equal(t, want, got)
}

func TestNaNIsNullInTheFeedAsInTheTable(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(v)")
	_, err := db.Exec("INSERT INTO t VALUES(?)", math.NaN())
	require.NoError(t, err)
	require.Equal(t, []string{"null"}, values(t, db, "SELECT typeof(v) FROM t"))
	v, ok := feedOf(t, db, 0)[0].New.Get("v")
	require.True(t, ok)
	require.Nil(t, v)
}

func TestTheFeedIsJSONThatSQLiteReads(t *testing.T) {
	db := openTracked(t, "", `CREATE TABLE t(k INTEGER PRIMARY KEY, v, "a?b", "q""uo'te", "ünï", "sp ace", "{}")`)
	for _, v := range storable {
		_, err := db.Exec("INSERT INTO t(v) VALUES(?)", v)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"0"}, values(t, db, "SELECT count(*) FROM coop_changes WHERE NOT json_valid(key) OR NOT json_valid(new)"))
	// Read back with SQL alone. (SQLite's JSON has no integer beyond 64 bits, and reads an infinity.)
	require.Equal(t, []string{"0"}, values(t, db, `
		SELECT count(*) FROM t JOIN coop_changes ON k = json_extract(key, '$.k')
		WHERE v IS NOT CASE json_type(new, '$.v')
			WHEN 'object' THEN coalesce(unhex(json_extract(new, '$.v.blob')), CAST(unhex(json_extract(new, '$.v.text')) AS TEXT))
			ELSE json_extract(new, '$.v') END`))
	var names []string
	for _, c := range feedOf(t, db, 0)[0].New {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{"k", "v", "a?b", `q"uo'te`, "ünï", "sp ace", "{}"}, names)
}

func TestGeneratedColumnsAreRecorded(t *testing.T) {
	db := openTracked(t, "",
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b, v AS (b*2), s AS (b*3) STORED, h BLOB AS (CAST(b AS BLOB)) VIRTUAL)",
		"INSERT INTO t(a,b) VALUES(1,5)", "UPDATE t SET b=6", "DELETE FROM t")
	require.Equal(t, []string{
		`insert t {"a":1} null {"a":1,"b":5,"v":10,"s":15,"h":{"blob":"35"}}`,
		`update t {"a":1} {"a":1,"b":5,"v":10,"s":15,"h":{"blob":"35"}} {"a":1,"b":6,"v":12,"s":18,"h":{"blob":"36"}}`,
		`delete t {"a":1} {"a":1,"b":6,"v":12,"s":18,"h":{"blob":"36"}} null`,
	}, allSaid(feedOf(t, db, 0)))
}

func TestAffinityIsThatOfTheColumn(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(i INTEGER, r REAL, x TEXT, n NUMERIC, b BLOB, s ANY)", "INSERT INTO t VALUES('1',2,3,'4.0',5,'6')")
	require.Equal(t, []string{`insert t {"rowid":1} null {"i":1,"r":2.0,"x":"3","n":4,"b":5,"s":6}`}, allSaid(feedOf(t, db, 0)))
}

func TestTwoThousandColumnsAreRecorded(t *testing.T) {
	const columns = 2000
	names := make([]string, columns)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	db := openTracked(t, "", "CREATE TABLE t("+strings.Join(names, ",")+")")
	args := make([]any, columns)
	for i := range args {
		args[i] = int64(i)
	}
	_, err := db.Exec("INSERT INTO t VALUES(?"+strings.Repeat(",?", columns-1)+")", args...)
	require.NoError(t, err)
	mustExec(t, db, "UPDATE t SET c1999='last'", "REPLACE INTO t(rowid,c0) VALUES(1,'new')", "DELETE FROM t")
	changes := feedOf(t, db, 0)
	require.Len(t, changes, 5)
	for i, c := range changes[0].New {
		require.Equal(t, coopsqlite.Column{Name: names[i], Value: int64(i)}, c)
	}
	require.Len(t, changes[0].New, columns)
	require.Equal(t, coopsqlite.Column{Name: "c1999", Value: "last"}, changes[1].New[1999])
	require.Equal(t, changes[1].New, changes[2].Old)
	require.Equal(t, changes[3].New, changes[4].Old)
}

func TestKeysAreThoseOfTheTable(t *testing.T) {
	for name, c := range map[string]struct{ create, insert, key string }{
		"rowid alias":               {"CREATE TABLE t(a, id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES('x',7)", `{"id":7}`},
		"text":                      {"CREATE TABLE t(a TEXT PRIMARY KEY, b)", "INSERT INTO t VALUES('x',7)", `{"a":"x"}`},
		"composite, in its order":   {"CREATE TABLE t(a, b, c, PRIMARY KEY(c,a))", "INSERT INTO t VALUES(1,2,3)", `{"c":3,"a":1}`},
		"without rowid":             {"CREATE TABLE t(a, b, PRIMARY KEY(b,a)) WITHOUT ROWID", "INSERT INTO t VALUES(1,2)", `{"b":2,"a":1}`},
		"blob":                      {"CREATE TABLE t(a BLOB PRIMARY KEY) WITHOUT ROWID", "INSERT INTO t VALUES(x'00ff')", `{"a":{"blob":"00ff"}}`},
		"none":                      {"CREATE TABLE t(a)", "INSERT INTO t VALUES(1)", `{"rowid":1}`},
		"none, rowid is a column":   {"CREATE TABLE t(rowid)", "INSERT INTO t VALUES('x')", `{"_rowid_":1}`},
		"none, all names are":       {"CREATE TABLE t(rowid, _rowid_, oid)", "INSERT INTO t VALUES('x','y','z')", `null`},
		"descending is no alias":    {"CREATE TABLE t(id INTEGER PRIMARY KEY DESC, a)", "INSERT INTO t VALUES(9,1)", `{"id":9}`},
		"null in a primary key":     {"CREATE TABLE t(a TEXT PRIMARY KEY)", "INSERT INTO t VALUES(NULL)", `{"a":null}`},
		"strict with autoincrement": {"CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a ANY) STRICT", "INSERT INTO t(a) VALUES(1)", `{"id":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTracked(t, "", c.create, c.insert, "DELETE FROM t")
			for _, change := range feedOf(t, db, 0) {
				key, err := json.Marshal(change.Key)
				require.NoError(t, err)
				require.Equal(t, c.key, string(key))
			}
			require.Len(t, feedOf(t, db, 0), 2)
		})
	}
}

func TestAnUpdateThatChangesNothingIsNoChange(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, n)", "INSERT INTO t VALUES(1,'x',1)",
		"UPDATE t SET a='x', n=1", "UPDATE t SET a=a", "UPDATE t SET id=id",
		"INSERT INTO t VALUES(1,'x',1) ON CONFLICT DO UPDATE SET a=excluded.a")
	require.Len(t, feedOf(t, db, 0), 1)
	mustExec(t, db, "UPDATE t SET a='X'", "UPDATE t SET n=1.0") // equal to SQL, and not the same
	require.Len(t, feedOf(t, db, 0), 3)
}

func TestAChangedRowidIsAnotherRow(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES('x')", "UPDATE t SET rowid=5")
	require.Equal(t, []string{`delete t {"rowid":1} {"a":"x"} null`, `insert t {"rowid":5} null {"a":"x"}`}, allSaid(feedOf(t, db, 1)))
}

func TestUpsertsCascadesAndViewsAreRecordedAsWhatHappensToTheTables(t *testing.T) {
	db := openTracked(t, "&_foreign_keys=1",
		"CREATE TABLE p(id INTEGER PRIMARY KEY, a)",
		"CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)",
		"CREATE TABLE n(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE SET NULL)",
		"CREATE VIEW v AS SELECT id, a FROM p",
		"CREATE TRIGGER vi INSTEAD OF INSERT ON v BEGIN INSERT INTO p VALUES(NEW.id, NEW.a); INSERT INTO c VALUES(NEW.id*10, NEW.id); END")
	since := func(statement string) []string {
		changes := feedOf(t, db, 0)
		mustExec(t, db, statement)
		return allSaid(feedOf(t, db, int64(len(changes))))
	}
	require.Equal(t, []string{`insert p {"id":1} null {"id":1,"a":"x"}`, `insert c {"id":10} null {"id":10,"p":1}`}, since("INSERT INTO v VALUES(1,'x')"))
	require.Equal(t, []string{`update p {"id":1} {"id":1,"a":"x"} {"id":1,"a":"y"}`}, since("INSERT INTO p VALUES(1,'y') ON CONFLICT DO UPDATE SET a=excluded.a"))
	require.Empty(t, since("INSERT INTO p VALUES(1,'z') ON CONFLICT DO NOTHING"))
	require.Equal(t, []string{`insert n {"id":5} null {"id":5,"p":1}`}, since("INSERT INTO n VALUES(5,1)"))
	require.ElementsMatch(t, []string{`update p {"id":1} {"id":1,"a":"y"} {"id":2,"a":"y"}`, `update c {"id":10} {"id":10,"p":1} {"id":10,"p":2}`},
		func() []string { mustExec(t, db, "DELETE FROM n"); return since("UPDATE p SET id=2") }())
	require.Equal(t, []string{`insert n {"id":6} null {"id":6,"p":2}`}, since("INSERT INTO n VALUES(6,2)"))
	// REPLACE deletes the parent, which takes the children along.
	require.ElementsMatch(t, []string{
		`delete c {"id":10} {"id":10,"p":2} null`, `update n {"id":6} {"id":6,"p":2} {"id":6,"p":null}`,
		`delete p {"id":2} {"id":2,"a":"y"} null`, `insert p {"id":2} null {"id":2,"a":"new"}`,
	}, since("REPLACE INTO p VALUES(2,'new')"))
}

func TestOnlyTheTablesAskedForAreRecorded(t *testing.T) {
	create := []string{"CREATE TABLE a(x)", "CREATE TABLE b(x)", "CREATE TABLE coop_mine(x)", "CREATE VIRTUAL TABLE r USING rtree(id,x,y)", "CREATE TEMP TABLE tmp(x)",
		"INSERT INTO a VALUES(1)", "INSERT INTO b VALUES(1)", "INSERT INTO coop_mine VALUES(1)", "INSERT INTO r VALUES(1,2,3)", "INSERT INTO tmp VALUES(1)"}
	for parameters, want := range map[string][]string{
		"_coop_changes=*":                       {"a", "b"},
		"_coop_changes=A":                       {"a"},
		"_coop_changes=*,-a":                    {"b"},
		"_coop_changes=-a":                      {"b"},
		"_coop_changes=coop_mine,nosuch":        {"coop_mine"},
		"_coop_changes=*&_coop_tables=-a":       {"b"},
		"_coop_changes=a&_coop_tables=-a":       {"a"},
		"_coop_changes=*&_coop_fence=off":       {"a", "b"},
		"_coop_changes=coop_changes,coop_owner": {},
	} {
		t.Run(parameters, func(t *testing.T) {
			db, err := sql.Open("coopsqlite", filepath.Join(t.TempDir(), "a.db")+"?"+parameters)
			require.NoError(t, err)
			defer db.Close()
			db.SetMaxOpenConns(1)
			mustExec(t, db, create...)
			require.ElementsMatch(t, want, values(t, db, "SELECT DISTINCT tbl FROM coop_changes"))
		})
	}
}

func TestTrackingEndsWhenAnOwnerDoesNotAskForIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db, err := sql.Open("coopsqlite", path+"?_coop_changes=*")
	require.NoError(t, err)
	mustExec(t, db, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	require.NoError(t, db.Close())
	db, err = sql.Open("coopsqlite", path)
	require.NoError(t, err)
	defer db.Close()
	mustExec(t, db, "INSERT INTO t VALUES(2)", "CREATE TABLE u(a)")
	require.Empty(t, values(t, db, "SELECT name FROM sqlite_schema WHERE substr(name,1,12)='coop_change_' AND tbl_name != 'coop_changes'"))
	require.Len(t, feedOf(t, db, 0), 1)
}

func TestAnEmptyStoreStaysEmptyWithTracking(t *testing.T) {
	db := openTracked(t, "")
	require.Equal(t, []string{"0"}, values(t, db, "SELECT count(*) FROM sqlite_schema"))
	require.Empty(t, feedOf(t, db, 0))
	mustExec(t, db, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	require.Len(t, feedOf(t, db, 0), 1)
}

func TestBulkRecordsChangesToo(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)")
	store := storeOf(t, db)
	ctx := coopsqlite.WithMetadata(t.Context(), "actor", "loader")
	require.NoError(t, store.Bulk(ctx, []string{"t"}, func(tx coopsqlite.DBTX) error {
		_, err := tx.ExecContext(context.WithoutCancel(ctx), "INSERT INTO t VALUES(1),(2)")
		return err
	}))
	changes := feedOf(t, db, 0)
	require.Len(t, changes, 2)
	require.Equal(t, "loader", changes[0].Actor)
	require.Equal(t, changes[0].Tx, changes[1].Tx)
}

func TestEachMemberOfAGroupCommitHasItsOwnMetadata(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)")
	store := storeOf(t, db)
	done := make(chan error)
	const writers = 8
	for i := range writers {
		go func() {
			ctx := coopsqlite.WithMetadata(t.Context(), "actor", fmt.Sprint(i))
			done <- store.Write(ctx, func(tx coopsqlite.DBTX) error {
				_, err := tx.ExecContext(context.Background(), "INSERT INTO t VALUES(?)", i)
				return err
			})
		}()
	}
	for range writers {
		require.NoError(t, <-done)
	}
	for _, c := range feedOf(t, db, 0) {
		a, _ := c.New.Get("a")
		require.Equal(t, fmt.Sprint(a), c.Actor)
	}
}

func TestLastInsertIdAndRowsAffectedAreTheCallersOwn(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE)", "CREATE TABLE other(id INTEGER PRIMARY KEY)", "INSERT INTO other VALUES(1),(2),(3)")
	result, err := db.Exec("INSERT INTO t VALUES(70,'x'),(71,'y')")
	require.NoError(t, err)
	id, _ := result.LastInsertId()
	n, _ := result.RowsAffected()
	require.Equal(t, []int64{71, 2}, []int64{id, n})
	result, err = db.Exec("REPLACE INTO t VALUES(72,'x')")
	require.NoError(t, err)
	id, _ = result.LastInsertId()
	n, _ = result.RowsAffected()
	require.Equal(t, []int64{72, 1}, []int64{id, n})
}

func TestRowsOfAReturningClauseAreRecorded(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE)", "INSERT INTO t VALUES(1,'x')")
	require.Equal(t, []string{"2"}, values(t, db, "REPLACE INTO t VALUES(2,'x') RETURNING id"))
	require.Equal(t, []string{`delete t {"id":1} {"id":1,"a":"x"} null`, `insert t {"id":2} null {"id":2,"a":"x"}`}, allSaid(feedOf(t, db, 1)))
}

func TestTrackingWorksWithoutATrustedSchema(t *testing.T) {
	db := openTracked(t, "", "PRAGMA trusted_schema=OFF", "CREATE TABLE t(a UNIQUE)")
	db.SetMaxOpenConns(1)
	mustExec(t, db, "PRAGMA trusted_schema=OFF", "INSERT INTO t VALUES(1)", "REPLACE INTO t VALUES(1)", "UPDATE t SET a=2", "DELETE FROM t")
	require.Len(t, feedOf(t, db, 0), 5)
}
