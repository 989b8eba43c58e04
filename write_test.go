package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// writeStore is a store with a table, and with what commits in it counted.
func writeStore(t *testing.T, parameters string) (*sql.DB, *coopsqlite.Store) {
	t.Helper()
	db := open(t, newPath(t)+"?_journal_mode=WAL&_foreign_keys=on"+parameters)
	mustExec(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)",
		"CREATE TABLE child (t INTEGER REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
	return db, storeOf(t, db)
}

func insert(ctx context.Context, tx coopsqlite.DBTX, values ...any) error {
	for _, v := range values {
		if _, err := tx.ExecContext(ctx, "INSERT INTO t (b) VALUES (?)", v); err != nil {
			return err
		}
	}
	return nil
}

// together runs the functions in one group, in their order: the first holds the
// transaction open until all the others are in line.
func together(t *testing.T, store *coopsqlite.Store, fns ...func(ctx context.Context, tx coopsqlite.DBTX) error) []error {
	t.Helper()
	ctx := context.Background()
	errs := make([]error, len(fns))
	var group sync.WaitGroup
	inside, proceed := make(chan struct{}), make(chan struct{})
	for i, fn := range fns {
		group.Go(func() {
			errs[i] = store.Write(ctx, func(tx coopsqlite.DBTX) error {
				if i == 0 {
					close(inside)
					<-proceed
				}
				return fn(ctx, tx)
			})
		})
		if i == 0 {
			<-inside
		} else {
			require.Eventually(t, func() bool { return coopsqlite.WriteQueue(store) == i }, time.Minute, time.Millisecond)
		}
	}
	close(proceed)
	group.Wait()
	return errs
}

func inserting(values ...any) func(context.Context, coopsqlite.DBTX) error {
	return func(ctx context.Context, tx coopsqlite.DBTX) error { return insert(ctx, tx, values...) }
}

func TestCallsThatArriveTogetherShareACommit(t *testing.T) {
	db, store := writeStore(t, "")
	before := store.Stats()
	errs := together(t, store, inserting("a"), inserting("b"), inserting("c"), inserting("d"))
	require.Equal(t, make([]error, 4), errs)
	require.Equal(t, []string{"a", "b", "c", "d"}, values(t, db, "SELECT b FROM t ORDER BY a"), "in order of arrival")
	after := store.Stats()
	require.Equal(t, int64(1), after.Commits-before.Commits)
	require.Equal(t, int64(1), after.Transactions-before.Transactions)
}

func TestAnErrorUndoesItsOwnCallAlone(t *testing.T) {
	mine := errors.New("mine")
	failing := func(ctx context.Context, tx coopsqlite.DBTX) error {
		if err := insert(ctx, tx, "undone"); err != nil {
			return err
		}
		return mine
	}
	for place := range 3 {
		t.Run(fmt.Sprintf("in place %d", place), func(t *testing.T) {
			db, store := writeStore(t, "")
			fns := []func(context.Context, coopsqlite.DBTX) error{inserting("a"), inserting("b")}
			errs := together(t, store, slices.Insert(fns, place, failing)...)
			require.Equal(t, mine, errs[place], "as it is")
			errs[place] = nil
			require.Equal(t, make([]error, 3), errs)
			require.Equal(t, []string{"a", "b"}, values(t, db, "SELECT b FROM t ORDER BY a"))
		})
	}
}

func TestAPanicUndoesItsOwnCallAndReachesItsCaller(t *testing.T) {
	db, store := writeStore(t, "")
	var recovered any
	var done sync.WaitGroup
	done.Add(1)
	ctx := context.Background()
	inside, proceed := make(chan struct{}), make(chan struct{})
	go func() {
		defer done.Done()
		defer func() { recovered = recover() }()
		_ = store.Write(ctx, func(tx coopsqlite.DBTX) error {
			close(inside)
			<-proceed
			_ = insert(ctx, tx, "undone")
			panic("out of order")
		})
	}()
	<-inside
	result := make(chan error)
	go func() { result <- store.Write(ctx, func(tx coopsqlite.DBTX) error { return insert(ctx, tx, "kept") }) }()
	require.Eventually(t, func() bool { return coopsqlite.WriteQueue(store) == 1 }, time.Minute, time.Millisecond)
	close(proceed)
	require.NoError(t, <-result)
	done.Wait()
	require.Equal(t, "out of order", recovered)
	require.Equal(t, []string{"kept"}, values(t, db, "SELECT b FROM t"))
}

func TestGoexitInACallLeavesTheStoreUsable(t *testing.T) {
	db, store := writeStore(t, "")
	ctx := context.Background()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = store.Write(ctx, func(tx coopsqlite.DBTX) error {
			_ = insert(ctx, tx, "undone")
			runtime.Goexit()
			return nil
		})
	}()
	<-ended
	require.NoError(t, store.Write(ctx, func(tx coopsqlite.DBTX) error { return insert(ctx, tx, "kept") }))
	mustExec(t, db, "INSERT INTO t (b) VALUES ('after')")
	require.Equal(t, []string{"kept", "after"}, values(t, db, "SELECT b FROM t ORDER BY a"))
}

func TestARollbackBySQLiteAbortsAllThatShareTheTransaction(t *testing.T) {
	db, store := writeStore(t, "")
	mustExec(t, db, "INSERT INTO t (a, b) VALUES (1, 'there')")
	errs := together(t, store,
		inserting("a"),
		func(ctx context.Context, tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO t (a) VALUES (1)")
			if err == nil {
				return errors.New("the constraint did not hold")
			}
			_, again := tx.ExecContext(ctx, "INSERT INTO t (b) VALUES ('outside')")
			if !errors.Is(again, coopsqlite.ErrTxAborted) {
				return fmt.Errorf("a statement ran outside the transaction: %w", again)
			}
			return err
		},
		inserting("next"))
	require.ErrorIs(t, errs[0], coopsqlite.ErrTxAborted)
	require.ErrorContains(t, errs[1], "UNIQUE constraint failed")
	require.NoError(t, errs[2], "it had not begun yet")
	require.Equal(t, []string{"there", "next"}, values(t, db, "SELECT b FROM t ORDER BY a"))
}

func TestACallThatSwallowsARollbackIsToldOfIt(t *testing.T) {
	db, store := writeStore(t, "")
	mustExec(t, db, "INSERT INTO t (a, b) VALUES (1, 'there')")
	err := store.Write(context.Background(), func(tx coopsqlite.DBTX) error {
		_, _ = tx.ExecContext(context.Background(), "INSERT OR ROLLBACK INTO t (a) VALUES (1)")
		return nil
	})
	require.ErrorIs(t, err, coopsqlite.ErrTxAborted)
	require.Equal(t, []string{"there"}, values(t, db, "SELECT b FROM t"))
}

func TestADeferredViolationIsLaidToTheCallThatCausedIt(t *testing.T) {
	db, store := writeStore(t, "")
	dangling := func(ctx context.Context, tx coopsqlite.DBTX) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO child VALUES (99)")
		return err
	}
	errs := together(t, store, inserting("a"), dangling, inserting("b"), dangling)
	require.NoError(t, errs[0])
	require.ErrorContains(t, errs[1], "FOREIGN KEY constraint failed")
	require.NoError(t, errs[2])
	require.ErrorContains(t, errs[3], "FOREIGN KEY constraint failed")
	require.Equal(t, []string{"a", "b"}, values(t, db, "SELECT b FROM t ORDER BY a"))
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM child"))
}

func TestAFailedCommitFailsAllOfItsGroup(t *testing.T) {
	db, store := writeStore(t, "")
	require.NoError(t, db.Close()) // the permit goes, so that no commit is let through
	_ = store
	db = open(t, newPath(t)+"?_journal_mode=WAL")
	mustExec(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
	store = storeOf(t, db)
	errs := together(t, store, inserting("a"), inserting("b"), func(ctx context.Context, tx coopsqlite.DBTX) error {
		if err := insert(ctx, tx, "c"); err != nil {
			return err
		}
		return db.Close()
	})
	for i, err := range errs {
		require.ErrorIs(t, err, coopsqlite.ErrFenced, "call %d", i)
	}
	require.Equal(t, "0", value(t, openPlain(t, store.Path()), "SELECT count(*) FROM t"))
}

func TestAContextThatEndsBeforeItsTurnLeavesTheQueue(t *testing.T) {
	db, store := writeStore(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	inside, proceed := make(chan struct{}), make(chan struct{})
	holder := make(chan error)
	go func() {
		holder <- store.Write(context.Background(), func(tx coopsqlite.DBTX) error {
			close(inside)
			<-proceed
			return insert(context.Background(), tx, "kept")
		})
	}()
	<-inside
	waiter := make(chan error)
	var ran atomic.Bool
	go func() {
		waiter <- store.Write(ctx, func(coopsqlite.DBTX) error { ran.Store(true); return nil })
	}()
	require.Eventually(t, func() bool { return coopsqlite.WriteQueue(store) == 1 }, time.Minute, time.Millisecond)
	cancel()
	err := <-waiter
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, coopsqlite.ErrBusy)
	require.ErrorContains(t, err, "write_test.go", "it names who holds the store")
	require.Zero(t, coopsqlite.WriteQueue(store))
	close(proceed)
	require.NoError(t, <-holder)
	require.False(t, ran.Load())
	require.Equal(t, []string{"kept"}, values(t, db, "SELECT b FROM t"))
}

func TestAStatementIsInterruptedOnlyWhileNobodyElseHasWorkInTheTransaction(t *testing.T) {
	const endless = "INSERT INTO t (b) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT max(i) FROM n"
	const long = "INSERT INTO t (b) WITH RECURSIVE n(i) AS (SELECT cancel_now(1) UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT max(i) FROM n"
	t.Run("alone", func(t *testing.T) {
		db, store := writeStore(t, "")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		err := store.Write(ctx, func(tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, endless)
			return err
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
	})
	t.Run("in company", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		connector, err := coopsqlite.NewConnector(newPath(t)+"?_journal_mode=WAL", &coopsqlite.Options{
			ConnectHook: func(c *sqlite3.SQLiteConn) error {
				return c.RegisterFunc("cancel_now", func(i int64) int64 { cancel(); return i }, true)
			},
		})
		require.NoError(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		mustExec(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
		errs := together(t, connector.Store(), inserting("a"), func(_ context.Context, tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, long)
			return err
		})
		require.Equal(t, make([]error, 2), errs, "the statement ran to its end")
		require.Equal(t, []string{"a", "300000"}, values(t, db, "SELECT b FROM t ORDER BY a"))
	})
}

func TestTransactionsCannotBeEndedFromInsideACall(t *testing.T) {
	db, store := writeStore(t, "")
	ctx := context.Background()
	for _, statement := range []string{"COMMIT", "END", "ROLLBACK", "BEGIN", "BEGIN IMMEDIATE", "/* x */ commit"} {
		err := store.Write(ctx, func(tx coopsqlite.DBTX) error {
			if err := insert(ctx, tx, statement); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
		require.ErrorContains(t, err, "not allowed inside Write and Bulk", statement)
	}
	require.NoError(t, store.Write(ctx, func(tx coopsqlite.DBTX) error {
		for _, statement := range []string{"SAVEPOINT s", "INSERT INTO t (b) VALUES ('undone')", "ROLLBACK TO s", "RELEASE s", "INSERT INTO t (b) VALUES ('kept')"} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}))
	require.Equal(t, []string{"kept"}, values(t, db, "SELECT b FROM t"))
}

func TestRowsLeftOpenAreClosedBeforeTheCommit(t *testing.T) {
	db, store := writeStore(t, "")
	mustExec(t, db, "INSERT INTO t (b) VALUES (1), (2), (3)")
	ctx := context.Background()
	var left *sql.Rows
	errs := together(t, store, inserting("a"), func(ctx context.Context, tx coopsqlite.DBTX) error {
		var err error
		if left, err = tx.QueryContext(ctx, "INSERT INTO t (b) VALUES (4), (5) RETURNING a"); err != nil {
			return err
		}
		left.Next()
		_ = tx.QueryRowContext(ctx, "SELECT b FROM t") // never scanned
		return nil
	}, inserting("b"))
	require.Equal(t, make([]error, 3), errs)
	require.False(t, left.Next())
	require.Equal(t, "7", value(t, db, "SELECT count(*) FROM t"))
	require.NoError(t, store.Write(ctx, func(tx coopsqlite.DBTX) error { return insert(ctx, tx, "c") }))
}

func TestADBTXIsOfNoUseAfterItsCall(t *testing.T) {
	_, store := writeStore(t, "")
	ctx := context.Background()
	var kept coopsqlite.DBTX
	require.NoError(t, store.Write(ctx, func(tx coopsqlite.DBTX) error { kept = tx; return nil }))
	require.ErrorIs(t, insert(ctx, kept, 1), sql.ErrTxDone)
	_, err := kept.QueryContext(ctx, "SELECT 1")
	require.ErrorIs(t, err, sql.ErrTxDone)
	_, err = kept.PrepareContext(ctx, "SELECT 1")
	require.ErrorIs(t, err, sql.ErrTxDone)
	var one int
	require.Error(t, kept.QueryRowContext(ctx, "SELECT 1").Scan(&one))
}

func TestWriteInsideItsOwnTransactionIsRefusedAtOnce(t *testing.T) {
	_, store := writeStore(t, "")
	require.NoError(t, store.Write(context.Background(), func(tx coopsqlite.DBTX) error {
		inside := tx.(interface{ Context() context.Context }).Context()
		nothing := func(coopsqlite.DBTX) error { return nil }
		require.ErrorIs(t, store.Write(inside, nothing), coopsqlite.ErrNested)
		require.ErrorIs(t, store.Bulk(inside, []string{"t"}, nothing), coopsqlite.ErrNested)
		return nil
	}))
}

func TestEachCallHasItsOwnMetadata(t *testing.T) {
	db, store := writeStore(t, "&_coop_actor=nobody")
	ctx := context.Background()
	var group sync.WaitGroup
	for i := range 50 {
		who := fmt.Sprintf("user-%d", i)
		group.Go(func() {
			writer := ctx
			if i%2 == 0 {
				writer = coopsqlite.WithMetadata(ctx, "actor", who)
			}
			if err := store.Write(writer, func(tx coopsqlite.DBTX) error {
				// The statement's own context has none: the call's stands in.
				_, err := tx.ExecContext(ctx, "INSERT INTO t (a, b) VALUES (?, coop_context('actor'))", i)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.Equal(t, "25", value(t, db, "SELECT count(*) FROM t WHERE a % 2 = 0 AND b = 'user-' || a"))
	require.Equal(t, "25", value(t, db, "SELECT count(*) FROM t WHERE a % 2 = 1 AND b = 'nobody'"))
}

func TestManyWritersTogetherLoseNothing(t *testing.T) {
	db, store := writeStore(t, "&_synchronous=OFF")
	ctx := context.Background()
	no := errors.New("no")
	var group sync.WaitGroup
	for g := range 64 {
		group.Go(func() {
			for i := range 100 {
				err := store.Write(ctx, func(tx coopsqlite.DBTX) error {
					if err := insert(ctx, tx, g*1000+i); err != nil {
						return err
					}
					if i%10 == 9 {
						return no
					}
					return nil
				})
				if (i%10 == 9) != errors.Is(err, no) || i%10 != 9 && err != nil {
					t.Errorf("goroutine %d, call %d: %v", g, i, err)
				}
			}
		})
	}
	group.Wait()
	require.Equal(t, fmt.Sprint(64*90), value(t, db, "SELECT count(DISTINCT b) FROM t"))
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE b % 10 = 9"))
	require.Less(t, store.Stats().Commits, int64(64*90), "commits were shared")
}

func TestWriteAfterCloseSaysThatTheStoreIsStopped(t *testing.T) {
	db, store := writeStore(t, "")
	ctx := context.Background()
	require.NoError(t, store.Write(ctx, func(tx coopsqlite.DBTX) error { return insert(ctx, tx, 1) }))
	require.NoError(t, db.Close())
	nothing := func(coopsqlite.DBTX) error { return nil }
	require.ErrorIs(t, store.Write(ctx, nothing), coopsqlite.ErrStopped)
	require.ErrorIs(t, store.Bulk(ctx, nil, nothing), coopsqlite.ErrStopped)
	again := open(t, store.Path())
	require.Equal(t, "1", value(t, again, "SELECT count(*) FROM t"), "no connection was left that could hold the store")
}

func TestWriteThroughAReaderIsRefused(t *testing.T) {
	db, store := writeStore(t, "")
	require.NoError(t, db.Close())
	reader := open(t, "file:"+escapePath(store.Path())+"?mode=ro")
	err := storeOf(t, reader).Write(context.Background(), func(coopsqlite.DBTX) error { return nil })
	require.ErrorContains(t, err, "attempt to write a readonly database")
}

func TestDDLInsideACallIsCoveredByTheCommit(t *testing.T) {
	_, store := writeStore(t, "")
	ctx := context.Background()
	errs := together(t, store, inserting("a"), func(ctx context.Context, tx coopsqlite.DBTX) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE made (a)")
		return err
	}, inserting("b"))
	require.Equal(t, make([]error, 3), errs)
	coverage, err := store.Verify(ctx)
	require.NoError(t, err)
	require.True(t, coverage.Complete(), "%+v", coverage)
	requireFenced(t, store.Path(), "t", "child", "made")
}
