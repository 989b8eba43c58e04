package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
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
	rows, err := db.QueryContext(context.Background(), "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('table','trigger','view')")
	require.NoError(t, err)
	defer rows.Close()
	var tables []string
	found := map[string]string{}
	guard := ""
	for rows.Next() {
		var kind, name, table, text string
		require.NoError(t, rows.Scan(&kind, &name, &table, &text))
		switch {
		case kind == "table":
			tables = append(tables, name)
		case strings.HasPrefix(name, "coop_fence_"):
			found[name] = table + "|" + text
		case name == "coop_guard":
			guard = text
		}
	}
	require.NoError(t, rows.Err())
	var wrong []string
	if want := "CREATE VIEW coop_guard AS " + permitArm + epochArm + " END"; len(tables) > 0 && guard != want {
		wrong = append(wrong, "coop_guard: "+guard)
	}
	for _, table := range tables {
		if strings.HasPrefix(table, "sqlite_") || slices.Contains(open, table) {
			continue
		}
		body := "SELECT * FROM coop_guard;"
		if table == "coop_owner" {
			body = permitArm + " END;"
		}
		for _, op := range []string{"INSERT", "UPDATE", "DELETE"} {
			name := "coop_fence_" + table + "_" + strings.ToLower(op)
			want := fmt.Sprintf("%s|CREATE TRIGGER %s BEFORE %s ON %s BEGIN %s END", table, quote(name), op, quote(table), body)
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

// A table that is created outside a transaction is never open for a moment.
func TestNewTablesAreNeverOpenToAnOutsider(t *testing.T) {
	const tables = 1000
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_synchronous=OFF&_journal_mode="+journal)
			mustExec(t, db, "CREATE TABLE source (a)", "INSERT INTO source VALUES (1)")
			outsider := hammer(t, path+"?_busy_timeout=0", blow{"INSERT INTO t%d VALUES (2)", tables})
			for i := range tables {
				switch i % 4 {
				case 0:
					mustExec(t, db, fmt.Sprintf("CREATE TABLE t%d (a)", i))
				case 1:
					mustExec(t, db, fmt.Sprintf("CREATE TABLE t%d AS SELECT a FROM source", i))
				case 2:
					mustExec(t, db, fmt.Sprintf("CREATE TABLE x (a); ALTER TABLE x RENAME TO t%d", i))
				case 3:
					require.Empty(t, values(t, db, fmt.Sprintf("CREATE TABLE IF NOT EXISTS t%d (a)", i)))
				}
				if old := i - 5; old >= 0 { // so that the schema stays small
					outsider.await("refused")
					mustExec(t, db, fmt.Sprintf("DROP TABLE t%d", old))
				}
			}
			for range 5 {
				outsider.await("refused")
			}
			require.Equal(t, blows{Refused: tables}, outsider.account())
		})
	}
}

func TestSchemaChangesThatAreRolledBackLeaveTheFencesComplete(t *testing.T) {
	change := []string{"DROP TABLE child", "ALTER TABLE parent RENAME TO elder", "CREATE TABLE parent (a)", "CREATE TABLE n (a)"}
	for name, statements := range map[string][]string{
		"transaction":           slices.Concat([]string{"BEGIN"}, change, []string{"ROLLBACK"}),
		"savepoint":             slices.Concat([]string{"SAVEPOINT a"}, change, []string{"ROLLBACK TO a", "RELEASE a"}),
		"savepoint, then more":  slices.Concat([]string{"BEGIN", "SAVEPOINT a"}, change, []string{"ROLLBACK TO a", "CREATE TABLE more (a)", "COMMIT"}),
		"savepoint, after more": slices.Concat([]string{"BEGIN", "CREATE TABLE more (a)", "SAVEPOINT a"}, change, []string{"ROLLBACK TO a", "COMMIT"}),
		"nested savepoints": slices.Concat([]string{"SAVEPOINT a", "CREATE TABLE more (a)", "SAVEPOINT b"}, change,
			[]string{"RELEASE b", "ROLLBACK TO a", "CREATE TABLE other (a)", "RELEASE a"}),
		"the fences themselves":      {"BEGIN", "SAVEPOINT a", "DROP TRIGGER coop_fence_parent_insert", "DROP TABLE coop_owner", "ROLLBACK TO a", "COMMIT"},
		"twice the same, once again": slices.Concat([]string{"BEGIN", "SAVEPOINT a"}, change, []string{"ROLLBACK TO a"}, change, []string{"ROLLBACK TO a"}, change, []string{"COMMIT"}),
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_coop_watch=0")
			mustExec(t, db, family...)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			for _, s := range statements {
				_, err := conn.ExecContext(t.Context(), s)
				require.NoError(t, err, s)
			}
			requireCovered(t, path)
		})
	}
}

// The schema version that a rolled-back call of Write has reached must not be
// taken for one at which the fences were complete.
func TestRolledBackWriteDoesNotHideAnOutsidersChange(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_watch=0&_coop_changes=*")
	mustExec(t, db, "CREATE TABLE t (a)")
	before := value(t, db, "PRAGMA schema_version")

	reached := ""
	for reached == "" { // until the two have shared a commit
		reached = failBesideAnother(t, storeOf(t, db))
	}
	require.Equal(t, before, value(t, db, "PRAGMA schema_version"))

	// An outsider opens the table, with as many changes as the call had made.
	outside := openPlain(t, path)
	mustExec(t, outside, "DROP TRIGGER coop_fence_t_insert")
	for i := 0; value(t, outside, "PRAGMA schema_version") != reached; i++ {
		require.Less(t, i, 100)
		mustExec(t, outside, "CREATE VIEW v"+fmt.Sprint(i)+" AS SELECT 1")
	}
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO t VALUES (2)")
	require.NoError(t, tx.Commit())
	require.Equal(t, 3, fences(t, path)["t"])
}

// failBesideAnother makes a call of Write change the schema and fail, and
// returns the schema version that it had reached if it was in the same
// transaction as another call, which succeeds.
func failBesideAnother(t *testing.T, store *coopsqlite.Store) (reached string) {
	t.Helper()
	transactions := store.Stats().Transactions
	inFirst := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		<-inFirst
		failed <- store.Write(t.Context(), func(tx coopsqlite.DBTX) error {
			if _, err := tx.ExecContext(t.Context(), "CREATE TABLE u (a)"); err != nil {
				return err
			}
			if err := tx.QueryRowContext(t.Context(), "PRAGMA schema_version").Scan(&reached); err != nil {
				return err
			}
			return errNo
		})
	}()
	require.NoError(t, store.Write(t.Context(), func(tx coopsqlite.DBTX) error {
		close(inFirst)
		for range 100 { // meanwhile the other one gets in line, most likely
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
				return err
			}
		}
		return nil
	}))
	require.ErrorIs(t, <-failed, errNo)
	if store.Stats().Transactions != transactions+1 {
		return ""
	}
	return reached
}

// errNo is what the functions of Write and Bulk return that want a rollback.
var errNo = errors.New("no")

func TestStatementsPreparedEarlierAreFencedWhenTheyRun(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	db.SetMaxOpenConns(1)
	mustExec(t, db, family...)
	prepare := func(query string) *sql.Stmt {
		st, err := db.Prepare(query)
		require.NoError(t, err)
		t.Cleanup(func() { st.Close() })
		return st
	}
	run := func(st *sql.Stmt) {
		_, err := st.Exec()
		require.NoError(t, err)
		requireCovered(t, path)
	}
	create := prepare("CREATE TABLE n (a)")
	perhaps := prepare("CREATE TABLE IF NOT EXISTS parent (a)") // does nothing, yet
	drop := prepare("DROP TABLE IF EXISTS child")
	rename := prepare(`ALTER TABLE "odd ""name" RENAME TO even`)
	dropOwner := prepare("DROP TABLE coop_owner")
	run(create)
	run(perhaps)
	run(drop)
	mustExec(t, db, "DROP TABLE parent")
	run(perhaps)
	require.Equal(t, "a", value(t, db, "SELECT group_concat(name) FROM pragma_table_info('parent')"), "created this time")
	run(rename)
	run(dropOwner)
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "DROP TABLE n")
	_, err = tx.Stmt(create).Exec()
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	requireCovered(t, path)
}

// The procedure of https://sqlite.org/lang_altertable.html#otheralter, as
// migration tools follow it.
func TestTableRebuiltWithForeignKeysOffIsFenced(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_foreign_keys=on")
	mustExec(t, db, family...)
	mustExec(t, db, "CREATE INDEX parent_name ON parent (name)", "CREATE VIEW names AS SELECT name FROM parent",
		"CREATE TRIGGER parent_guard AFTER DELETE ON parent BEGIN DELETE FROM child WHERE parent = old.id; END")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, s := range []string{
		"PRAGMA foreign_keys = OFF",
		"BEGIN",
		"CREATE TABLE new_parent (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
		"INSERT INTO new_parent SELECT * FROM parent",
		"DROP VIEW names",
		"DROP TABLE parent",
		"ALTER TABLE new_parent RENAME TO parent",
		"CREATE INDEX parent_name ON parent (name)",
		"CREATE TRIGGER parent_guard AFTER DELETE ON parent BEGIN DELETE FROM child WHERE parent = old.id; END",
		"CREATE VIEW names AS SELECT name FROM parent",
		"PRAGMA foreign_key_check",
		"COMMIT",
		"PRAGMA foreign_keys = ON",
	} {
		_, err := conn.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
	requireCovered(t, path)
	require.Equal(t, []string{"1", "2"}, values(t, db, "SELECT parent FROM child ORDER BY 1"), "no row was lost")
	mustExec(t, db, "DELETE FROM parent WHERE id = 1")
	require.Equal(t, "2", value(t, db, "SELECT parent FROM child"))
}

// Some tools empty a store by its schema table.
func TestSchemaEmptiedThroughWritableSchema(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	db.SetMaxOpenConns(1)
	mustExec(t, db, family...)
	mustExec(t, db, "PRAGMA writable_schema = 1", "DELETE FROM sqlite_master", "PRAGMA writable_schema = 0", "VACUUM")
	require.Equal(t, "ok", value(t, db, "PRAGMA integrity_check"))
	mustExec(t, db, family...)
	requireCovered(t, path)
	require.Equal(t, "1", value(t, db, "SELECT epoch FROM coop_owner"))
}

// Test suites and migrators empty every table there is.
func TestEmptyingEveryTableLeavesTheOwnerItsStore(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, family...)
	empty := func(run func(statement string)) {
		for _, table := range values(t, db, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
			run("DELETE FROM " + quote(table))
		}
	}
	empty(func(s string) { mustExec(t, db, s) })
	mustExec(t, db, "INSERT INTO parent VALUES (1, 'a')")
	tx, err := db.Begin()
	require.NoError(t, err)
	empty(func(s string) { mustExec(t, tx, s) })
	mustExec(t, tx, "INSERT INTO parent VALUES (2, 'b')")
	require.NoError(t, tx.Commit())
	mustExec(t, db, "INSERT INTO parent VALUES (3, 'c')")
	require.Equal(t, []string{"2", "3"}, values(t, db, "SELECT id FROM parent"))
	requireCovered(t, path)
	require.Equal(t, "1", value(t, db, "SELECT epoch FROM coop_owner"))
	require.NoError(t, db.Close())
	require.EqualValues(t, 2, storeOf(t, open(t, path)).Epoch())
}

func TestVacuumAndPragmasKeepTheFences(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_watch=0")
	db.SetMaxOpenConns(1)
	mustExec(t, db, family...)
	mustExec(t, db, "VACUUM", "PRAGMA auto_vacuum = FULL", "VACUUM", "PRAGMA journal_mode = WAL", "PRAGMA user_version = 7",
		"PRAGMA optimize", "PRAGMA wal_checkpoint(TRUNCATE)", "CREATE TABLE n (a)", "PRAGMA journal_mode = DELETE", "DROP TABLE n")
	requireCovered(t, path)
	require.Equal(t, "7", value(t, db, "PRAGMA user_version"))
}

// SQLite looks through all triggers when a table is renamed or loses a column.
func TestOutsiderCannotRenameAFencedTable(t *testing.T) {
	path := newPath(t)
	mustExec(t, open(t, path), family...)
	outside := openPlain(t, path)
	for _, s := range []string{"ALTER TABLE child RENAME TO kid", "ALTER TABLE child RENAME COLUMN parent TO mother", "ALTER TABLE parent DROP COLUMN name"} {
		_, err := outside.Exec(s)
		require.ErrorContains(t, err, "error in trigger coop_fence_", s)
		require.ErrorContains(t, err, "no such function: coop_", s)
	}
	requireCovered(t, path)
}
