package coopsqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// contend lets n connections of db write at once until the pool has its hot
// connection, on which they then write.
func contend(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	store := storeOf(t, db)
	for deadline := time.Now().Add(patience); !coopsqlite.HasHot(store); {
		require.True(t, time.Now().Before(deadline), "no hot connection")
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				_, err := db.ExecContext(t.Context(), "UPDATE hot SET n = n + 1")
				assert.NoError(t, err)
			})
		}
		group.Wait()
	}
}

func hotStore(t *testing.T) *sql.DB {
	t.Helper()
	db := open(t, newPath(t)+"?_journal_mode=WAL&_synchronous=OFF")
	db.SetMaxIdleConns(16)
	mustExec(t, db, "CREATE TABLE hot (n INTEGER)", "INSERT INTO hot VALUES (0)", "CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
	contend(t, db, 8)
	return db
}

// conns takes connections of the pool, none of which wrote last.
func conns(t *testing.T, db *sql.DB, n int) []*sql.Conn {
	t.Helper()
	out := make([]*sql.Conn, n)
	for i := range out {
		c, err := db.Conn(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		out[i] = c
	}
	_, err := out[0].ExecContext(t.Context(), "UPDATE hot SET n = n + 1")
	require.NoError(t, err)
	return out[1:]
}

func TestAConnectionRemembersItsOwnLastWriteWhereverItWasMade(t *testing.T) {
	db := hotStore(t)
	two := conns(t, db, 3)
	ctx := t.Context()
	asks := func(c interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}, changes, rowid int, total int) {
		t.Helper()
		var a, b, n int
		require.NoError(t, c.QueryRowContext(ctx, "SELECT changes(), last_insert_rowid(), total_changes()").Scan(&a, &b, &n))
		require.Equal(t, []int{changes, rowid, total}, []int{a, b, n})
	}
	total := make([]int, 2)
	for i, c := range two {
		require.NoError(t, c.QueryRowContext(ctx, "SELECT total_changes()").Scan(&total[i]))
	}
	for round := range 6 {
		for i, c := range two {
			id := 1000*i + 10*round
			_, err := c.ExecContext(ctx, "INSERT INTO t (a, b) VALUES (?, 1), (?, 1), (?, 1)", id+1, id+2, id+3)
			require.NoError(t, err)
			total[i] += 3
			asks(c, 3, id+3, total[i])
			tx, err := c.BeginTx(ctx, nil)
			require.NoError(t, err)
			asks(tx, 3, id+3, total[i])
			_, err = tx.Exec("UPDATE t SET b = changes() WHERE a = ?", id+1)
			require.NoError(t, err)
			total[i]++
			asks(tx, 1, id+3, total[i])
			require.NoError(t, tx.Commit())
			asks(c, 1, id+3, total[i])
			_, err = c.ExecContext(ctx, "UPDATE t SET b = b WHERE a < 0")
			require.NoError(t, err)
			asks(c, 0, id+3, total[i])
			var b int
			require.NoError(t, c.QueryRowContext(ctx, "SELECT b FROM t WHERE a = ?", id+1).Scan(&b))
			require.Equal(t, 3, b, "of the INSERT before")
			require.NoError(t, c.QueryRowContext(ctx, "INSERT INTO t (a, b) VALUES (?, 1) RETURNING changes()", id+4).Scan(&b))
			require.Zero(t, b)
			total[i]++
			asks(c, 1, id+4, total[i])
		}
	}
}

func TestPreparedStatementsWorkWhereverTheConnectionWrites(t *testing.T) {
	db := hotStore(t)
	ctx := t.Context()
	two := conns(t, db, 3)
	insert, err := db.PrepareContext(ctx, "INSERT INTO t (b) VALUES (?)")
	require.NoError(t, err)
	defer insert.Close()
	n := 0
	for range 5 {
		for _, c := range two {
			own, err := c.PrepareContext(ctx, "INSERT INTO t (b) VALUES (?)")
			require.NoError(t, err)
			count, err := c.PrepareContext(ctx, "SELECT count(*) FROM t")
			require.NoError(t, err)
			tx, err := c.BeginTx(ctx, nil)
			require.NoError(t, err)
			inside, err := tx.Prepare("INSERT INTO t (b) VALUES (?) RETURNING b")
			require.NoError(t, err)
			for _, st := range []*sql.Stmt{own, tx.StmtContext(ctx, own), inside, tx.StmtContext(ctx, insert)} {
				if st == own { // not through the transaction, but on its connection
					continue
				}
				rows, err := st.QueryContext(ctx, "x")
				require.NoError(t, err)
				for rows.Next() {
				}
				require.NoError(t, rows.Close())
				n++
			}
			var seen int
			require.NoError(t, tx.StmtContext(ctx, count).QueryRow().Scan(&seen))
			require.Equal(t, n, seen, "the transaction sees its own rows")
			require.NoError(t, tx.Commit())
			_, err = own.ExecContext(ctx, "y")
			require.NoError(t, err)
			_, err = insert.ExecContext(ctx, "z")
			require.NoError(t, err)
			n += 2
			require.NoError(t, count.QueryRow().Scan(&seen))
			require.Equal(t, n, seen)
			require.NoError(t, own.Close())
			require.NoError(t, count.Close())
		}
	}
}

// What belongs to one connection stays with it: temporary tables, settings,
// attached databases, rows that are read beyond the transaction's end.
func TestWhatATransactionLeavesInItsConnectionStaysThere(t *testing.T) {
	ctx := t.Context()
	for name, leave := range map[string]struct{ statement, asks, want string }{
		"a temporary table": {"CREATE TEMP TABLE mine (a); INSERT INTO mine VALUES (7)", "SELECT a FROM mine", "7"},
		"a setting":         {"PRAGMA cache_size = 77", "PRAGMA cache_size", "77"},
		"a busy timeout":    {"PRAGMA busy_timeout = 77", "PRAGMA busy_timeout", "77"},
	} {
		t.Run(name, func(t *testing.T) {
			db := hotStore(t)
			two := conns(t, db, 3)
			c, other := two[0], two[1]
			read, err := c.PrepareContext(ctx, "SELECT count(*) FROM t")
			require.NoError(t, err)
			tx, err := c.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.Exec("INSERT INTO t (b) VALUES (1)")
			require.NoError(t, err)
			_, err = tx.Exec(leave.statement)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			require.NoError(t, read.QueryRow().Scan(new(int)))
			for range 3 {
				var got string
				require.NoError(t, c.QueryRowContext(ctx, leave.asks).Scan(&got))
				require.Equal(t, leave.want, got)
				if err := other.QueryRowContext(ctx, leave.asks).Scan(&got); err == nil {
					require.NotEqual(t, leave.want, got)
				}
				for _, c := range two {
					_, err = c.ExecContext(ctx, "INSERT INTO t (b) VALUES (2)")
					require.NoError(t, err)
				}
			}
			require.NoError(t, c.Close())
			contend(t, db, 8) // there is another hot connection soon
		})
	}
	t.Run("rows", func(t *testing.T) {
		db := hotStore(t)
		two := conns(t, db, 3)
		c := two[0]
		// database/sql closes the rows of a transaction; other callers need not.
		require.NoError(t, c.Raw(func(driverConn any) error { return rowsBeyondCommit(ctx, driverConn) }))
		for _, c := range two {
			_, err := c.ExecContext(ctx, "INSERT INTO t (b) VALUES (2)")
			require.NoError(t, err)
		}
		contend(t, db, 8)
	})
}

func TestTheHotConnectionEndsWithItsPool(t *testing.T) {
	for _, under := range []string{"idle", "in a transaction"} {
		t.Run(under, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_journal_mode=WAL&_synchronous=OFF")
			mustExec(t, db, "CREATE TABLE hot (n INTEGER)", "INSERT INTO hot VALUES (0)", "CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
			contend(t, db, 8)
			if under == "in a transaction" {
				other, err := db.Conn(t.Context())
				require.NoError(t, err)
				_, err = other.ExecContext(t.Context(), "UPDATE hot SET n = n + 1")
				require.NoError(t, err)
				tx, err := db.Begin()
				require.NoError(t, err)
				require.NoError(t, other.Close())
				_, err = tx.Exec("INSERT INTO t (b) VALUES (1)")
				require.NoError(t, err)
				closed := make(chan error, 1)
				go func() { closed <- db.Close() }()
				eventually(t, func() bool {
					_, err = tx.Exec("INSERT INTO t (b) VALUES (2)")
					return err != nil
				}, "the transaction goes on")
				require.ErrorIs(t, err, coopsqlite.ErrFenced)
				require.ErrorIs(t, tx.Commit(), coopsqlite.ErrFenced)
				require.NoError(t, <-closed)
			}
			require.NoError(t, db.Close())
			require.NotContains(t, openFiles(t), path)
		})
	}
}

func rowsBeyondCommit(ctx context.Context, driverConn any) error {
	c := driverConn.(interface {
		driver.ConnBeginTx
		driver.QueryerContext
		driver.ExecerContext
	})
	tx, err := c.BeginTx(ctx, driver.TxOptions{})
	if err != nil {
		return err
	}
	if _, err := c.ExecContext(ctx, "INSERT INTO t (a, b) VALUES (1, 'a'), (2, 'b')", nil); err != nil {
		return err
	}
	rows, err := c.QueryContext(ctx, "SELECT b FROM t ORDER BY a", nil)
	if err != nil {
		return err
	}
	dest := make([]driver.Value, 1)
	if err := errors.Join(rows.Next(dest), tx.Commit(), rows.Next(dest)); err != nil {
		return err
	}
	if dest[0] != "b" {
		return fmt.Errorf("read %v", dest)
	}
	return rows.Close()
}

// Whoever gets the connection next, what everybody sees is what one connection
// would show.
func TestWritersThatShareAConnectionDoNotMixUpTheirTransactions(t *testing.T) {
	db := hotStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	mustExec(t, db, "CREATE TABLE pair (worker INTEGER, n INTEGER, side TEXT, who TEXT DEFAULT (coop_context('actor')))")
	var group sync.WaitGroup
	for worker := range 16 {
		group.Go(func() {
			ctx := coopsqlite.WithMetadata(ctx, "actor", fmt.Sprint("worker ", worker))
			for n := 0; ctx.Err() == nil; n++ {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					continue
				}
				for _, side := range []string{"left", "right"} {
					if _, err = tx.ExecContext(ctx, "INSERT INTO pair (worker, n, side) VALUES (?, ?, ?)", worker, n, side); err != nil {
						break
					}
				}
				if err != nil || n%3 == 0 {
					_ = tx.Rollback()
				} else {
					_ = tx.Commit()
				}
				var torn int
				if err := db.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM pair GROUP BY worker, n HAVING count(*) <> 2 OR count(DISTINCT side) <> 2 OR min(who) <> 'worker ' || worker OR max(who) <> min(who))").Scan(&torn); err == nil {
					assert.Zero(t, torn)
				}
			}
		})
	}
	group.Wait()
	require.NotEqual(t, "0", value(t, db, "SELECT count(*) FROM pair"))
}

// Race detector: what a statement leaves behind is let go of before the next
// writer comes.
func TestStatementsAreLetGoOfUnderTheGate(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL&_synchronous=OFF&_stmt_cache_size=1")
	db.SetMaxIdleConns(16)
	mustExec(t, db, "CREATE TABLE hot (n INTEGER)", "INSERT INTO hot VALUES (0)", "CREATE TABLE t (a INTEGER PRIMARY KEY, b)",
		"CREATE TABLE u (a UNIQUE ON CONFLICT ROLLBACK)", "INSERT INTO u VALUES (1)")
	contend(t, db, 8)
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for i := range 60 {
				assert.NoError(t, onConn(t.Context(), db, "BEGIN IMMEDIATE", "INSERT INTO t (b) VALUES (1)", "COMMIT"))
				tx, err := db.Begin()
				if !assert.NoError(t, err) {
					return
				}
				n := 1
				if i%2 == 0 {
					n = 10 + 1000*w + i
				}
				_ = readAll(tx.Query("INSERT INTO u VALUES (?) RETURNING a", n))
				_ = tx.Rollback()
			}
		})
	}
	group.Wait()
}

func TestAnAttachedStoreIsNotOursOnTheHotConnectionEither(t *testing.T) {
	db := hotStore(t)
	other := newPath(t)
	odb := open(t, other+"?_journal_mode=WAL")
	mustExec(t, odb, "CREATE TABLE x (a)")
	mustExec(t, db, "CREATE TABLE x (a)")
	c := conns(t, db, 3)[0]
	st, err := c.PrepareContext(t.Context(), "DROP TABLE x")
	require.NoError(t, err)
	tx, err := c.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	mustExec(t, tx, "DROP TABLE main.x", "ATTACH '"+other+"' AS other")
	_, err = st.ExecContext(t.Context())
	require.ErrorIs(t, err, coopsqlite.ErrFenced)
	_ = tx.Commit()
	require.Equal(t, "1", value(t, odb, "SELECT count(*) FROM sqlite_schema WHERE name = 'x'"))
}

func TestTriggersSeeTheirOwnChangesOnTheHotConnection(t *testing.T) {
	db := hotStore(t)
	mustExec(t, db, "CREATE TABLE lg (n)",
		"CREATE TRIGGER mine AFTER INSERT ON t BEGIN UPDATE lg SET n = n; INSERT INTO lg VALUES (changes()); END",
		"INSERT INTO lg VALUES (0), (0), (0), (0), (0)")
	two := conns(t, db, 3)
	_, err := two[0].ExecContext(t.Context(), "UPDATE hot SET n = n + 1")
	require.NoError(t, err)
	_, err = two[1].ExecContext(t.Context(), "INSERT INTO t (b) VALUES (1)")
	require.NoError(t, err)
	require.Equal(t, "5", value(t, db, "SELECT n FROM lg ORDER BY rowid DESC LIMIT 1"))
}

func TestBusyOnTheHotConnectionIsExplained(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_synchronous=OFF&_coop_watch=0&_busy_timeout=300") // with a rollback journal
	db.SetMaxIdleConns(16)
	mustExec(t, db, "CREATE TABLE hot (n INTEGER)", "INSERT INTO hot VALUES (0)", "CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
	contend(t, db, 4)
	two := conns(t, db, 3)
	tx, err := openPlain(t, path).Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	rows, err := tx.Query("SELECT * FROM hot")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	_, err = two[0].ExecContext(t.Context(), "CREATE TABLE zz (a)")
	require.ErrorIs(t, err, coopsqlite.ErrBusy)
}

// Rows that are pruned are counted where they are deleted.
func TestPruningOnTheHotConnectionEnds(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL&_synchronous=OFF&_coop_changes=*")
	db.SetMaxIdleConns(16)
	mustExec(t, db, "CREATE TABLE hot (n INTEGER)", "INSERT INTO hot VALUES (0)")
	contend(t, db, 8)
	conns(t, db, 2)
	changes := value(t, db, "SELECT max(seq) FROM coop_changes")
	seq, err := strconv.ParseInt(changes, 10, 64)
	require.NoError(t, err)
	pruned, err := storeOf(t, db).PruneChanges(t.Context(), seq)
	require.NoError(t, err)
	require.EqualValues(t, seq-1, pruned)
}
