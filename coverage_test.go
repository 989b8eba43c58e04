package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// The fence as it must stand in the schema, spelled out once more: the tests
// must not learn it from the code they test.
const (
	permitArm = "SELECT CASE WHEN coop_write_permit() != 1 THEN RAISE(ABORT,'Coop writer fenced')"
	epochArm  = " WHEN coop_context('fence') IS NOT (SELECT fence FROM coop_owner) THEN RAISE(ABORT,'Coop writer superseded')"
)

// queryer is any pool, connection or transaction.
type queryer interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

// gaps are what is wrong with the fences of a store, as seen by db: tables
// without their three triggers, and triggers of ours that should not be. The
// tables in open are those that must have none.
func gaps(t testing.TB, db queryer, open ...string) []string {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('table','trigger')")
	require.NoError(t, err)
	defer rows.Close()
	var tables []string
	found := map[string]string{}
	for rows.Next() {
		var kind, name, table, text string
		require.NoError(t, rows.Scan(&kind, &name, &table, &text))
		switch {
		case kind == "table":
			tables = append(tables, name)
		case strings.HasPrefix(name, "coop_fence_"):
			found[name] = table + "|" + text
		}
	}
	require.NoError(t, rows.Err())
	var wrong []string
	for _, table := range tables {
		if strings.HasPrefix(table, "sqlite_") || slices.Contains(open, table) {
			continue
		}
		body := permitArm + epochArm
		if table == "coop_owner" {
			body = permitArm
		}
		for _, op := range []string{"INSERT", "UPDATE", "DELETE"} {
			name := "coop_fence_" + table + "_" + strings.ToLower(op)
			want := fmt.Sprintf("%s|CREATE TRIGGER %s BEFORE %s ON %s BEGIN %s END; END", table, quote(name), op, quote(table), body)
			if found[name] != want {
				wrong = append(wrong, fmt.Sprintf("%s: %s on %q is %q", name, op, table, found[name]))
			}
			delete(found, name)
		}
	}
	for name, is := range found {
		wrong = append(wrong, fmt.Sprintf("%s is not needed: %s", name, is))
	}
	if !slices.Contains(tables, "coop_owner") && len(tables) > 0 {
		wrong = append(wrong, "there is no coop_owner")
	}
	return wrong
}

// requireCovered checks from outside that all tables but those in open carry
// just the right fences.
func requireCovered(t testing.TB, path string, open ...string) {
	t.Helper()
	db := openPlain(t, "file:"+escapePath(path)+"?mode=rw")
	defer db.Close()
	require.Empty(t, gaps(t, db, open...))
}

// ddl is one way in which programs change a schema that has the tables parent,
// child (which refers to it) and "odd ""name".
var ddl = []struct {
	name       string
	statements []string
}{
	{"create", []string{"CREATE TABLE n (a)"}},
	{"create in main", []string{"CREATE TABLE main.n (a)"}},
	{"create if not exists", []string{"CREATE TABLE IF NOT EXISTS n (a)", "CREATE TABLE IF NOT EXISTS parent (a)"}},
	{"create without rowid", []string{"CREATE TABLE n (a PRIMARY KEY) WITHOUT ROWID"}},
	{"create strict", []string{"CREATE TABLE n (a INTEGER PRIMARY KEY AUTOINCREMENT, b TEXT AS (a || 'x') STORED) STRICT"}},
	{"create with names that need quotes", []string{
		`CREATE TABLE "a ""b"" c" (a)`, `CREATE TABLE 'it''s' (a)`, "CREATE TABLE [x.y] (a)", "CREATE TABLE `table` (a)",
		`CREATE TABLE "" (a)`, `CREATE TABLE "Ünïcödé 表" (a)`, `CREATE TABLE "semi;colon -- " (a)`, `CREATE TABLE "%_\" (a)`}},
	{"create as select", []string{"CREATE TABLE n AS SELECT * FROM parent JOIN child"}},
	{"create as values, and fill", []string{"CREATE TABLE n AS VALUES (1), (2)", "INSERT INTO n VALUES (3)"}},
	{"create with an index and a view", []string{"CREATE TABLE n (a)", "CREATE INDEX n_a ON n (a)", "CREATE VIEW v AS SELECT a FROM n"}},
	{"create with a trigger of the user's", []string{"CREATE TABLE n (a)", "CREATE TRIGGER n_guard BEFORE INSERT ON n BEGIN DELETE FROM child; END"}},
	{"create, write and drop", []string{"CREATE TABLE n (a)", "INSERT INTO n VALUES (1)", "DROP TABLE n"}},
	{"rename", []string{"ALTER TABLE parent RENAME TO elder"}},
	{"rename in the case of a letter", []string{"ALTER TABLE parent RENAME TO x", "ALTER TABLE x RENAME TO Parent"}},
	{"rename there and back", []string{"ALTER TABLE parent RENAME TO elder", "ALTER TABLE elder RENAME TO parent"}},
	{"rename and recreate", []string{"ALTER TABLE parent RENAME TO parent_old", "CREATE TABLE parent (id INTEGER PRIMARY KEY, name)",
		"INSERT INTO parent SELECT * FROM parent_old", "DROP TABLE parent_old"}},
	{"rename and recreate, keeping both", []string{"ALTER TABLE parent RENAME TO parent_old", "CREATE TABLE parent (id INTEGER PRIMARY KEY, name)"}},
	{"two tables swap names", []string{"ALTER TABLE parent RENAME TO x", `ALTER TABLE "odd ""name" RENAME TO parent`, `ALTER TABLE x RENAME TO "odd ""name"`}},
	{"rename a column", []string{"ALTER TABLE parent RENAME COLUMN name TO title", "ALTER TABLE parent RENAME title TO name"}},
	{"add a column", []string{"ALTER TABLE parent ADD COLUMN extra DEFAULT 7"}},
	{"drop a column", []string{"ALTER TABLE parent DROP COLUMN name"}},
	{"drop", []string{"DROP TABLE child", "DROP TABLE parent"}},
	{"drop if exists", []string{"DROP TABLE IF EXISTS child", "DROP TABLE IF EXISTS nobody"}},
	{"drop and create anew", []string{"DROP TABLE child", "CREATE TABLE child (a)"}},
	{"rebuild", []string{"CREATE TABLE new_parent (id INTEGER PRIMARY KEY, name, extra)",
		"INSERT INTO new_parent SELECT id, name, 0 FROM parent", "DROP TABLE parent", "ALTER TABLE new_parent RENAME TO parent"}},
	{"drop a fence", []string{"DROP TRIGGER IF EXISTS coop_fence_parent_insert"}},
	{"invent a fence", []string{"CREATE TRIGGER coop_fence_nobody BEFORE INSERT ON parent BEGIN SELECT 1; END"}},
	{"drop coop_owner", []string{"DROP TABLE coop_owner"}},
	{"drop coop_owner, and go on", []string{"DROP TABLE coop_owner", "INSERT INTO parent (name) VALUES ('x')", "ALTER TABLE child RENAME TO kid"}},
	{"drop all", []string{"DROP TABLE child", "DROP TABLE coop_owner", "DROP TABLE parent", `DROP TABLE "odd ""name"`}},
	{"drop all and start over", []string{"DROP TABLE child", "DROP TABLE parent", `DROP TABLE "odd ""name"`, "DROP TABLE coop_owner",
		"CREATE TABLE parent (a)", "INSERT INTO parent VALUES (1)"}},
	{"analyze", []string{"CREATE INDEX i ON parent (name)", "ANALYZE", "REINDEX"}},
	{"temporary tables", []string{"CREATE TEMP TABLE parent (a)", "INSERT INTO temp.parent VALUES (1)", "CREATE TABLE n (a)",
		"ALTER TABLE temp.parent RENAME TO n2", "DROP TABLE n2"}},
}

// ways run statements in the ways in which programs do.
var ways = []struct {
	name string
	run  func(t *testing.T, db *sql.DB, statements []string)
}{
	{"each on its own", func(t *testing.T, db *sql.DB, statements []string) { mustExec(t, db, statements...) }},
	{"as one text", func(t *testing.T, db *sql.DB, statements []string) {
		mustExec(t, db, strings.Join(statements, "; /* next */\n"))
	}},
	{"as one text with a transaction", func(t *testing.T, db *sql.DB, statements []string) {
		mustExec(t, db, "BEGIN;"+strings.Join(statements, ";")+"; COMMIT")
	}},
	{"through Query", func(t *testing.T, db *sql.DB, statements []string) {
		for _, s := range statements {
			require.Empty(t, values(t, db, s))
		}
	}},
	{"prepared", func(t *testing.T, db *sql.DB, statements []string) {
		for _, s := range statements {
			st, err := db.Prepare(s)
			require.NoError(t, err, s)
			_, err = st.Exec()
			require.NoError(t, err, s)
			require.NoError(t, st.Close())
		}
	}},
	{"in a transaction", func(t *testing.T, db *sql.DB, statements []string) {
		tx, err := db.Begin()
		require.NoError(t, err)
		mustExec(t, tx, statements...)
		require.NoError(t, tx.Commit())
	}},
	{"in a deferred transaction and a savepoint", func(t *testing.T, db *sql.DB, statements []string) {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		for _, s := range slices.Concat([]string{"BEGIN DEFERRED", "SAVEPOINT a"}, statements, []string{"RELEASE a", "END"}) {
			_, err := conn.ExecContext(t.Context(), s)
			require.NoError(t, err, s)
		}
	}},
	{"in a bare savepoint", func(t *testing.T, db *sql.DB, statements []string) {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		for _, s := range slices.Concat([]string{"SAVEPOINT a"}, statements, []string{"RELEASE a"}) {
			_, err := conn.ExecContext(t.Context(), s)
			require.NoError(t, err, s)
		}
	}},
	{"in Write", func(t *testing.T, db *sql.DB, statements []string) {
		require.NoError(t, storeOf(t, db).Write(t.Context(), func(tx coopsqlite.DBTX) error { return execAll(t.Context(), tx, statements) }))
	}},
	{"in Bulk", func(t *testing.T, db *sql.DB, statements []string) {
		tables := []string{"parent", "child"}
		require.NoError(t, storeOf(t, db).Bulk(t.Context(), tables, func(tx coopsqlite.DBTX) error { return execAll(t.Context(), tx, statements) }))
	}},
}

func execAll(ctx context.Context, tx coopsqlite.DBTX, statements []string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// family makes the tables that ddl changes.
var family = []string{
	"CREATE TABLE parent (id INTEGER PRIMARY KEY, name)",
	"CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES parent ON DELETE CASCADE)",
	`CREATE TABLE "odd ""name" (id INTEGER PRIMARY KEY, name)`,
	"INSERT INTO parent VALUES (1, 'a'), (2, 'b')", "INSERT INTO child VALUES (1, 1), (2, 2)", `INSERT INTO "odd ""name" VALUES (1, 'a')`,
}

func TestEveryTableIsFencedAfterAnyDDL(t *testing.T) { testEveryDDL(t, nil) }

// A user's authorizer takes the place of the driver's without a word.
func TestEveryTableIsFencedUnderAnAuthorizerOfTheUsers(t *testing.T) {
	testEveryDDL(t, func(c *sqlite3.SQLiteConn) error {
		c.RegisterAuthorizer(func(int, string, string, string) int { return sqlite3.SQLITE_OK })
		return nil
	})
}

func testEveryDDL(t *testing.T, hook func(*sqlite3.SQLiteConn) error) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			for _, d := range ddl {
				t.Run(d.name, func(t *testing.T) {
					path := newPath(t)
					connector, err := coopsqlite.NewConnector(path+"?_synchronous=OFF", &coopsqlite.Options{ConnectHook: hook})
					require.NoError(t, err)
					db := sql.OpenDB(connector)
					defer db.Close()
					db.SetMaxOpenConns(1) // temporary tables belong to one connection
					mustExec(t, db, family...)
					way.run(t, db, d.statements)
					requireCovered(t, path)
				})
			}
		})
	}
}
