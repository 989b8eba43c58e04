package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// TestRandomCancellationsLoseNothingAndLeaveNothing writes in all the ways
// there are, each cancelled at a random moment, and then compares the store
// with what was acknowledged.
func TestRandomCancellationsLoseNothingAndLeaveNothing(t *testing.T) {
	before := goroutines()
	inEachJournalMode(t, "", func(t *testing.T, db *sql.DB, path string) {
		mustExec(t, db, "CREATE TABLE u(id INTEGER, part INTEGER)")
		const workers, cancellations = 8, 5000 // 10,000 in both modes
		var (
			wg                  sync.WaitGroup
			ids                 atomic.Int64
			acknowledged, maybe sync.Map
			cancelled           atomic.Int64
		)
		for w := range workers {
			random := rand.New(rand.NewPCG(7, uint64(w)))
			wg.Go(func() {
				for cancelled.Load() < cancellations {
					id := ids.Add(1)
					ctx, cancel := context.WithCancel(context.Background())
					timer := time.AfterFunc(time.Duration(random.IntN(400))*time.Microsecond, cancel)
					committing, err := writeSomehow(ctx, db, random.IntN(6), id)
					timer.Stop()
					cancel()
					switch {
					case err == nil:
						acknowledged.Store(id, true)
					case committing:
						maybe.Store(id, true)
						fallthrough
					default:
						cancelled.Add(1)
						if !errors.Is(err, context.Canceled) && !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, coopsqlite.ErrTxAborted) {
							t.Errorf("not the context's error: %v", err)
						}
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d of %d were cancelled", cancelled.Load(), ids.Load())

		requirePoolInAutocommit(t, db)
		require.Equal(t, "ok", value(t, db, "PRAGMA integrity_check"))
		parts := map[int64]int{}
		rows, err := db.Query("SELECT id, count(*) FROM u GROUP BY id")
		require.NoError(t, err)
		for rows.Next() {
			var id int64
			var n int
			require.NoError(t, rows.Scan(&id, &n))
			parts[id] = n
		}
		require.NoError(t, rows.Close())
		for id := int64(1); id <= ids.Load(); id++ {
			_, acked := acknowledged.Load(id)
			_, unclear := maybe.Load(id)
			switch n := parts[id]; {
			case acked && n != 3:
				t.Errorf("%d was acknowledged, and has %d rows of 3", id, n)
			case !acked && !unclear && n != 0:
				t.Errorf("%d failed, and has %d rows", id, n)
			case n != 0 && n != 3:
				t.Errorf("%d has %d rows of 3", id, n)
			}
		}
		requireGateFree(t, db)
		require.NoError(t, db.Close())
		requireNoGoroutineLeft(t, before)
	})
}

// writeSomehow writes three rows for id, all or none. It reports whether its
// error came from a COMMIT, whose outcome an error does not tell.
func writeSomehow(ctx context.Context, db *sql.DB, how int, id int64) (committing bool, err error) {
	const three = "INSERT INTO u SELECT ?1, value FROM json_each('[1,2,3]')"
	switch how {
	case 0: // autocommit
		_, err := db.ExecContext(ctx, three, id)
		return false, err
	case 1: // RETURNING in autocommit
		rows, err := db.QueryContext(ctx, three+" RETURNING part", id)
		if err != nil {
			return false, err
		}
		for rows.Next() {
		}
		// The rows are written; what fails, if anything, is to read them.
		return true, errors.Join(rows.Err(), rows.Close())
	case 2: // raw
		c, err := db.Conn(ctx)
		if err != nil {
			return false, err
		}
		defer c.Close()
		for _, s := range []string{"BEGIN", fmt.Sprintf("INSERT INTO u VALUES(%d,1), (%[1]d,2), (%[1]d,3)", id)} {
			if _, err := c.ExecContext(ctx, s); err != nil {
				return false, err
			}
		}
		_, err = c.ExecContext(ctx, "COMMIT")
		return true, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	statement := ctx
	if how == 3 {
		statement = context.Background()
	}
	for part := range 3 {
		if how == 4 {
			rows, err := tx.QueryContext(ctx, "SELECT * FROM u LIMIT 50")
			if err != nil {
				return false, err
			}
			rows.Next()
			defer rows.Close()
		}
		if _, err := tx.ExecContext(statement, "INSERT INTO u VALUES(?, ?)", id, part); err != nil {
			return false, err
		}
	}
	return true, tx.Commit()
}
