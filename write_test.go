package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/coopsqlite/coopsqlite"
	"github.com/stretchr/testify/require"
)

func TestWriteSmoke(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	db, err := sql.Open("coopsqlite", filepath.Join(dir, "a.db")+"?_journal_mode=WAL&_sync=FULL")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t(a INTEGER PRIMARY KEY,b)")
	require.NoError(t, err)
	st, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	var wg sync.WaitGroup
	start := time.Now()
	for g := range 64 {
		wg.Go(func() {
			for i := range 500 {
				err := st.Write(ctx, func(tx coopsqlite.DBTX) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO t(b) VALUES(?)", g*1000+i)
					if i%10 == 9 {
						return errors.New("no")
					}
					return err
				})
				if (i%10 == 9) != (err != nil) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Log(time.Since(start), float64(64*500)/time.Since(start).Seconds())
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&n))
	require.Equal(t, 64*450, n)
	t.Logf("%+v", st.Stats())
	require.NoError(t, st.Bulk(ctx, []string{"t"}, func(tx coopsqlite.DBTX) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM t")
		return err
	}))
	cov, err := st.Verify(ctx)
	require.NoError(t, err)
	require.True(t, cov.Complete(), "%+v", cov)
	require.NoError(t, st.Backup(ctx, filepath.Join(dir, "b.db"), nil))
	require.NoError(t, st.Backup(ctx, filepath.Join(dir, "c.db"), &coopsqlite.BackupOptions{Plain: true}))
	s, err := st.Status(ctx)
	require.NoError(t, err)
	t.Logf("%+v", s)
	require.NoError(t, st.Unfence(ctx))
	_, err = db.Exec("CREATE TABLE u(a)")
	require.NoError(t, err)
	require.NoError(t, st.Refence(ctx))
	cov, err = st.Verify(ctx)
	require.NoError(t, err)
	require.True(t, cov.Complete(), "%+v", cov)
	db2, err := sql.Open("coopsqlite", filepath.Join(dir, "b.db"))
	require.NoError(t, err)
	_, err = db2.Exec("INSERT INTO t VALUES(1,2)")
	require.NoError(t, err)
	db2.Close()
	db3, _ := sql.Open("sqlite3", filepath.Join(dir, "c.db"))
	_, err = db3.Exec("INSERT INTO t VALUES(1,2)")
	require.NoError(t, err)
	db3.Close()
	db3, _ = sql.Open("sqlite3", filepath.Join(dir, "b.db"))
	_, err = db3.Exec("INSERT INTO t VALUES(1,2)")
	require.ErrorContains(t, err, "no such function: coop_write_permit")
	db3.Close()
	require.NoError(t, st.Drain(ctx))
	_, err = db.Exec("INSERT INTO t VALUES(1,2)")
	require.ErrorIs(t, err, coopsqlite.ErrStopped)
}
