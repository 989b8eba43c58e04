package coopsqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// drain begins a Drain, which answers later.
func drain(ctx context.Context, store *coopsqlite.Store) <-chan error {
	outcome := make(chan error, 1)
	go func() { outcome <- store.Drain(ctx) }()
	return outcome
}

func TestDrainLetsTransactionsUnderWayEnd(t *testing.T) {
	db := newStore(t, "")
	store := storeOf(t, db)
	tx := begin(t, db)
	first := drain(context.Background(), store)
	awaitWaiters(t, db, 1)
	second := drain(context.Background(), store)
	awaitWaiters(t, db, 2) // nobody is told that it is over

	_, err := db.Exec("INSERT INTO t(v) VALUES('late')")
	require.ErrorIs(t, err, coopsqlite.ErrStopped)
	_, err = tx.Exec("INSERT INTO t(v) VALUES('under way')")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	require.Equal(t, []string{"under way"}, values(t, db, "SELECT v FROM t"))
}

func TestNothingBeginsToWriteAfterDrain(t *testing.T) {
	inEachJournalMode(t, "", func(t *testing.T, db *sql.DB, _ string) {
		store := storeOf(t, db)
		require.NoError(t, store.Drain(context.Background()))
		insert := func(tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(context.Background(), "INSERT INTO t(v) VALUES(1)")
			return err
		}
		require.ErrorIs(t, insert(db), coopsqlite.ErrStopped)
		_, err := db.Begin()
		require.ErrorIs(t, err, coopsqlite.ErrStopped)
		require.ErrorIs(t, store.Write(context.Background(), insert), coopsqlite.ErrStopped)
		require.ErrorIs(t, store.Bulk(context.Background(), nil, insert), coopsqlite.ErrStopped)
		require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
		require.NoError(t, store.Backup(context.Background(), newPath(t), nil))
	})
}

func TestWritesGoOnAfterADrainThatWasGivenUp(t *testing.T) {
	db := newStore(t, "")
	store := storeOf(t, db)
	tx := begin(t, db)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, store.Drain(ctx), context.DeadlineExceeded)
	require.NoError(t, tx.Commit())
	mustExec(t, db, "INSERT INTO t(v) VALUES(1)")
}

func TestDrainInsideAWriteIsRefusedAtOnce(t *testing.T) {
	db := newStore(t, "")
	store := storeOf(t, db)
	require.NoError(t, store.Write(context.Background(), func(tx coopsqlite.DBTX) error {
		inside := tx.(interface{ Context() context.Context }).Context()
		require.ErrorIs(t, store.Drain(inside), coopsqlite.ErrNested)
		return nil
	}))
	mustExec(t, db, "INSERT INTO t(v) VALUES(1)")
}
