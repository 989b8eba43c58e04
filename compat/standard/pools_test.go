package standard_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

// Benchmarks and many services open two pools on one file: one connection that
// writes, and several that read.
func TestWriterPoolAndReaderPool(t *testing.T) {
	pools := map[string]func(path string) (writer, reader string){
		"reader beside the owner": func(path string) (string, string) {
			return harness.DSN(path), harness.DSN(path, "mode", "ro")
		},
		"one ownership in the process": func(path string) (string, string) {
			dsn := harness.DSN(path, "_coop_owner", "process")
			return dsn, dsn
		},
	}
	for name, dsns := range pools {
		t.Run(name, func(t *testing.T) {
			path := harness.Path(t)
			writerDSN, readerDSN := dsns(path)
			writer := harness.Open(t, writerDSN)
			writer.SetMaxOpenConns(1)
			harness.Exec(t, writer, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
			reader := harness.Open(t, readerDSN)
			reader.SetMaxOpenConns(4)

			const rows = 500
			done := make(chan struct{})
			failed := make(chan error, 5)
			var group sync.WaitGroup
			group.Go(func() {
				defer close(done)
				for range rows {
					if _, err := writer.Exec("INSERT INTO foo DEFAULT VALUES"); err != nil {
						failed <- err
						return
					}
				}
			})
			for range 4 {
				group.Go(func() {
					for last := 0; ; {
						var n int
						if err := reader.QueryRow("SELECT count(*) FROM foo").Scan(&n); err != nil {
							failed <- err
							return
						}
						if n < last {
							failed <- errors.New("a reader went back in time")
							return
						}
						last = n
						select {
						case <-done:
							return
						default:
						}
					}
				})
			}
			group.Wait()
			close(failed)
			for err := range failed {
				require.NoError(t, err)
			}
			var n int
			require.NoError(t, reader.QueryRow("SELECT count(*) FROM foo").Scan(&n))
			require.Equal(t, rows, n)
			harness.Guarded(t, writer, path)
		})
	}
}

func TestSecondPoolOnAnOwnedStoreIsRefusedAndNamesTheHolder(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path, "_coop_app", "billing"))
	harness.Exec(t, db, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	_, err := openAndPing(harness.DSN(path))
	require.ErrorContains(t, err, "Another Coop writer owns this store")
	require.ErrorContains(t, err, "billing")
	harness.Guarded(t, db, path)

	require.NoError(t, db.Close())
	again, err := openAndPing(harness.DSN(path))
	require.NoError(t, err, "closing gives the store back")
	require.NoError(t, again.Close())
}

func openAndPing(dsn string) (*sql.DB, error) {
	db, err := sql.Open(harness.Driver, dsn)
	if err != nil {
		return nil, err
	}
	if err := db.Ping(); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

func TestMemoryStoresAsUnitTestsUseThem(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, dsn := range map[string]string{
		"plain":            ":memory:",
		"with parameters":  ":memory:?_foreign_keys=on",
		"URI":              "file::memory:",
		"named and shared": "file:units?mode=memory&cache=shared",
		"temporary":        "",
	} {
		t.Run(name, func(t *testing.T) {
			one := harness.Open(t, dsn)
			one.SetMaxOpenConns(1)
			two := harness.Open(t, dsn)
			two.SetMaxOpenConns(1)
			harness.Exec(t, one, "CREATE TABLE foo (id INTEGER PRIMARY KEY)", "INSERT INTO foo VALUES (1)")
			var n int
			require.NoError(t, one.QueryRow("SELECT count(*) FROM foo").Scan(&n))
			require.Equal(t, 1, n)
			require.NoError(t, one.QueryRow("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'foo'").Scan(&n))
			require.Equal(t, 3, n, "what a unit test sees is what the service will see")

			store, err := coopsqlite.StoreOf(one)
			require.NoError(t, err)
			_, verifyErr := store.Verify(t.Context())
			err = two.QueryRow("SELECT count(*) FROM foo").Scan(&n)
			if name == "named and shared" {
				require.NoError(t, err)
				require.NoError(t, verifyErr)
			} else {
				require.ErrorContains(t, err, "no such table", "each connection has a store of its own")
				require.ErrorContains(t, verifyErr, "cache=shared", "there is no store as a whole")
			}
		})
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestEmptyNameLeavesNoFileAndNeedsNoLock(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for range 2 {
		db, err := sql.Open(harness.Driver, "")
		require.NoError(t, err)
		defer db.Close()
		require.NotNil(t, db.Driver())
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

// A tool that holds the only connection and asks the pool for another one must
// get an error when its context ends; nothing may hang.
func TestOneConnectionPoolAnswersWhoAsksForASecondOne(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	db.SetMaxOpenConns(1)
	harness.Exec(t, db, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(ctx, "INSERT INTO foo DEFAULT VALUES")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, held.Close())
	harness.Exec(t, db, "INSERT INTO foo DEFAULT VALUES")
	harness.Guarded(t, db, path)
}

// The same, where the pool has a connection to give but the first one holds a
// write transaction: the error names who holds it.
func TestWriterBehindAnOpenTransactionIsToldWhoHoldsIt(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path, "_busy_timeout", "100"))
	harness.Exec(t, db, "CREATE TABLE foo (id INTEGER PRIMARY KEY)")
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO foo DEFAULT VALUES")
	require.ErrorContains(t, err, "pools_test.go")
	require.NoError(t, tx.Rollback())
	harness.Exec(t, db, "INSERT INTO foo DEFAULT VALUES")
	harness.Guarded(t, db, path)
}
