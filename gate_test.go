package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/internal/hint"
)

// A wait that ought to end at once, or after 50 ms, has this long on a loaded
// machine; the busy timeouts of the tests are far longer.
const soon = 5 * time.Second

// journalModes are those in which the locks of SQLite differ.
var journalModes = []string{"WAL", "DELETE"}

// inEachJournalMode opens a store with a table t(id INTEGER PRIMARY KEY, v).
func inEachJournalMode(t *testing.T, params string, test func(t *testing.T, db *sql.DB, path string)) {
	for _, mode := range journalModes {
		t.Run(mode, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_synchronous=OFF&_journal_mode="+mode+params)
			mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
			test(t, db, path)
		})
	}
}

// newStore opens a store in WAL mode with the same table.
func newStore(t testing.TB, params string) *sql.DB {
	t.Helper()
	db := open(t, newPath(t)+"?_journal_mode=WAL&_synchronous=OFF"+params)
	mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	return db
}

// awaitWaiters returns once n writers wait at the gate.
func awaitWaiters(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	store := storeOf(t, db)
	require.Eventually(t, func() bool { return store.Stats().Waiting == int64(n) }, patience, time.Millisecond)
}

// begin begins a transaction that the test's end rolls back.
func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// grab takes one connection out of the pool until the test's end.
func grab(t testing.TB, db *sql.DB) *sql.Conn {
	t.Helper()
	c, err := db.Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func connExec(t testing.TB, c *sql.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := c.ExecContext(context.Background(), s)
		require.NoError(t, err, s)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// requireGateFree writes once: whoever held the gate must have left it.
func requireGateFree(t testing.TB, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(within(t, patience), "INSERT INTO t(v) VALUES('gate')")
	require.NoError(t, err)
}

// here is the file and line of the caller, as BusyError tells the holder's.
func here(plus int) string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", file, line+plus)
}

func TestWritersPassTheGateInTheOrderTheyCame(t *testing.T) {
	db := newStore(t, "")
	holder := begin(t, db)
	var (
		mu    sync.Mutex
		order []int
		wg    sync.WaitGroup
	)
	const ordinary, urgent = 8, 3
	for i := range ordinary + urgent {
		ctx := context.Background()
		if i >= ordinary {
			ctx = hint.Urgent(ctx)
		}
		wg.Go(func() {
			tx, err := db.BeginTx(ctx, nil)
			if !assertNoError(t, err) {
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			assertNoError(t, tx.Commit())
		})
		awaitWaiters(t, db, i+1)
	}
	require.NoError(t, holder.Commit())
	wg.Wait()
	require.Equal(t, []int{8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7}, order, "urgent ones first, each lane in its order")
	require.EqualValues(t, 0, storeOf(t, db).Stats().Waiting)
}

// assertNoError is for goroutines, which must not end the test.
func assertNoError(t testing.TB, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

func TestBusyErrorNamesWhoHoldsTheGateAndSinceWhen(t *testing.T) {
	ctx := context.Background()
	for name, hold := range map[string]func(*testing.T, *sql.DB) string{
		"transaction": func(t *testing.T, db *sql.DB) string {
			begin(t, db)
			return "gate_test.go:"
		},
		"transaction begun here": func(t *testing.T, db *sql.DB) string {
			tx, err := db.Begin()
			require.NoError(t, err)
			t.Cleanup(func() { tx.Rollback() })
			return here(-3)
		},
		"rows of a RETURNING clause": func(t *testing.T, db *sql.DB) string {
			rows, err := db.Query("INSERT INTO t(v) VALUES(1), (2) RETURNING id")
			require.NoError(t, err)
			t.Cleanup(func() { rows.Close() })
			require.True(t, rows.Next())
			return here(-4)
		},
		"raw immediate transaction": func(t *testing.T, db *sql.DB) string {
			c := grab(t, db)
			_, err := c.ExecContext(ctx, "BEGIN IMMEDIATE")
			require.NoError(t, err)
			return here(-2)
		},
		"raw deferred transaction, at its first write": func(t *testing.T, db *sql.DB) string {
			c := grab(t, db)
			connExec(t, c, "BEGIN")
			requireGateFree(t, db)
			_, err := c.ExecContext(ctx, "INSERT INTO t(v) VALUES(1)")
			require.NoError(t, err)
			return here(-2)
		},
		"raw savepoint, at its first write": func(t *testing.T, db *sql.DB) string {
			c := grab(t, db)
			connExec(t, c, "SAVEPOINT s")
			requireGateFree(t, db)
			stmt, err := c.PrepareContext(ctx, "INSERT INTO t(v) VALUES(1)")
			require.NoError(t, err)
			_, err = stmt.Exec()
			require.NoError(t, err)
			return here(-2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := newStore(t, "&_busy_timeout=60000")
			before := time.Now()
			place := hold(t, db)
			after := time.Now()

			start := time.Now()
			_, err := db.ExecContext(within(t, 50*time.Millisecond), "INSERT INTO t(v) VALUES(1)")
			require.Less(t, time.Since(start), soon)
			var busy *coopsqlite.BusyError
			require.ErrorAs(t, err, &busy)
			require.Contains(t, busy.Holder, place)
			require.Contains(t, err.Error(), place)
			require.False(t, busy.Since.Before(before) || busy.Since.After(after), "%s is not when it began", busy.Since)
			require.GreaterOrEqual(t, busy.Waited, 20*time.Millisecond)
			require.Equal(t, storeOf(t, db).Path(), busy.Path)
			require.ErrorIs(t, err, coopsqlite.ErrBusy)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var sqlite sqlite3.Error
			require.ErrorAs(t, err, &sqlite)
			require.Equal(t, sqlite3.ErrBusy, sqlite.Code)
		})
	}
}

func TestWaitAtTheGateEndsWithItsContext(t *testing.T) {
	db := newStore(t, "&_busy_timeout=60000")
	begin(t, db)
	for name, write := range map[string]func(context.Context) error{
		"begin": func(ctx context.Context) error { _, err := db.BeginTx(ctx, nil); return err },
		"exec":  func(ctx context.Context) error { _, err := db.ExecContext(ctx, "DELETE FROM t"); return err },
		"returning": func(ctx context.Context) error {
			return db.QueryRowContext(ctx, "DELETE FROM t RETURNING id").Scan(new(int))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			failed := make(chan error)
			go func() { failed <- write(ctx) }()
			awaitWaiters(t, db, 1)
			cancel()
			select {
			case err := <-failed:
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, coopsqlite.ErrBusy)
			case <-time.After(soon):
				t.Fatal("still waiting")
			}
			awaitWaiters(t, db, 0)
		})
	}
}

func TestWaitAtTheGateEndsWithTheBusyTimeout(t *testing.T) {
	for _, timeout := range []int{0, 30} {
		t.Run(fmt.Sprint(timeout), func(t *testing.T) {
			db := newStore(t, fmt.Sprintf("&_busy_timeout=%d", timeout))
			begin(t, db)
			start := time.Now()
			_, err := db.Exec("INSERT INTO t(v) VALUES(1)")
			require.Less(t, time.Since(start), soon)
			require.GreaterOrEqual(t, time.Since(start), time.Duration(timeout)*time.Millisecond)
			var busy *coopsqlite.BusyError
			require.ErrorAs(t, err, &busy)
			require.NotEmpty(t, busy.Holder)
			require.False(t, errors.Is(err, context.DeadlineExceeded))
		})
	}
}

func TestCancelledWaiterLeavesTheQueueToTheOthers(t *testing.T) {
	db := newStore(t, "")
	holder := begin(t, db)
	ctx, cancel := context.WithCancel(context.Background())
	results := make([]chan error, 3)
	for i, ctx := range []context.Context{context.Background(), ctx, context.Background()} {
		results[i] = make(chan error, 1)
		go func() {
			_, err := db.ExecContext(ctx, "INSERT INTO t(v) VALUES(?)", i)
			results[i] <- err
		}()
		awaitWaiters(t, db, i+1)
	}
	cancel()
	require.ErrorIs(t, <-results[1], context.Canceled)
	require.NoError(t, holder.Rollback())
	require.NoError(t, <-results[0])
	require.NoError(t, <-results[2])
	require.Equal(t, []string{"0", "2"}, values(t, db, "SELECT v FROM t ORDER BY id"))
}

func TestRowsOfReturningHoldTheGateUntilTheyClose(t *testing.T) {
	inEachJournalMode(t, "", func(t *testing.T, db *sql.DB, path string) {
		rows, err := db.Query("INSERT INTO t(v) VALUES(1), (2), (3) RETURNING id")
		require.NoError(t, err)
		require.True(t, rows.Next())
		_, err = db.ExecContext(within(t, 20*time.Millisecond), "INSERT INTO t(v) VALUES(4)")
		require.ErrorIs(t, err, coopsqlite.ErrBusy)
		require.NoError(t, rows.Close())
		requireGateFree(t, db)
		require.Equal(t, "4", value(t, db, "SELECT count(*) FROM t"))
	})
}

func TestGateIsFreeAfterEveryKindOfEnd(t *testing.T) {
	ctx := context.Background()
	for name, hold := range map[string]func(t *testing.T, db *sql.DB){
		"commit":   func(t *testing.T, db *sql.DB) { require.NoError(t, begin(t, db).Commit()) },
		"rollback": func(t *testing.T, db *sql.DB) { require.NoError(t, begin(t, db).Rollback()) },
		"cancelled transaction": func(t *testing.T, db *sql.DB) {
			ctx, cancel := context.WithCancel(ctx)
			_, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			cancel()
		},
		"commit that fails": func(t *testing.T, db *sql.DB) {
			mustExec(t, db, "CREATE TABLE child(id REFERENCES t(id) DEFERRABLE INITIALLY DEFERRED)")
			tx := begin(t, db)
			mustExec(t, tx, "INSERT INTO child VALUES(77)")
			var e sqlite3.Error
			require.ErrorAs(t, tx.Commit(), &e)
			require.Equal(t, sqlite3.ErrConstraintForeignKey, e.ExtendedCode)
			require.Equal(t, "0", value(t, db, "SELECT count(*) FROM child"))
		},
		"statement that fails": func(t *testing.T, db *sql.DB) {
			mustExec(t, db, "INSERT INTO t(id) VALUES(1)")
			_, err := db.Exec("INSERT INTO t(id) VALUES(1)")
			require.Error(t, err)
		},
		"DDL that fails": func(t *testing.T, db *sql.DB) {
			_, err := db.Exec("CREATE TABLE t(x)")
			require.Error(t, err)
		},
		"RETURNING that fails": func(t *testing.T, db *sql.DB) {
			mustExec(t, db, "INSERT INTO t(id) VALUES(1)")
			require.Error(t, db.QueryRow("INSERT INTO t(id) VALUES(1) RETURNING id").Scan(new(int)))
		},
		"RETURNING of which one row is read": func(t *testing.T, db *sql.DB) {
			require.NoError(t, db.QueryRow("INSERT INTO t(id) VALUES(1), (2) RETURNING id").Scan(new(int)))
		},
		"raw transaction left open": func(t *testing.T, db *sql.DB) {
			c := grab(t, db)
			connExec(t, c, "BEGIN IMMEDIATE", "INSERT INTO t(v) VALUES('left')")
			require.NoError(t, c.Close())
			require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
		},
		"raw savepoint released": func(t *testing.T, db *sql.DB) {
			connExec(t, grab(t, db), "SAVEPOINT a", "INSERT INTO t(v) VALUES(1)", "SAVEPOINT b", "RELEASE b", "RELEASE a")
		},
		"raw transaction ended by END": func(t *testing.T, db *sql.DB) {
			connExec(t, grab(t, db), "BEGIN", "INSERT INTO t(v) VALUES(1)", "END")
		},
		"raw ROLLBACK inside a Tx": func(t *testing.T, db *sql.DB) {
			mustExec(t, begin(t, db), "INSERT INTO t(v) VALUES(1)", "ROLLBACK")
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := newStore(t, "&_foreign_keys=on")
			hold(t, db)
			requireGateFree(t, db)
			require.EqualValues(t, 0, storeOf(t, db).Stats().Waiting)
		})
	}
}

func TestUpgradeOfAReadTransactionIsBusyAtOnce(t *testing.T) {
	ctx := context.Background()
	inEachJournalMode(t, "&_busy_timeout=60000", func(t *testing.T, db *sql.DB, path string) {
		mustExec(t, db, "INSERT INTO t(v) VALUES(1)")
		reader := grab(t, db)
		connExec(t, reader, "BEGIN")
		var n int
		require.NoError(t, reader.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n))

		holder := begin(t, db)
		mustExec(t, holder, "INSERT INTO t(v) VALUES(2)")
		committed := make(chan error, 1)
		if value(t, db, "PRAGMA journal_mode") == "delete" {
			// It needs the reader's lock, and has to wait for it.
			go func() { committed <- holder.Commit() }()
		}

		start := time.Now()
		_, err := reader.ExecContext(ctx, "INSERT INTO t(v) VALUES(3)")
		require.ErrorIs(t, err, coopsqlite.ErrBusy)
		require.Less(t, time.Since(start), soon)
		var busy *coopsqlite.BusyError
		require.ErrorAs(t, err, &busy)
		require.Contains(t, busy.Holder, "gate_test.go:")

		// The reader's transaction is as it was, and the holder gets through.
		require.NoError(t, reader.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n))
		require.Equal(t, 1, n)
		connExec(t, reader, "ROLLBACK")
		if value(t, db, "PRAGMA journal_mode") == "delete" {
			require.NoError(t, <-committed)
		} else {
			require.NoError(t, holder.Commit())
		}
		require.Equal(t, "2", value(t, db, "SELECT count(*) FROM t"))
		requireGateFree(t, db)
	})
}

func TestWriteBesideOpenRowsOfItsConnectionDoesNotWait(t *testing.T) {
	ctx := context.Background()
	db := newStore(t, "&_busy_timeout=60000")
	mustExec(t, db, "INSERT INTO t(v) VALUES(1), (2)")
	c := grab(t, db)
	rows, err := c.QueryContext(ctx, "SELECT id FROM t")
	require.NoError(t, err)
	require.True(t, rows.Next())
	begin(t, db)
	start := time.Now()
	_, err = c.ExecContext(ctx, "INSERT INTO t(v) VALUES(3)")
	require.ErrorIs(t, err, coopsqlite.ErrBusy)
	require.Less(t, time.Since(start), soon)
	require.NoError(t, rows.Close())
}

func TestStatsCountWhatHappenedAtTheGate(t *testing.T) {
	db := newStore(t, "")
	store := storeOf(t, db)
	before := store.Stats()
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t(v) VALUES(1)")
	done := make(chan error)
	go func() { _, err := db.Exec("INSERT INTO t(v) VALUES(2)"); done <- err }()
	awaitWaiters(t, db, 1)
	_, err := db.ExecContext(within(t, 10*time.Millisecond), "INSERT INTO t(v) VALUES(3)")
	require.ErrorIs(t, err, coopsqlite.ErrBusy)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-done)
	ro, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = ro.Exec("DELETE FROM t")
	require.Error(t, err)
	require.NoError(t, ro.Rollback())
	require.NoError(t, begin(t, db).Rollback())

	after := store.Stats()
	require.EqualValues(t, 3, after.Transactions-before.Transactions)
	require.EqualValues(t, 2, after.Commits-before.Commits)
	require.EqualValues(t, 2, after.Rollbacks-before.Rollbacks)
	require.EqualValues(t, 1, after.Busy-before.Busy)
	require.EqualValues(t, 1, after.Refused-before.Refused)
	require.EqualValues(t, 4, after.GateWaits.Count-before.GateWaits.Count)
	require.GreaterOrEqual(t, after.GateWaits.Max, 10*time.Millisecond)
	require.LessOrEqual(t, after.GateWaits.P50, after.GateWaits.P99)
	require.LessOrEqual(t, after.GateWaits.P99, after.GateWaits.Max)
}

func TestFirstWriteOfADeferredTransactionWaitsForAnOutsider(t *testing.T) {
	ctx := context.Background()
	inEachJournalMode(t, "&_busy_timeout=60000", func(t *testing.T, db *sql.DB, path string) {
		for _, write := range []string{"INSERT INTO t(v) VALUES('mine')", "INSERT INTO t(v) VALUES('mine') RETURNING id", "CREATE TABLE u(x)"} {
			outsider := start(t, roleOutsider, path)
			require.Empty(t, outsider.try("BEGIN IMMEDIATE"))
			require.Empty(t, outsider.try("CREATE TABLE IF NOT EXISTS theirs(x)"))
			c := grab(t, db)
			connExec(t, c, "BEGIN")
			written := make(chan error, 1)
			go func() {
				_, err := c.ExecContext(ctx, write)
				written <- err
			}()
			select {
			case err := <-written:
				t.Fatalf("%s did not wait: %v", write, err)
			case <-time.After(100 * time.Millisecond):
			}
			require.Empty(t, outsider.try("COMMIT"))
			require.NoError(t, <-written)
			connExec(t, c, "COMMIT")
			require.NoError(t, c.Close())
			outsider.stop()
		}
	})
}

func TestReaderThatAWriterKeepsOutIsToldWhoItIs(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=DELETE&_synchronous=OFF&_txlock=exclusive&_busy_timeout=60000")
	mustExec(t, db, "CREATE TABLE t(v)")
	reader := open(t, "file:"+escapePath(storeOf(t, db).Path())+"?mode=ro&_busy_timeout=20")
	begin(t, db) // excludes readers, too
	err := db.QueryRowContext(within(t, 30*time.Millisecond), "SELECT count(*) FROM t").Scan(new(int))
	var busy *coopsqlite.BusyError
	require.ErrorAs(t, err, &busy)
	require.Contains(t, busy.Holder, "gate_test.go:")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	// One outside the owner cannot know.
	require.ErrorAs(t, reader.QueryRow("SELECT count(*) FROM t").Scan(new(int)), &busy)
	require.Empty(t, busy.Holder)
}

func TestWaitsForTheGateAndForSQLiteTogetherKeepToTheBusyTimeout(t *testing.T) {
	path := newPath(t)
	first := open(t, path+"?_coop_owner=process&_journal_mode=WAL&_busy_timeout=1500")
	second := open(t, path+"?_coop_owner=process&_busy_timeout=2000")
	mustExec(t, first, "CREATE TABLE t(v)")
	outsider, err := openPlain(t, path).Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { outsider.Close() })
	_, err = outsider.ExecContext(context.Background(), "BEGIN IMMEDIATE")
	require.NoError(t, err)

	outcome := make(chan error, 1)
	go func() {
		_, err := first.Exec("INSERT INTO t VALUES(1)")
		outcome <- err
	}()
	eventually(t, func() bool { return storeOf(t, first).Stats().GateWaits.Count > 1 }, "nobody is in the gate")
	start := time.Now()
	_, err = second.Exec("INSERT INTO t VALUES(2)")
	var busy *coopsqlite.BusyError
	require.ErrorAs(t, err, &busy)
	require.Less(t, time.Since(start), 3*time.Second, "2 s in all, not 1.5 s and then 2 s")
	require.GreaterOrEqual(t, busy.Waited, 1900*time.Millisecond, "both waits are named")
	require.ErrorIs(t, <-outcome, coopsqlite.ErrBusy)
}
