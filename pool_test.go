package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// burst has n goroutines use a connection each, all at once.
func burst(t *testing.T, db *sql.DB, n int, use func(*sql.Conn) error) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for range n {
		done.Go(func() {
			c, err := db.Conn(context.Background())
			ready.Done()
			if !assertNoError(t, err) {
				return
			}
			defer c.Close()
			ready.Wait()
			assertNoError(t, use(c))
		})
	}
	done.Wait()
}

func readOne(c *sql.Conn) error {
	return c.QueryRowContext(context.Background(), "SELECT count(*) FROM t").Scan(new(int))
}

func TestBurstsReuseThePhysicalConnectionsThatDatabaseSQLDropped(t *testing.T) {
	db := newStore(t, "") // database/sql keeps two
	store := storeOf(t, db)
	const n = 20
	for range 10 {
		burst(t, db, n, readOne)
	}
	stats := store.Stats()
	require.LessOrEqual(t, stats.Opened, int64(n+1))
	require.Positive(t, stats.Parked)
	require.LessOrEqual(t, db.Stats().Idle, 2)
}

func TestParkedConnectionsAreBounded(t *testing.T) {
	db := newStore(t, "")
	burst(t, db, 80, readOne)
	require.LessOrEqual(t, storeOf(t, db).Stats().Parked, int64(64))
}

func TestParkedConnectionsThatNobodyWantsAreClosedButForTwo(t *testing.T) {
	db := newStore(t, "")
	store := storeOf(t, db)
	burst(t, db, 20, readOne)
	parked := store.Stats().Parked
	require.Greater(t, parked, int64(2))
	coopsqlite.TrimParked(store)
	require.Equal(t, parked, store.Stats().Parked, "they have not been there for a whole round")
	coopsqlite.TrimParked(store)
	require.Equal(t, int64(2), store.Stats().Parked)
	coopsqlite.TrimParked(store)
	require.Equal(t, int64(2), store.Stats().Parked)
}

// counted is a context that counts who waits for its end.
type counted struct {
	context.Context
	ended   chan struct{}
	waiting atomic.Int64
}

func (c *counted) Done() <-chan struct{} { return c.ended }

// AfterFunc is what context.AfterFunc asks for.
func (c *counted) AfterFunc(func()) (stop func() bool) {
	c.waiting.Add(1)
	return sync.OnceValue(func() bool { c.waiting.Add(-1); return true })
}

func TestConnectionKeepsNothingOfTheContextItWasOpenedWith(t *testing.T) {
	db := newStore(t, "")
	ctx := &counted{Context: t.Context(), ended: make(chan struct{})}
	opened := storeOf(t, db).Stats().Opened
	for range 3 {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		defer conn.Close()
	}
	require.Greater(t, storeOf(t, db).Stats().Opened, opened)
	require.Zero(t, ctx.waiting.Load())
}

func TestClosedPoolKeepsNoFileOpen(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("there is no /proc here")
	}
	db := newStore(t, "")
	path := storeOf(t, db).Path()
	burst(t, db, 10, readOne)
	require.Contains(t, openFiles(t), path)
	require.NoError(t, db.Close())
	require.NotContains(t, openFiles(t), path)
}

func openFiles(t *testing.T) string {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		name, _ := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		names = append(names, name)
	}
	return strings.Join(names, "\n")
}

func TestConnectionThatWasChangedIsNotParked(t *testing.T) {
	for change, trace := range map[string]string{
		"PRAGMA cache_size=77":         "SELECT cache_size = 77 FROM pragma_cache_size",
		"PRAGMA case_sensitive_like=1": "SELECT 'a' NOT LIKE 'A'",
		"ATTACH ':memory:' AS more":    "SELECT count(*) FROM pragma_database_list WHERE name = 'more'",
		"CREATE TEMP TABLE mine(x)":    "SELECT count(*) FROM sqlite_temp_schema",
		"PRAGMA busy_timeout=77":       "SELECT timeout = 77 FROM pragma_busy_timeout",
		"BEGIN; SELECT * FROM t":       "SELECT 0",
	} {
		t.Run(change, func(t *testing.T) {
			db := newStore(t, "")
			db.SetMaxIdleConns(-1) // database/sql drops each one after use
			opened := storeOf(t, db).Stats().Opened
			mustExec(t, db, change)
			require.Equal(t, "0", value(t, db, trace))
			require.Equal(t, opened+1, storeOf(t, db).Stats().Opened)
		})
	}
	t.Run("through mattn's connection", func(t *testing.T) {
		db := newStore(t, "")
		db.SetMaxIdleConns(-1)
		c := grab(t, db)
		require.NoError(t, c.Raw(func(dc any) error {
			source, _ := coopsqlite.SQLiteConn(dc)
			_, err := source.Exec("PRAGMA cache_size=77", nil)
			return err
		}))
		require.NoError(t, c.Close())
		require.Equal(t, "0", value(t, db, "SELECT cache_size = 77 FROM pragma_cache_size"))
	})
}

func TestConnectionThatWasOnlyAskedIsParked(t *testing.T) {
	db := newStore(t, "")
	db.SetMaxIdleConns(-1)
	opened := storeOf(t, db).Stats().Opened
	for _, question := range []string{"PRAGMA table_info(t)", "PRAGMA foreign_key_list('t')", "PRAGMA user_version", "PRAGMA integrity_check(1)",
		"PRAGMA wal_checkpoint(PASSIVE)", "SELECT * FROM pragma_table_info('t')", "EXPLAIN SELECT 1", "INSERT INTO t(v) VALUES(1)", "CREATE TABLE u(x)"} {
		_, err := queryAll(db, question)
		require.NoError(t, err, question)
		require.Equal(t, opened, storeOf(t, db).Stats().Opened, question)
	}
}

func TestSettingsOfTheDSNHoldOnEveryConnection(t *testing.T) {
	db := newStore(t, "&_foreign_keys=on&_busy_timeout=4321&_cache_size=-777")
	burst(t, db, 8, func(c *sql.Conn) error {
		for pragma, want := range map[string]int{"foreign_keys": 1, "busy_timeout": 4321, "cache_size": -777, "synchronous": 0} {
			var got int
			if err := c.QueryRowContext(context.Background(), "PRAGMA "+pragma).Scan(&got); err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("%s is %d", pragma, got)
			}
		}
		return nil
	})
}

func TestNextUserOfAConnectionSeesNothingOfTheLast(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "")
	db.SetMaxOpenConns(1)
	const ask = "SELECT coop_context('actor')"
	var actor sql.NullString
	require.NoError(t, db.QueryRowContext(coopsqlite.WithMetadata(ctx, "actor", "alice"), ask).Scan(&actor))
	require.Equal(t, "alice", actor.String)
	require.NoError(t, db.QueryRowContext(ctx, ask).Scan(&actor))
	require.False(t, actor.Valid)
	tx, err := db.BeginTx(coopsqlite.WithMetadata(ctx, "actor", "bob"), nil)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(ask).Scan(&actor))
	require.Equal(t, "bob", actor.String)
	require.NoError(t, tx.Rollback())
	require.NoError(t, db.QueryRowContext(ctx, ask).Scan(&actor))
	require.False(t, actor.Valid)
}

func TestConnectHookRunsOnEveryConnectionAndMayWrite(t *testing.T) {
	hooks := 0
	connector, err := coopsqlite.NewConnector(newPath(t)+"?_journal_mode=WAL&_synchronous=OFF", &coopsqlite.Options{
		ConnectHook: func(c *sqlite3.SQLiteConn) error {
			hooks++
			_, err := c.Exec("CREATE TABLE IF NOT EXISTS t(v); PRAGMA busy_timeout=1234", nil)
			return err
		}})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	require.Equal(t, "1234", value(t, db, "PRAGMA busy_timeout"))
	burst(t, db, 3, readOne)
	require.EqualValues(t, storeOf(t, db).Stats().Opened, hooks)
	requireCovered(t, storeOf(t, db).Path())
}

func TestFailingConnectHookIsTheErrorOfOpen(t *testing.T) {
	path := newPath(t)
	_, err := coopsqlite.NewConnector(path, &coopsqlite.Options{
		ConnectHook: func(c *sqlite3.SQLiteConn) error { return fmt.Errorf("no, thank you") }})
	require.ErrorContains(t, err, "no, thank you")
	mustExec(t, open(t, path), "CREATE TABLE t(v)") // nobody owns it
}

func TestDDLOnFTS5TablesWorksBesideCachedStatements(t *testing.T) {
	db := newStore(t, "")
	if value(t, db, "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'") == "0" {
		t.Skip("this build of SQLite has no FTS5; run with -tags sqlite_fts5")
	}
	ctx := context.Background()
	db.SetMaxOpenConns(1)
	for range 3 {
		mustExec(t, db, "CREATE VIRTUAL TABLE f USING fts5(a, b)", "INSERT INTO f VALUES('one two', 'three')")
		stmt, err := db.PrepareContext(ctx, "SELECT count(*) FROM f WHERE f MATCH ?")
		require.NoError(t, err)
		var n int
		require.NoError(t, stmt.QueryRow("two").Scan(&n))
		require.Equal(t, 1, n)
		insert, err := db.PrepareContext(ctx, "INSERT INTO f VALUES(?, ?)")
		require.NoError(t, err)
		_, err = insert.Exec("four", "five")
		require.NoError(t, err)
		mustExec(t, db, "INSERT INTO f(f) VALUES('optimize')", "INSERT INTO f(f) VALUES('rebuild')", "ALTER TABLE f RENAME TO g", "DROP TABLE g")
		require.NoError(t, stmt.Close())
		require.NoError(t, insert.Close())
	}
}

func TestDatabaseInMemoryEndsWithItsConnection(t *testing.T) {
	ctx := context.Background()
	for _, driver := range []string{"sqlite3", "coopsqlite"} {
		db, err := sql.Open(driver, ":memory:")
		require.NoError(t, err)
		db.SetMaxIdleConns(0)
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, "CREATE TABLE t (a)")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.Equal(t, "0", value(t, db, "SELECT count(*) FROM sqlite_schema"), driver)
		require.NoError(t, db.Close())
	}
}

func TestStatementLeftOpenDoesNotReachTheNextUserOfItsConnection(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "")
	path := storeOf(t, db).Path()
	db.SetMaxIdleConns(-1)
	opened := storeOf(t, db).Stats().Opened
	for range 3 {
		c := grab(t, db)
		// database/sql forgets about statements that belong to a sql.Conn.
		for _, query := range []string{"SELECT v FROM t", "INSERT INTO t(v) VALUES(1)", "INSERT INTO t(v) VALUES(1) RETURNING id"} {
			stmt, err := c.PrepareContext(ctx, query)
			require.NoError(t, err)
			rows, err := stmt.Query()
			require.NoError(t, err)
			require.NoError(t, rows.Close())
			t.Cleanup(func() { stmt.Close() })
		}
		require.NoError(t, c.Close())
	}
	require.Equal(t, opened+2, storeOf(t, db).Stats().Opened, "none of them was parked")
	require.Equal(t, "6", value(t, db, "SELECT count(*) FROM t"))
	require.NoError(t, db.Close())
	if _, err := os.Stat("/proc/self/fd"); err == nil {
		require.NotContains(t, openFiles(t), path)
	}
}

func TestConnectionBeingOpenedSurvivesTheClosingOfItsPool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	first := open(t, path)
	mustExec(t, first, "CREATE TABLE t(v)")
	require.NoError(t, first.Close())
	for i := range 100 {
		db := open(t, path+"?_journal_mode=WAL&_coop_owner=shared&_coop_watch=1ms")
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() {
				for err := error(nil); err == nil; {
					_, err = db.Exec("INSERT INTO t VALUES(1)")
				}
			})
		}
		time.Sleep(time.Duration(i%10) * time.Millisecond) // no one moment is the dangerous one
		require.NoError(t, db.Close())
		done.Wait()
	}
}

func TestPoolsOfOneProcessComeAndGoConcurrently(t *testing.T) {
	path := newPath(t)
	for _, params := range []string{"?_coop_owner=process&_coop_watch=1ms", "?_coop_watch=1ms&_coop_wait=1m"} {
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() {
				for range 10 {
					db, err := sql.Open("coopsqlite", path+params)
					if !assertNoError(t, err) {
						return
					}
					_, err = db.Exec("CREATE TABLE IF NOT EXISTS t(v); INSERT INTO t VALUES(1)")
					assertNoError(t, err)
					assertNoError(t, db.Close())
				}
			})
		}
		done.Wait()
	}
	require.Equal(t, "160", value(t, open(t, path), "SELECT count(*) FROM t"))
}
