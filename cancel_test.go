package coopsqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// goroutines are those that run code of this package or of database/sql.
func goroutines() map[string]string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	found := map[string]string{}
	for s := range strings.SplitSeq(string(stacks), "\n\n") {
		ours := strings.Contains(s, "github.com/coopsqlite/coopsqlite.") || strings.Contains(s, "database/sql.")
		if ours && !strings.Contains(s, "testing.tRunner") {
			id, _, _ := strings.Cut(s, " [")
			found[id] = s
		}
	}
	return found
}

// requireNoGoroutineLeft checks that there are none but those of before, once
// the pools that were opened since are closed.
func requireNoGoroutineLeft(t testing.TB, before map[string]string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		left = nil
		for id, stack := range goroutines() {
			if _, old := before[id]; !old {
				left = append(left, stack)
			}
		}
		if left == nil {
			return
		}
	}
	require.Empty(t, left)
}

func TestWaitForALockEndsWithItsContextWhoeverHoldsIt(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name, mode, lock string
		run              func(context.Context, *sql.DB) error
	}{
		{"begin, outsider writes", "WAL", "BEGIN IMMEDIATE", func(ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return tx.Rollback()
		}},
		{"autocommit, outsider writes", "WAL", "BEGIN IMMEDIATE", func(ctx context.Context, db *sql.DB) error {
			_, err := db.ExecContext(ctx, "INSERT INTO t(v) VALUES(1)")
			return err
		}},
		{"DDL, outsider writes", "DELETE", "BEGIN IMMEDIATE", func(ctx context.Context, db *sql.DB) error {
			_, err := db.ExecContext(ctx, "CREATE TABLE u(x)")
			return err
		}},
		{"returning, outsider writes", "DELETE", "BEGIN IMMEDIATE", func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, "INSERT INTO t(v) VALUES(1) RETURNING id").Scan(new(int))
		}},
		{"commit, outsider reads", "DELETE", "BEGIN; SELECT * FROM t", func(ctx context.Context, db *sql.DB) error {
			_, err := db.ExecContext(ctx, "INSERT INTO t(v) VALUES(1)")
			return err
		}},
		{"read, outsider excludes", "DELETE", "BEGIN EXCLUSIVE", func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(new(int))
		}},
		{"new connection, outsider excludes", "DELETE", "BEGIN EXCLUSIVE", func(ctx context.Context, db *sql.DB) error {
			db.SetMaxOpenConns(0)
			for range db.Stats().OpenConnections + 3 {
				c, err := db.Conn(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
			}
			return nil
		}},
		{"read-only transaction, outsider excludes", "DELETE", "BEGIN EXCLUSIVE", func(ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, readOnly)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			return tx.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(new(int))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_synchronous=OFF&_busy_timeout=60000&_journal_mode="+c.mode)
			mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
			outsider := start(t, roleOutsider, path)
			for _, s := range strings.Split(c.lock, "; ") {
				require.Empty(t, outsider.try(s))
			}
			begun := time.Now()
			err := c.run(within(t, 50*time.Millisecond), db)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(begun), soon)
			require.Empty(t, outsider.try("ROLLBACK"))
			require.NoError(t, c.run(ctx, db), "and works once the lock is free")
		})
	}
}

func TestBusyTimeoutSetBySQLBoundsTheWaitAndLeavesItCancellable(t *testing.T) {
	ctx := context.Background()
	for name, set := range map[string]func(c *sql.Conn, pragma string) error{
		"exec": func(c *sql.Conn, pragma string) error { _, err := c.ExecContext(ctx, pragma); return err },
		"query": func(c *sql.Conn, pragma string) error {
			return c.QueryRowContext(ctx, pragma).Scan(new(int))
		},
		"prepared": func(c *sql.Conn, pragma string) error {
			stmt, err := c.PrepareContext(ctx, pragma)
			if err != nil {
				return err
			}
			defer stmt.Close()
			return stmt.QueryRowContext(ctx).Scan(new(int))
		},
		"several": func(c *sql.Conn, pragma string) error {
			_, err := c.ExecContext(ctx, "PRAGMA cache_size=100; "+pragma+"; SELECT 1")
			return err
		},
		"mattn's connection": func(c *sql.Conn, pragma string) error {
			return c.Raw(func(dc any) error {
				source, _ := coopsqlite.SQLiteConn(dc)
				_, err := source.Exec(pragma, nil)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_journal_mode=WAL&_synchronous=OFF")
			mustExec(t, db, "CREATE TABLE t(v)")
			outsider := start(t, roleOutsider, path)
			require.Empty(t, outsider.try("BEGIN IMMEDIATE"))
			c := grab(t, db)

			require.NoError(t, set(c, "PRAGMA busy_timeout = 60000"))
			var ms int
			require.NoError(t, c.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&ms))
			require.Equal(t, 60000, ms)
			begun := time.Now()
			_, err := c.ExecContext(within(t, 50*time.Millisecond), "INSERT INTO t VALUES(1)")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(begun), soon)

			require.NoError(t, set(c, "PRAGMA busy_timeout(30)"))
			begun = time.Now()
			_, err = c.ExecContext(ctx, "INSERT INTO t VALUES(1)")
			require.ErrorIs(t, err, coopsqlite.ErrBusy)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(begun), soon)
			require.GreaterOrEqual(t, time.Since(begun), 25*time.Millisecond)
		})
	}
	t.Run("off", func(t *testing.T) {
		db := newStore(t, "")
		c := grab(t, db)
		for _, off := range []string{"PRAGMA busy_timeout=0", "PRAGMA busy_timeout=-5", "PRAGMA busy_timeout=99999999999"} {
			connExec(t, c, off)
			var ms int
			require.NoError(t, c.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&ms))
			require.Equal(t, 0, ms, "as SQLite reads %s", off)
		}
	})
}

// slow takes longer than any test waits, unless it is interrupted.
const slow = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 10000000000) SELECT max(n) FROM c"

func TestRunningStatementEndsWithItsContext(t *testing.T) {
	db := newStore(t, "")
	for name, run := range map[string]func(context.Context) error{
		"read":  func(ctx context.Context) error { return db.QueryRowContext(ctx, slow).Scan(new(int)) },
		"exec":  func(ctx context.Context) error { _, err := db.ExecContext(ctx, "SELECT 1; "+slow); return err },
		"write": func(ctx context.Context) error { _, err := db.ExecContext(ctx, endless); return err },
		"returning": func(ctx context.Context) error {
			return db.QueryRowContext(ctx, endless+" RETURNING id").Scan(new(int))
		},
		"create table as": func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "CREATE TABLE u AS "+slow)
			return err
		},
		"later rows": func(ctx context.Context) error {
			rows, err := db.QueryContext(ctx, "SELECT 1 UNION ALL SELECT * FROM ("+slow+")")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
			}
			return rows.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			err := run(within(t, 30*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(begun), soon)
			requireGateFree(t, db)
			require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE v IS NOT 'gate'"))
		})
	}
}

func TestCancellingAQueryEndsNoOtherStatement(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "")
	mustExec(t, db, "INSERT INTO t(v) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 3000) SELECT n FROM c")
	for i := range 200 {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		others, err := tx.QueryContext(ctx, "SELECT v FROM t ORDER BY id")
		require.NoError(t, err)
		require.True(t, others.Next())

		doomed, cancel := context.WithCancel(ctx)
		rows, err := tx.QueryContext(doomed, "SELECT a.v FROM t a, t b")
		require.NoError(t, err)
		require.True(t, rows.Next())
		// At any moment of what follows.
		timer := time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, cancel)
		_, err = tx.ExecContext(ctx, "INSERT INTO t(v) VALUES(?)", -i)
		require.NoError(t, err)
		for rows.Next() {
		}
		require.ErrorIs(t, rows.Err(), context.Canceled)
		_, err = tx.ExecContext(ctx, "UPDATE t SET v = v WHERE id = 1")
		require.NoError(t, err)

		n := 1
		for others.Next() {
			n++
		}
		require.NoError(t, others.Err())
		require.GreaterOrEqual(t, n, 3000)
		timer.Stop()
		cancel()
		require.NoError(t, tx.Commit())
	}
	require.Equal(t, "3200", value(t, db, "SELECT count(*) FROM t"))
}

func TestCancelledExecBesideOpenRowsEndsOnlyItself(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "")
	mustExec(t, db, "INSERT INTO t(v) VALUES(1), (2), (3)")
	c := grab(t, db)
	rows, err := c.QueryContext(ctx, "SELECT v FROM t ORDER BY id")
	require.NoError(t, err)
	require.True(t, rows.Next())
	_, err = c.ExecContext(within(t, 20*time.Millisecond), slow)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	n := 1
	for rows.Next() {
		n++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 3, n)
}

func TestContextThatHasEndedRunsNothing(t *testing.T) {
	db := newStore(t, "")
	c := grab(t, db)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, c.Raw(func(dc any) error {
		conn := dc.(interface {
			driver.ExecerContext
			driver.QueryerContext
			driver.ConnBeginTx
			driver.ConnPrepareContext
		})
		_, err := conn.ExecContext(ended, "INSERT INTO t(v) VALUES(1)", nil)
		require.ErrorIs(t, err, context.Canceled)
		_, err = conn.QueryContext(ended, "INSERT INTO t(v) VALUES(1) RETURNING id", nil)
		require.ErrorIs(t, err, context.Canceled)
		_, err = conn.BeginTx(ended, driver.TxOptions{})
		require.ErrorIs(t, err, context.Canceled)
		_, err = conn.PrepareContext(ended, "SELECT 1")
		require.ErrorIs(t, err, context.Canceled)
		return nil
	}))
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
}

func TestCancellationThatRacesBeginLeavesNoTransactionOpen(t *testing.T) {
	db := newStore(t, "")
	const races = 10_000
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range races / 8 {
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(time.Duration(rand.IntN(60))*time.Microsecond, cancel)
				tx, err := db.BeginTx(ctx, nil)
				if err == nil {
					_ = tx.Rollback()
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				timer.Stop()
				cancel()
			}
		})
	}
	wg.Wait()
	requirePoolInAutocommit(t, db)
	requireGateFree(t, db)
}

// requirePoolInAutocommit takes all connections of the pool and looks at them.
func requirePoolInAutocommit(t testing.TB, db *sql.DB) {
	t.Helper()
	var conns []*sql.Conn
	for range db.Stats().OpenConnections + 2 {
		c, err := db.Conn(context.Background())
		require.NoError(t, err)
		conns = append(conns, c)
		require.True(t, inAutocommit(t, c))
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
}

// SQLite asks whether to go on once more when a statement has ended, every few
// hundred statements.
func TestWriteThatWasCommittedIsNotCalledCancelled(t *testing.T) {
	cancel := func() {}
	connector, err := coopsqlite.NewConnector(newPath(t)+"?_journal_mode=WAL&_synchronous=OFF", &coopsqlite.Options{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		return c.RegisterFunc("cancelled", func(n int64) int64 {
			cancel()
			for range 10 { // what the context calls runs now
				runtime.Gosched()
			}
			return n
		}, false)
	}})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(1)
	mustExec(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
	for id := range 1500 {
		ctx, end := context.WithCancel(t.Context())
		cancel = end
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (cancelled(?))", id)
		end()
		landed := value(t, db, "SELECT count(*) FROM t WHERE id = ?", id) == "1"
		require.Equal(t, landed, err == nil, "insert %d: %v", id, err)
	}
}

func TestClosedPoolLeavesNoGoroutine(t *testing.T) {
	before := goroutines()
	db := newStore(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range 100 {
		_, err := db.ExecContext(ctx, "INSERT INTO t(v) VALUES(1)")
		require.NoError(t, err)
	}
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRowContext(ctx, "SELECT 1").Scan(new(int)))
	require.NoError(t, tx.Commit())
	require.NoError(t, db.Close())
	requireNoGoroutineLeft(t, before)
}
