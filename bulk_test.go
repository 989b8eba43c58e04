package coopsqlite_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// program is what SQLite compiles of a statement: its opcodes.
func program(t *testing.T, q queryer, statement string) string {
	t.Helper()
	rows, err := q.QueryContext(t.Context(), "EXPLAIN "+statement)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var ops []string
	for rows.Next() {
		row := make([]any, len(columns))
		for i := range row {
			row[i] = new(any)
		}
		require.NoError(t, rows.Scan(row...))
		ops = append(ops, (*row[1].(*any)).(string))
	}
	require.NoError(t, rows.Err())
	return strings.Join(ops, " ")
}

// Inside Bulk a table is loaded and emptied by the very programs that SQLite
// runs on a table without a fence.
func TestBulkRunsThePlainPrograms(t *testing.T) {
	tables := []string{"CREATE TABLE a (x, y)", "CREATE TABLE b (x, y)"}
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, tables...)
	mustExec(t, db, ownTrigger)
	plain := openPlain(t, newPath(t))
	mustExec(t, plain, tables...)
	statements := []string{"DELETE FROM a", "INSERT INTO a SELECT * FROM b", "INSERT INTO a VALUES (1, 2)", "UPDATE a SET x = 1"}
	for _, s := range statements {
		require.NotEqual(t, program(t, plain, s), program(t, db, s), "the fence is in it: %s", s)
	}
	require.NoError(t, storeOf(t, db).Bulk(t.Context(), []string{"A"}, func(tx coopsqlite.DBTX) error {
		for _, s := range statements {
			require.Equal(t, program(t, plain, s), program(t, tx, s), s)
		}
		require.Contains(t, program(t, tx, "DELETE FROM a"), "Clear", "the truncate optimization")
		require.Contains(t, program(t, tx, "INSERT INTO b VALUES (1, 2)"), "Program", "b keeps its fence")
		return nil
	}))
	requireCovered(t, path)
}

// A process that tries all the time never finds the gap.
func TestOutsiderNeverSeesTheGapOfBulk(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_synchronous=OFF&_journal_mode="+journal)
			mustExec(t, db, "CREATE TABLE t (a)", ownTrigger)
			outsider := hammer(t, path+"?_busy_timeout=0", blow{Statement: "INSERT INTO t VALUES ('outside')"})
			for i := range 100 {
				err := storeOf(t, db).Bulk(t.Context(), []string{"t"}, func(tx coopsqlite.DBTX) error {
					for range 20 {
						if _, err := tx.ExecContext(t.Context(), "INSERT INTO t VALUES ('inside')"); err != nil {
							return err
						}
					}
					if i%5 == 0 {
						return errNo
					}
					return nil
				})
				if i%5 == 0 {
					require.ErrorIs(t, err, errNo)
				} else {
					require.NoError(t, err)
				}
			}
			account := outsider.account()
			require.Empty(t, account.Landed)
			require.Empty(t, account.Odd)
			require.Equal(t, "1600", value(t, db, "SELECT count(*) FROM t"))
		})
	}
}

// However Bulk ends, the fences are there, and nothing of it is left in the
// connection.
func TestBulkThatFailsLeavesTheFencesComplete(t *testing.T) {
	for name, c := range map[string]struct {
		tables []string
		fn     func(ctx context.Context, cancel func(), tx coopsqlite.DBTX) error
		says   string
	}{
		"error":         {[]string{"parent"}, func(context.Context, func(), coopsqlite.DBTX) error { return errNo }, "no"},
		"panic":         {[]string{"parent"}, func(context.Context, func(), coopsqlite.DBTX) error { panic(errNo) }, "panic"},
		"Goexit":        {[]string{"parent"}, func(context.Context, func(), coopsqlite.DBTX) error { runtime.Goexit(); return nil }, "Goexit"},
		"unknown table": {[]string{"parent", "nobody"}, nil, "no such table: nobody"},
		"a view":        {[]string{"parent", "names"}, nil, "no such table: names"},
		"cancelled": {[]string{"parent"}, func(ctx context.Context, cancel func(), tx coopsqlite.DBTX) error {
			cancel()
			_, err := tx.ExecContext(ctx, "INSERT INTO parent (name) VALUES ('late')")
			return err
		}, "context canceled"},
		"rolled back by SQLite": {[]string{"parent"}, func(ctx context.Context, _ func(), tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO parent (id) VALUES (1)")
			require.Error(t, err)
			return nil
		}, "transaction has been aborted"},
		"COMMIT inside": {[]string{"parent"}, func(ctx context.Context, _ func(), tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, "COMMIT")
			return err
		}, "not allowed inside Write and Bulk"},
		"deferred violation": {[]string{"parent", "late"}, func(ctx context.Context, _ func(), tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO late VALUES (99)")
			return err
		}, "FOREIGN KEY constraint failed"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_foreign_keys=on&_coop_watch=0")
			mustExec(t, db, family...)
			mustExec(t, db, "CREATE VIEW names AS SELECT name FROM parent", "CREATE TABLE late (p REFERENCES parent DEFERRABLE INITIALLY DEFERRED)", ownTrigger)
			rows := value(t, db, "SELECT count(*) FROM parent")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			said := make(chan string, 1)
			go func() {
				outcome := "Goexit"
				defer func() {
					if recover() != nil {
						outcome = "panic"
					}
					said <- outcome
				}()
				err := storeOf(t, db).Bulk(ctx, c.tables, func(tx coopsqlite.DBTX) error {
					if _, err := tx.ExecContext(ctx, "INSERT INTO parent (name) VALUES ('rolled back')"); err != nil {
						return err
					}
					return c.fn(ctx, cancel, tx)
				})
				outcome = "nil"
				if err != nil {
					outcome = err.Error()
				}
			}()
			require.Contains(t, <-said, c.says)
			require.Equal(t, rows, value(t, db, "SELECT count(*) FROM parent"))
			requireCovered(t, path)
			// Each connection of the pool may be the one Bulk has used.
			for range 4 {
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				_, err = conn.ExecContext(t.Context(), "ALTER TABLE parent RENAME TO x; ALTER TABLE x RENAME TO parent; CREATE TABLE IF NOT EXISTS n (a); DROP TABLE n")
				require.NoError(t, err)
				requireCovered(t, path)
			}
			require.NoError(t, storeOf(t, db).Bulk(t.Context(), []string{"child"}, func(tx coopsqlite.DBTX) error {
				_, err := tx.ExecContext(t.Context(), "CREATE TABLE made (a)")
				return err
			}))
			requireCovered(t, path)
		})
	}
}

func TestBulkInsideItsOwnTransactionIsRefusedAtOnce(t *testing.T) {
	db := open(t, newPath(t))
	mustExec(t, db, "CREATE TABLE t (a)")
	store := storeOf(t, db)
	require.NoError(t, store.Bulk(t.Context(), []string{"t"}, func(tx coopsqlite.DBTX) error {
		ctx := tx.(interface{ Context() context.Context }).Context()
		require.ErrorIs(t, store.Bulk(ctx, nil, func(coopsqlite.DBTX) error { return nil }), coopsqlite.ErrNested)
		require.ErrorIs(t, store.Write(ctx, func(coopsqlite.DBTX) error { return nil }), coopsqlite.ErrNested)
		return nil
	}))
}

func TestBulkNeedsAStoreThatCanBeWritten(t *testing.T) {
	path := newPath(t)
	mustExec(t, open(t, path), "CREATE TABLE t (a)")
	nothing := func(coopsqlite.DBTX) error { return nil }
	require.ErrorContains(t, storeOf(t, open(t, "file:"+escapePath(path)+"?mode=ro")).Bulk(t.Context(), []string{"t"}, nothing), "reader")
	db := open(t, newPath(t))
	store := storeOf(t, db)
	require.NoError(t, db.Close())
	require.ErrorIs(t, store.Bulk(t.Context(), nil, nothing), coopsqlite.ErrStopped)
}
