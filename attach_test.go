package coopsqlite_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// attach opens a store of its own and attaches the one at path as b.
func attach(t *testing.T, path string) *sql.DB {
	t.Helper()
	db := open(t, newPath(t))
	db.SetMaxOpenConns(1) // ATTACH is one connection's
	mustExec(t, db, "CREATE TABLE own (a)")
	_, err := db.Exec("ATTACH ? AS b", path)
	require.NoError(t, err)
	return db
}

// writesToB change the attached store, each in a way of its own.
var writesToB = []string{
	"INSERT INTO b.t VALUES (2)", "UPDATE b.t SET a = 2", "DELETE FROM b.t", "REPLACE INTO b.t VALUES (3)",
	"INSERT INTO t VALUES (2)", // there is no other t
	"INSERT INTO b.t SELECT a FROM own", "WITH x AS (SELECT 1) INSERT INTO b.t SELECT * FROM x",
	"DELETE FROM b.coop_owner", "UPDATE b.coop_owner SET epoch = 9",
	"CREATE TABLE b.u (a)", "CREATE TABLE IF NOT EXISTS b.u (a)", "CREATE TABLE b.u AS SELECT 1", "DROP TABLE b.t", "DROP TABLE t",
	"ALTER TABLE b.t RENAME TO x", "ALTER TABLE b.t ADD COLUMN c", "ALTER TABLE b.t RENAME COLUMN a TO z", "DROP TABLE b.coop_owner",
	"CREATE INDEX b.i ON t (a)", "CREATE VIEW b.v AS SELECT 1", "DROP TRIGGER b.coop_fence_t_insert",
	"CREATE TRIGGER b.x AFTER INSERT ON t BEGIN SELECT 1; END", "CREATE VIRTUAL TABLE b.r USING rtree(id, x, y)",
	"REINDEX b.t", "ANALYZE b", "VACUUM b", "PRAGMA b.user_version = 7", "PRAGMA b.application_id = 7", "PRAGMA b.schema_version = 700",
	"PRAGMA b.journal_mode = WAL",
}

func TestOwningOneStoreGivesNoRightToWriteAnother(t *testing.T) {
	for _, owner := range []string{"another process", "nobody now", "another pool of this process"} {
		t.Run(owner, func(t *testing.T) {
			path := newPath(t)
			b := open(t, path)
			mustExec(t, b, "CREATE TABLE t (a)", "CREATE INDEX t_a ON t (a)", "INSERT INTO t VALUES (1)")
			if owner != "another pool of this process" {
				require.NoError(t, b.Close())
			}
			if owner == "another process" {
				require.Empty(t, start(t, roleOwner, path).opened.Err)
			}
			outside := openPlain(t, "file:"+escapePath(path)+"?mode=ro")
			state := func() []string {
				return append(values(t, outside, "SELECT * FROM coop_owner, t"), values(t, outside,
					"SELECT group_concat(name) || schema_version || user_version || application_id || journal_mode FROM sqlite_schema, pragma_schema_version, pragma_user_version, pragma_application_id, pragma_journal_mode")...)
			}
			before := state()
			db := attach(t, path)
			for _, w := range []struct {
				name string
				run  func(statement string) error
			}{
				{"autocommit", func(s string) error { _, err := db.Exec(s); return err }},
				{"Query", func(s string) error { _, err := queryAll(db, s); return err }},
				{"prepared", func(s string) error {
					st, err := db.Prepare(s)
					if err != nil {
						return err
					}
					defer st.Close()
					_, err = st.Exec()
					return err
				}},
				{"transaction", func(s string) error {
					tx, err := db.Begin()
					require.NoError(t, err)
					defer tx.Rollback()
					_, err = tx.Exec(s)
					return err
				}},
				{"RETURNING", func(s string) error {
					if fields := strings.Fields(s); fields[1] != "INTO" && fields[0] != "UPDATE" {
						return coopsqlite.ErrFenced
					}
					_, err := queryAll(db, s+" RETURNING 1")
					return err
				}},
			} {
				for _, s := range writesToB {
					require.ErrorIs(t, w.run(s), coopsqlite.ErrFenced, "%s: %s", w.name, s)
				}
			}
			require.Equal(t, before, state())
			require.Equal(t, "1", value(t, db, "SELECT a FROM b.t"), "reading is free")
			mustExec(t, db, "INSERT INTO own SELECT a FROM b.t", "CREATE TABLE copy AS SELECT * FROM b.t", "DETACH b")
			require.Equal(t, "1", value(t, db, "SELECT a FROM copy"))
		})
	}
}

// The error says which store it is, and what to do instead.
func TestRefusalOfAnAttachedStoreNamesIt(t *testing.T) {
	path := newPath(t)
	mustExec(t, open(t, path), "CREATE TABLE t (a)")
	_, err := attach(t, path).Exec("CREATE TABLE b.u (a)")
	require.ErrorIs(t, err, coopsqlite.ErrFenced)
	require.ErrorContains(t, err, `"b"`)
	require.ErrorContains(t, err, "sql.DB that owns it")
}

func TestAttachedFilesWithoutAnOwnerStayWritable(t *testing.T) {
	path := newPath(t)
	mustExec(t, openPlain(t, path), "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
	db := attach(t, path)
	for _, s := range writesToB {
		if strings.Contains(s, "coop_") {
			continue
		}
		db := attach(t, path)
		mustExec(t, db, s)
		require.NoError(t, db.Close())
		os := openPlain(t, path)
		mustExec(t, os, "DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS x", "DROP TABLE IF EXISTS r", "DROP TABLE IF EXISTS u",
			"DROP VIEW IF EXISTS v", "CREATE TABLE t (a)", "PRAGMA journal_mode = DELETE")
		require.NoError(t, os.Close())
	}
	mustExec(t, db, "ATTACH ':memory:' AS scratch", "CREATE TABLE scratch.s (a)", "INSERT INTO scratch.s VALUES (1)", "DROP TABLE scratch.s")
	require.Equal(t, "0", value(t, openPlain(t, path), "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'coop%'"), "it gets no fences either")
	require.NoError(t, db.Close())
}

// A statement that was allowed when it was prepared, or when the store was
// attached, is judged by what the store is when it runs.
func TestAttachedStoreThatGetsAnOwnerIsLeftAlone(t *testing.T) {
	path := newPath(t)
	mustExec(t, openPlain(t, path), "CREATE TABLE t (a)")
	db := attach(t, path)
	mustExec(t, db, "INSERT INTO b.t VALUES (1)")
	insert, err := db.Prepare("INSERT INTO b.t VALUES (2)")
	require.NoError(t, err)
	defer insert.Close()
	create, err := db.Prepare("CREATE TABLE b.u (a)")
	require.NoError(t, err)
	defer create.Close()

	b := start(t, roleOwner, path)
	require.Empty(t, b.opened.Err)
	_, err = create.Exec()
	require.ErrorIs(t, err, coopsqlite.ErrFenced)
	_, err = insert.Exec()
	require.ErrorIs(t, err, coopsqlite.ErrFenced)
	require.Equal(t, "1", value(t, db, "SELECT a FROM b.t"))
}

// A temporary trigger writes wherever its names lead.
func TestTemporaryTriggerDoesNotReachAnAttachedStore(t *testing.T) {
	path, ordinary := newPath(t), newPath(t)
	mustExec(t, open(t, path), "CREATE TABLE t (a)")
	mustExec(t, openPlain(t, ordinary), "CREATE TABLE o (a)")
	db := attach(t, path)
	_, err := db.Exec("ATTACH ? AS c", ordinary)
	require.NoError(t, err)
	mustExec(t, db, "CREATE TEMP TRIGGER x AFTER INSERT ON main.own BEGIN INSERT INTO t VALUES (new.a); INSERT INTO o VALUES (new.a); END")
	_, err = db.Exec("INSERT INTO own VALUES (1)")
	require.ErrorIs(t, err, coopsqlite.ErrFenced)
	mustExec(t, db, "DROP TRIGGER x", "CREATE TEMP TRIGGER x AFTER INSERT ON main.own BEGIN INSERT INTO o VALUES (new.a); END", "INSERT INTO own VALUES (1)")
	require.Equal(t, "1", value(t, db, "SELECT a FROM c.o"))
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM b.t"))
}

func TestAttachingLeavesTheFencesComplete(t *testing.T) {
	path, other := newPath(t), newPath(t)
	db := open(t, path+"?_coop_watch=0")
	db.SetMaxOpenConns(1)
	mustExec(t, db, family...)
	_, err := db.Exec("ATTACH ? AS b", other)
	require.NoError(t, err)
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "CREATE TABLE b.t (a)", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)", "INSERT INTO b.t SELECT * FROM main.t", "DROP TABLE main.child")
	require.NoError(t, tx.Commit())
	requireCovered(t, path)
	mustExec(t, db, "CREATE TABLE moved AS SELECT * FROM b.t", "DROP TABLE b.t", "DETACH b", "DROP TABLE t", "CREATE TABLE t (b)")
	requireCovered(t, path)
	require.Equal(t, "1", value(t, db, "SELECT a FROM moved"))
}

// The statement means a table of the store when it is prepared, and one of the
// attached store when it runs.
func TestPreparedNameThatMovesToAnAttachedStoreIsRefused(t *testing.T) {
	path := newPath(t)
	mustExec(t, open(t, path), "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
	db := attach(t, path)
	mustExec(t, db, "CREATE TABLE main.t (a)")
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	for _, statement := range []string{"DROP TABLE t", "ALTER TABLE t ADD COLUMN c", "CREATE INDEX IF NOT EXISTS t_a ON t (a)"} {
		st, err := conn.PrepareContext(t.Context(), statement)
		require.NoError(t, err)
		defer st.Close()
		_, err = conn.ExecContext(t.Context(), "ALTER TABLE main.t RENAME TO away")
		require.NoError(t, err)
		_, err = st.ExecContext(t.Context())
		require.Error(t, err, statement)
		_, err = conn.ExecContext(t.Context(), "ALTER TABLE main.away RENAME TO t")
		require.NoError(t, err)
	}
	require.Equal(t, "CREATE TABLE t (a)", value(t, openPlain(t, path), "SELECT group_concat(sql) FROM sqlite_schema WHERE type IN ('table', 'index') AND name LIKE 't%'"))
}

// In a transaction the driver's statements do not ask the fence for every row;
// they must not take that along into another store.
func TestNameThatMovesToAnAttachedStoreInATransactionIsRefused(t *testing.T) {
	for name, move := range map[string][]string{
		"the table is renamed":          {"ALTER TABLE main.t RENAME TO away"},
		"the table is dropped":          {"DROP TABLE main.t"},
		"a temporary trigger is made":   {"CREATE TEMP TRIGGER x AFTER INSERT ON main.t BEGIN INSERT INTO other VALUES (new.a); END"},
		"a temporary view takes a name": {"CREATE TEMP VIEW t AS SELECT 1 AS a", "CREATE TEMP TRIGGER x INSTEAD OF INSERT ON temp.t BEGIN INSERT INTO other VALUES (new.a); END"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			b := open(t, path)
			mustExec(t, b, "CREATE TABLE t (a)", "CREATE TABLE other (a)")
			db := attach(t, path)
			mustExec(t, db, "CREATE TABLE main.t (a)")
			tx, err := db.Begin()
			require.NoError(t, err)
			defer tx.Rollback()
			insert, err := tx.Prepare("INSERT INTO t VALUES (?)")
			require.NoError(t, err)
			for i := range 3 {
				_, err = insert.Exec(i)
				require.NoError(t, err)
				mustExec(t, tx, "INSERT INTO t VALUES (9)")
			}
			mustExec(t, tx, move...)
			_, err = insert.Exec(7)
			require.ErrorIs(t, err, coopsqlite.ErrFenced)
			_, err = tx.Exec("INSERT INTO t VALUES (9)")
			require.ErrorIs(t, err, coopsqlite.ErrFenced)
			require.NoError(t, tx.Commit())
			require.Equal(t, "0", value(t, b, "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM other)"))
		})
	}
}
