package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestManyWritersBesideReadersAreNeverBusy has 64 goroutines write 1,000
// transactions each, with the pool's default settings, while others read.
func TestManyWritersBesideReadersAreNeverBusy(t *testing.T) {
	const writers, readers = 64, 4
	each := 1000
	if testing.Short() {
		each = 50
	}
	// TRUNCATE is a rollback journal that does not cost a file per transaction.
	for _, mode := range []string{"WAL", "TRUNCATE"} {
		t.Run(mode, func(t *testing.T) {
			db := open(t, newPath(t)+"?_synchronous=OFF&_busy_timeout=60000&_journal_mode="+mode)
			mustExec(t, db, "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER)",
				"INSERT INTO account VALUES(1, 0), (2, 0)")
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var (
				writing, reading sync.WaitGroup
				reads            atomic.Int64
			)
			for r := range readers {
				reading.Go(func() {
					for ctx.Err() == nil {
						if err := readBalance(db, r%2 == 0); err != nil {
							t.Errorf("reader: %v", err)
							return
						}
						reads.Add(1)
						time.Sleep(time.Millisecond) // the processor is for the writers
					}
				})
			}
			for w := range writers {
				writing.Go(func() {
					for range each {
						if err := transfer(db, w); err != nil {
							t.Errorf("writer: %v", err)
							return
						}
					}
				})
			}
			writing.Wait()
			stop()
			reading.Wait()
			require.Equal(t, fmt.Sprint(writers*each), value(t, db, "SELECT balance FROM account WHERE id = 1"))
			stats := storeOf(t, db).Stats()
			require.Zero(t, stats.Busy)
			require.Positive(t, reads.Load(), "the readers came through, too")
			t.Logf("%d reads; gate: p50 %s, p99 %s, max %s", reads.Load(), stats.GateWaits.P50, stats.GateWaits.P99, stats.GateWaits.Max)
		})
	}
}

// transfer reads, then writes: half of the writers in a transaction, the
// others in one statement.
func transfer(db *sql.DB, writer int) error {
	ctx := context.Background()
	if writer%2 == 0 {
		_, err := db.ExecContext(ctx, "UPDATE account SET balance = balance + CASE id WHEN 1 THEN 1 ELSE -1 END")
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var balance int
	if err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 1").Scan(&balance); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = ? WHERE id = 1", balance+1); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = ? WHERE id = 2", -balance-1); err != nil {
		return err
	}
	return tx.Commit()
}

// readBalance checks that what it reads is one transaction's work.
func readBalance(db *sql.DB, inTx bool) error {
	ctx := context.Background()
	var a, b int
	if !inTx {
		if err := db.QueryRowContext(ctx, "SELECT sum(balance) FROM account").Scan(&a); err != nil {
			return err
		}
		if a != 0 {
			return fmt.Errorf("half a transaction is visible: %d", a)
		}
		return nil
	}
	tx, err := db.BeginTx(ctx, readOnly)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 1").Scan(&a); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 2").Scan(&b); err != nil {
		return err
	}
	if a != -b {
		return fmt.Errorf("a read-only transaction saw two states: %d, %d", a, b)
	}
	return tx.Commit()
}
