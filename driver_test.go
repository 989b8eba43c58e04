package coopsqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

func TestSecondRegistrationDoesNotPanic(t *testing.T) {
	require.Contains(t, sql.Drivers(), "coopsqlite")
	require.NotPanics(t, coopsqlite.Register)
}

func TestErrorOfAnOwnedStoreComesFromOpen(t *testing.T) {
	path := newPath(t)
	open(t, path)
	_, err := sql.Open("coopsqlite", path)
	require.ErrorIs(t, err, coopsqlite.ErrConflict, "not from the first statement")
}

func TestSentinelsAreFoundInEveryError(t *testing.T) {
	conflict := error(&coopsqlite.ConflictError{Path: "p"})
	busy := error(&coopsqlite.BusyError{Path: "p"})
	require.ErrorIs(t, conflict, coopsqlite.ErrConflict)
	require.ErrorIs(t, busy, coopsqlite.ErrBusy)
	var sqliteErr sqlite3.Error
	require.ErrorAs(t, busy, &sqliteErr)
	require.Equal(t, sqlite3.ErrBusy, sqliteErr.Code)
	for i, a := range sentinels {
		for j, b := range sentinels {
			require.Equal(t, i == j, errors.Is(a, b), "%v, %v", a, b)
		}
	}
}

var sentinels = []error{
	coopsqlite.ErrConflict, coopsqlite.ErrStopped, coopsqlite.ErrFenced, coopsqlite.ErrSuperseded, coopsqlite.ErrBusy,
	coopsqlite.ErrTxAborted, coopsqlite.ErrNotCoop,
}

func TestDefaultsThatDifferFromMattn(t *testing.T) {
	db := open(t, newPath(t))
	require.Equal(t, "10000", value(t, db, "PRAGMA busy_timeout"))
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = queryAll(openPlain(t, "file:"+storeOf(t, db).Path()+"?_busy_timeout=1"), "BEGIN IMMEDIATE")
	require.ErrorContains(t, err, "database is locked", "transactions are immediate")
	require.NoError(t, tx.Rollback())

	db = open(t, newPath(t)+"?_txlock=deferred&_busy_timeout=250")
	require.Equal(t, "250", value(t, db, "PRAGMA busy_timeout"))
	tx, err = db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = queryAll(openPlain(t, "file:"+storeOf(t, db).Path()+"?_busy_timeout=1"), "BEGIN IMMEDIATE")
	require.NoError(t, err, "this one is deferred")
}

func TestMattnsParametersPassThrough(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL&_foreign_keys=on&_synchronous=NORMAL&_cache_size=-4000&_recursive_triggers=1&_secure_delete=FAST")
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "foreign_keys": "1", "synchronous": "1", "cache_size": "-4000", "recursive_triggers": "1", "secure_delete": "2",
	} {
		require.Equal(t, want, value(t, db, "PRAGMA "+pragma), pragma)
	}
}

func TestConnectionsWithoutAConnectorShareOneOwnership(t *testing.T) {
	path := newPath(t)
	d := &coopsqlite.Driver{}
	first, err := d.Open(path)
	require.NoError(t, err)
	second, err := d.Open(path)
	require.NoError(t, err)
	run := func(c driver.Conn, statement string) error {
		_, err := c.(driver.ExecerContext).ExecContext(context.Background(), statement, nil)
		return err
	}
	require.NoError(t, run(first, "CREATE TABLE t (a)"))
	require.NoError(t, run(second, "INSERT INTO t VALUES (1)"))
	require.True(t, start(t, roleOwner, path).opened.Conflict)
	require.NoError(t, first.Close())
	require.NoError(t, run(second, "INSERT INTO t VALUES (2)"))
	require.True(t, start(t, roleOwner, path).opened.Conflict, "the second holds it still")
	require.NoError(t, second.Close())
	require.Empty(t, start(t, roleOwner, path).opened.Err, "the last has given it back")
}

func TestOpeningTheEmptyNameTeachesTheDriverAndLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	probe, err := sql.Open("coopsqlite", "")
	require.NoError(t, err)
	d := probe.Driver()
	require.NoError(t, probe.Close())
	require.Empty(t, entries(t, dir))

	path := filepath.Join(dir, "app.db")
	connector, err := d.(driver.DriverContext).OpenConnector(path)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	mustExec(t, db, "CREATE TABLE t (a)")
	require.ErrorIs(t, connectorOf(t, path), coopsqlite.ErrConflict, "the wrapped pool owns the store")
	require.NoError(t, db.Close())
	require.NoError(t, open(t, path).Close(), "until it is closed")
}

func TestConnectHookRunsOnEveryConnectionOfAnOwnedStore(t *testing.T) {
	path := newPath(t)
	hooked := 0
	connector, err := coopsqlite.NewConnector(path+"?_journal_mode=WAL", &coopsqlite.Options{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		hooked++
		if err := c.RegisterFunc("double", func(n int) int { return 2 * n }, true); err != nil {
			return err
		}
		_, err := c.Exec("CREATE TABLE IF NOT EXISTS made_by_hook (a)", nil)
		return err
	}})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	require.Equal(t, "42", value(t, db, "SELECT double(21)"))
	first, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer first.Close()
	second, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer second.Close()
	_, err = second.ExecContext(context.Background(), "INSERT INTO made_by_hook VALUES (double(1))")
	require.NoError(t, err)
	require.Equal(t, 2, hooked)
	requireFenced(t, path, "made_by_hook")
}

func TestErrorOfTheConnectHookEndsTheOpen(t *testing.T) {
	path := newPath(t)
	trouble := errors.New("trouble")
	_, err := coopsqlite.NewConnector(path, &coopsqlite.Options{ConnectHook: func(*sqlite3.SQLiteConn) error { return trouble }})
	require.ErrorIs(t, err, trouble)
	require.Empty(t, entries(t, filepath.Dir(path)))
	require.NoError(t, open(t, path).Close(), "the lock is free again")
}

func TestDriverOfYourOwnHasAHookAndIsUsedByName(t *testing.T) {
	name := "coopsqlite-" + t.Name()
	sql.Register(name, &coopsqlite.Driver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		return c.RegisterFunc("answer", func() int { return 42 }, true)
	}})
	path := newPath(t)
	db, err := sql.Open(name, path)
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, "42", value(t, db, "SELECT answer()"))
	require.ErrorIs(t, connectorOf(t, path), coopsqlite.ErrConflict)
}

// The extension leaves a mark in a file, since it needs no header for that.
const extensionSource = `
#include <stdio.h>
#include <stdlib.h>
int sqlite3_extension_init(void *db, char **message, const void *api) {
  FILE *f = fopen(getenv("COOPSQLITE_TEST_MARK"), "a");
  if (!f) return 1;
  fputs("loaded\n", f);
  return fclose(f) ? 1 : 0;
}
`

func TestExtensionsAreLoadedIntoEveryConnection(t *testing.T) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no gcc here")
	}
	dir := t.TempDir()
	source, library, mark := filepath.Join(dir, "x.c"), filepath.Join(dir, "x.so"), filepath.Join(dir, "mark")
	require.NoError(t, os.WriteFile(source, []byte(extensionSource), 0o600))
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Setenv("COOPSQLITE_TEST_MARK", mark)

	connector, err := coopsqlite.NewConnector(filepath.Join(dir, "app.db"), &coopsqlite.Options{Extensions: []string{library}})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	for range 2 {
		c, err := db.Conn(context.Background())
		require.NoError(t, err)
		defer c.Close()
	}
	content, err := os.ReadFile(mark)
	require.NoError(t, err)
	require.Equal(t, "loaded\nloaded\n", string(content))

	_, err = coopsqlite.NewConnector(newPath(t), &coopsqlite.Options{Extensions: []string{filepath.Join(dir, "none.so")}})
	require.ErrorContains(t, err, "none.so")
}

func TestMattnsConnectionIsFoundBelowOurs(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
	c, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Raw(func(dc any) error {
		inner, ok := coopsqlite.SQLiteConn(dc)
		require.True(t, ok)
		require.Positive(t, inner.GetLimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH))
		again, ok := coopsqlite.SQLiteConn(inner)
		require.True(t, ok)
		require.Same(t, inner, again)

		// mattn's backup needs both connections.
		target, err := (&sqlite3.SQLiteDriver{}).Open(filepath.Join(filepath.Dir(path), "copy.db"))
		require.NoError(t, err)
		defer target.Close()
		backup, err := target.(*sqlite3.SQLiteConn).Backup("main", inner, "main")
		require.NoError(t, err)
		done, err := backup.Step(-1)
		require.NoError(t, err)
		require.True(t, done)
		return backup.Close()
	}))
	require.Equal(t, "1", value(t, openPlain(t, filepath.Join(filepath.Dir(path), "copy.db")), "SELECT count(*) FROM t"))
	_, ok := coopsqlite.SQLiteConn("something else")
	require.False(t, ok)
}

func TestStoreOfAnotherDriversPoolIsAnError(t *testing.T) {
	_, err := coopsqlite.StoreOf(openPlain(t, newPath(t)))
	require.ErrorIs(t, err, coopsqlite.ErrNotCoop)
}

func TestMetadataIsReadInSQL(t *testing.T) {
	db := open(t, newPath(t)+"?_coop_actor=cron")
	ctx := coopsqlite.WithMetadata(context.Background(), "actor", "alice", "request", "r1", "empty")
	ask := func(ctx context.Context, key string) any {
		var v any
		require.NoError(t, db.QueryRowContext(ctx, "SELECT coop_context(?)", key).Scan(&v))
		return v
	}
	require.Equal(t, "alice", ask(ctx, "actor"))
	require.Equal(t, "r1", ask(ctx, "request"))
	require.Equal(t, "", ask(ctx, "empty"))
	require.Nil(t, ask(ctx, "unknown"))
	require.Equal(t, "cron", ask(context.Background(), "actor"), "the default, and nothing of alice's is left")
	require.Nil(t, ask(context.Background(), "request"))
	require.IsType(t, int64(0), ask(coopsqlite.WithMetadata(ctx, "fence", "forged"), "fence"), "a reserved key")
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer tx.Rollback()
	var actor string
	require.NoError(t, tx.QueryRow("SELECT coop_context('actor')").Scan(&actor))
	require.Equal(t, "alice", actor, "of the context that began the transaction")
}

func TestErrorsOfSQLiteArriveAsMattns(t *testing.T) {
	path := newPath(t)
	ours, theirs := open(t, path), openPlain(t, newPath(t))
	for _, statement := range []string{"SELECT * FROM nowhere", "syntax error", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)"} {
		for _, db := range []*sql.DB{ours, theirs} {
			mustExec(t, db, "CREATE TABLE IF NOT EXISTS t (a PRIMARY KEY)", "INSERT OR IGNORE INTO t VALUES (1)")
		}
		_, got := ours.Exec(statement)
		_, want := theirs.Exec(statement)
		if strings.Contains(statement, ";") {
			require.ErrorContains(t, got, "statement 1 of the text")
			require.Equal(t, want.(sqlite3.Error).ExtendedCode, got.(sqlite3.Error).ExtendedCode)
			continue
		}
		require.Equal(t, want, got, statement)
	}
}

// mattn's driver returns the rows of what follows the last semicolon, even if
// that is only a comment.
func TestCommentBehindAQueryDoesNotHideItsRows(t *testing.T) {
	db := open(t, newPath(t))
	mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1); -- one")
	for range 2 { // found in the cache or not
		for _, query := range []string{"SELECT a FROM t; -- all of it", "SELECT a FROM t;\n/* all\nof it */ ;", "SELECT a FROM t -- all", "SELECT a FROM t;\n"} {
			require.Equal(t, []string{"1"}, values(t, db, query), query)
		}
	}
}
