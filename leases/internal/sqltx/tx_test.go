package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

func open(t *testing.T, path string) (*sql.DB, *sqltx.Store) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?_busy_timeout=0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := sqltx.New(db, sqltx.SQLite, nil)
	require.NoError(t, err)
	require.NoError(t, s.Ensure(t.Context()))
	return db, s
}

func TestBeginHoldsTheWriteLockBeforeAnythingIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	_, s := open(t, path)
	other, _ := open(t, path)

	tx, err := s.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(`INSERT INTO coop_clock VALUES (1, '', 0, 0)`)
	require.True(t, sqltx.IsBusy(err), "%v", err)
	require.NoError(t, tx.Commit())
	_, err = other.Exec(`INSERT INTO coop_clock VALUES (1, '', 0, 0)`)
	require.NoError(t, err)
}

func TestWriteStartsOverUntilTheOtherWriterIsDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	_, s := open(t, path)
	_, other := open(t, path)

	holder, err := other.Begin(t.Context())
	require.NoError(t, err)
	written := make(chan error)
	go func() {
		written <- s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := s.Now(ctx, tx)
			return err
		})
	}()
	select {
	case err := <-written:
		t.Fatalf("Write returned beside another writer: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, holder.Commit())
	require.NoError(t, <-written)
}

func TestWriteBesideAnotherWriterEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	_, s := open(t, path)
	_, other := open(t, path)

	holder, err := other.Begin(t.Context())
	require.NoError(t, err)
	defer holder.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = s.Write(ctx, func(context.Context, *sql.Tx) error { return nil })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, sqltx.IsBusy(err), "it says what was in the way: %v", err)
}

func TestTransactionIsRolledBackWhenItsContextEnds(t *testing.T) {
	db, s := open(t, filepath.Join(t.TempDir(), "store.db"))
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(`INSERT INTO coop_clock VALUES (1, '', 0, 0)`)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, tx.Commit(), context.Canceled)
	var rows int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM coop_clock`).Scan(&rows))
	require.Zero(t, rows)
	require.Zero(t, db.Stats().InUse, "the connection is back in the pool")
}

func TestWriteLeavesNothingBehindWhenItsBodyFails(t *testing.T) {
	db, s := open(t, filepath.Join(t.TempDir(), "store.db"))
	boom := errors.New("boom")
	require.ErrorIs(t, s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.Now(ctx, tx)
		require.NoError(t, err)
		return boom
	}), boom)
	var rows int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM coop_clock`).Scan(&rows))
	require.Zero(t, rows)
	require.Zero(t, db.Stats().InUse)
}

func TestTwoStoresOnOneFileReadTheSameClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	_, first := open(t, path)
	_, second := open(t, path)
	read := func(s *sqltx.Store) (now int64) {
		require.NoError(t, s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) (err error) {
			now, err = s.Now(ctx, tx)
			return err
		}))
		return now
	}
	a, b, c := read(first), read(second), read(first)
	require.Less(t, a, b)
	require.Less(t, b, c)
	peeked, err := second.Peek(t.Context())
	require.NoError(t, err)
	require.Less(t, c, peeked)
}

func TestNamesAreQuoted(t *testing.T) {
	for given, want := range map[string]string{
		"t":         `"t"`,
		`we"ird`:    `"we""ird"`,
		"side.t":    `"side"."t"`,
		"Übergröße": `"Übergröße"`,
	} {
		name, err := sqltx.ParseName(given)
		require.NoError(t, err)
		require.Equal(t, want, name.String())
	}
	for _, bad := range []string{"", ".", "a.", ".b", "a.b.c", "a\x00b"} {
		_, err := sqltx.ParseName(bad)
		require.Error(t, err, "%q", bad)
	}
}

func TestRebindNumbersThePlaceholdersOfPostgres(t *testing.T) {
	require.Equal(t, "a = $1 AND b = $2", sqltx.Postgres.Rebind("a = ? AND b = ?"))
	require.Equal(t, "a = ? AND b = ?", sqltx.SQLite.Rebind("a = ? AND b = ?"))
}

func TestPoolIsNotTakenForATransaction(t *testing.T) {
	db, _ := open(t, filepath.Join(t.TempDir(), "store.db"))
	require.ErrorIs(t, sqltx.CheckTx(db), sqltx.ErrNotATransaction)
	require.ErrorIs(t, sqltx.CheckTx(nil), sqltx.ErrNotATransaction)
	require.ErrorIs(t, sqltx.CheckTx((*sql.Tx)(nil)), sqltx.ErrNotATransaction)
	require.NoError(t, sqltx.CheckTx(&sql.Tx{}))
}
