package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// relayOn runs a relay on the pool until the test ends and returns what it
// delivers.
func relayOn(t *testing.T, db *sql.DB, options outbox.RelayOptions) (*outbox.Outbox, <-chan outbox.Delivery) {
	t.Helper()
	box, err := outbox.New(db, nil)
	require.NoError(t, err)
	relay, err := box.Relay(&options)
	require.NoError(t, err)
	delivered := make(chan outbox.Delivery, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- relay.Run(ctx, func(_ context.Context, d outbox.Delivery) error { delivered <- d; return nil })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return box, delivered
}

func appendOne(t *testing.T, db *sql.DB, box *outbox.Outbox) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, box.Append(t.Context(), tx, outbox.Event{Type: "t"}))
	require.NoError(t, tx.Commit())
}

func wait(t *testing.T, delivered <-chan outbox.Delivery) {
	t.Helper()
	select {
	case <-delivered:
	case <-time.After(30 * time.Second):
		t.Fatal("waited in vain for a delivery")
	}
}

// statements counts what the owner's connections have been asked.
func statements(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	s := store.Stats()
	return s.StmtHits + s.StmtMisses
}

func TestRelayOfTheOwnerIsWokenByTheCommitAndNeverPolls(t *testing.T) {
	for _, owner := range []string{"exclusive", "process"} {
		t.Run(owner, func(t *testing.T) {
			db := open(t, "coopsqlite", "&_coop_watch=0&_coop_owner="+owner)
			box, delivered := relayOn(t, db, outbox.RelayOptions{Poll: time.Millisecond})
			appendOne(t, db, box)
			wait(t, delivered)
			for range 3 {
				awaitQuiet(t, db)
				before := statements(t, db)
				time.Sleep(100 * time.Millisecond) // a hundred polls, if it polled
				require.Equal(t, before, statements(t, db), "an idle relay asks for nothing")
				appendOne(t, db, box)
				wait(t, delivered)
			}
		})
	}
}

// awaitQuiet waits until nothing has been asked of the store for a while, as
// when a relay has written down its last answer and found nothing else.
func awaitQuiet(t *testing.T, db *sql.DB) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for quiet, last := 0, int64(-1); quiet < 3; time.Sleep(30 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "it never rests")
		now := statements(t, db)
		if quiet++; now != last {
			quiet = 0
		}
		last = now
	}
}

func TestAppendWorksInsideOfStoreWrite(t *testing.T) {
	db := open(t, "coopsqlite", "")
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	box, delivered := relayOn(t, db, outbox.RelayOptions{Poll: time.Hour})
	refused := errors.New("refused")
	require.ErrorIs(t, store.Write(t.Context(), func(tx coopsqlite.DBTX) error {
		require.NoError(t, box.Append(t.Context(), tx, outbox.Event{Type: "never"}))
		return refused
	}), refused)
	require.NoError(t, store.Write(t.Context(), func(tx coopsqlite.DBTX) error {
		return box.Append(t.Context(), tx, outbox.Event{Type: "written"})
	}))
	select {
	case d := <-delivered:
		require.Equal(t, "written", d.Type)
	case <-time.After(30 * time.Second):
		t.Fatal("waited in vain for a delivery")
	}
}

func TestRelayIsWokenByTheCommitOfAnotherPoolOfItsProcess(t *testing.T) {
	dsn := storeDSN(t) + "&_coop_owner=process"
	pools := make([]*sql.DB, 2)
	for i := range pools {
		var err error
		pools[i], err = sql.Open("coopsqlite", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pools[i].Close()) })
	}
	_, delivered := relayOn(t, pools[0], outbox.RelayOptions{Poll: time.Hour})
	box, err := outbox.New(pools[1], nil)
	require.NoError(t, err)
	for range 5 {
		appendOne(t, pools[1], box)
		wait(t, delivered)
	}
}

func TestRelayOfASharedStoreFindsWhatAnotherProcessAppended(t *testing.T) {
	dsn := storeDSN(t) + "&_coop_owner=shared"
	pools := make([]*sql.DB, 2)
	for i := range pools {
		var err error
		pools[i], err = sql.Open("coopsqlite", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pools[i].Close()) })
	}
	_, delivered := relayOn(t, pools[0], outbox.RelayOptions{Poll: 10 * time.Millisecond})
	box, err := outbox.New(pools[1], nil)
	require.NoError(t, err)
	appendOne(t, pools[1], box)
	wait(t, delivered)
}
