package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// querier is where statements of a test run: a connection or a
// transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// TestRowsOpenSideBySideAreThoseOfMattnsDriver opens, reads and closes several rows
// at once, in the same random order on both drivers.
func TestRowsOpenSideBySideAreThoseOfMattnsDriver(t *testing.T) {
	reads := []string{
		"SELECT * FROM t WHERE k = ?1 ORDER BY a", "SELECT a, s, ?1 FROM t WHERE a > ?1", "SELECT count(*), ?1 FROM t", "SELECT ?1 || s FROM t",
		"SELECT d, bo FROM t WHERE k = ?1 UNION ALL SELECT s, a FROM t WHERE k = ?1 + 1",
	}
	writes := []string{
		"INSERT INTO w (x) VALUES (?1), (?1), (?1), (?1) RETURNING id, x", "UPDATE w SET x = x || ?1 RETURNING *",
		"DELETE FROM w WHERE id % 3 = ?1 RETURNING id", "INSERT INTO w (x) SELECT a FROM t WHERE k = ?1 RETURNING x, id, typeof(x)",
	}
	in := map[string]func(db *sql.DB, ours bool) (querier, func() error){
		"a transaction": func(db *sql.DB, _ bool) (querier, func() error) {
			tx, err := db.Begin()
			require.NoError(t, err)
			return tx, tx.Rollback
		},
		"a ReadOnly transaction": func(db *sql.DB, ours bool) (querier, func() error) {
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: ours}) // mattn's does not know it
			require.NoError(t, err)
			return tx, tx.Rollback
		},
		"autocommit": func(db *sql.DB, _ bool) (querier, func() error) {
			conn := grab(t, db)
			return conn, conn.Close
		},
	}
	for seed := range uint64(10) {
		for where, begin := range in {
			random := rand.New(rand.NewPCG(seed, 7))
			var sides [2]querier
			for i, open := range []func(testing.TB, string) *sql.DB{openPlain, open} {
				db := open(t, newPath(t)+fmt.Sprintf("?_journal_mode=WAL&_stmt_cache_size=%d", 2+126*(seed%2)))
				mustExec(t, db, "CREATE TABLE t (k, a, s TEXT, d DATETIME, bo BOOLEAN)", "CREATE TABLE w (id INTEGER PRIMARY KEY, x)",
					"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 120) INSERT INTO t SELECT i % 7, i, substr(hex(zeroblob(i * (i % 5) * 20)), 1, (i * i * 37) % 9000), i * 1000, i % 2 FROM n")
				side, end := begin(db, i == 1)
				sides[i] = side
				defer end()
			}
			var pairs [][2]*sql.Rows
			for range 300 {
				switch n := random.IntN(10); {
				case n < 2 && len(pairs) < 6:
					query := reads[random.IntN(len(reads))]
					if where == "a transaction" && random.IntN(3) == 0 {
						query = writes[random.IntN(len(writes))]
					}
					var arg any = random.IntN(12)
					if strings.HasPrefix(query, "SELECT ?1 ||") {
						arg = strings.Repeat("ä", random.IntN(6000))
					}
					var pair [2]*sql.Rows
					for i, side := range sides {
						var err error
						pair[i], err = side.QueryContext(t.Context(), query, arg)
						require.NoError(t, err)
					}
					pairs = append(pairs, pair)
				case len(pairs) > 0:
					at := random.IntN(len(pairs))
					for more := random.IntN(20); more >= 0; more-- {
						want, got := next(t, pairs[at][0]), next(t, pairs[at][1])
						require.Equal(t, want, got, "%s, seed %d", where, seed)
						if more > 0 && got != nil {
							continue
						}
						if n == 2 || got == nil {
							require.NoError(t, pairs[at][0].Close())
							require.NoError(t, pairs[at][1].Close())
							pairs = slices.Delete(pairs, at, at+1)
						}
						break
					}
				}
			}
			for _, pair := range pairs {
				require.NoError(t, pair[0].Close())
				require.NoError(t, pair[1].Close())
			}
		}
	}
}

// next is the next row, or nil.
func next(t *testing.T, rows *sql.Rows) []any {
	t.Helper()
	columns, err := rows.Columns()
	require.NoError(t, err)
	if !rows.Next() {
		require.NoError(t, rows.Err())
		return nil
	}
	row, dest := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		dest[i] = &row[i]
	}
	require.NoError(t, rows.Scan(dest...))
	return row
}
