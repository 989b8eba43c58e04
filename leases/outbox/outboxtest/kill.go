package outboxtest

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// RunKills kills relays at random moments, that many, while events are appended
// and a consumer has its moods. Then it wants that every event whose
// transaction was committed was delivered, none of the others, and each
// aggregate's in order. TestMain must call [Main].
func RunKills(t *testing.T, store leasetest.Store, kills int) {
	const slots, aggregates = 4, 5
	db, err := sql.Open(store.Driver, store.DSN)
	require.NoError(t, err)
	defer db.Close()
	box, err := outbox.New(db, &outbox.Options{Dialect: store.Dialect})
	require.NoError(t, err)
	c := startConsumer(t)

	var left atomic.Int64
	left.Store(int64(kills))
	var wg sync.WaitGroup
	for range slots {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				relay, err := startRelay(store, c.url())
				if !assert.NoError(t, err) {
					return
				}
				time.Sleep(time.Duration(rand.IntN(25_000)) * time.Microsecond)
				assert.True(t, kill(relay), "the relay ended by itself")
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()

	committed := 0
	for running := true; running; {
		aggregate := ""
		if n := rand.IntN(aggregates + 1); n > 0 {
			aggregate = fmt.Sprint("a", n)
		}
		n := 1 + rand.IntN(3)
		keep := rand.IntN(4) > 0
		appendSome(t, db, box, c, aggregate, n, keep)
		if keep {
			committed += n
		}
		if rand.IntN(200) == 0 {
			c.dieAndComeBack()
		}
		select {
		case <-done:
			running = false
		case <-time.After(time.Duration(rand.IntN(10_000)) * time.Microsecond):
		}
	}
	last, err := startRelay(store, c.url())
	require.NoError(t, err)
	defer kill(last)
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		backlog, err := box.Backlog(t.Context())
		require.NoError(t, err)
		if backlog == (outbox.Backlog{}) {
			break
		}
		require.True(t, time.Now().Before(end), "still to be delivered: %+v", backlog)
	}

	total, calls := c.count()
	require.Equal(t, committed, total, "events delivered")
	t.Logf("%d kills, %d events, %d deliveries", kills, committed, calls)
}

// appendSome appends n events in a transaction, and says so to the consumer
// before they can get there.
func appendSome(t *testing.T, db *sql.DB, box *outbox.Outbox, c *consumer, aggregate string, n int, keep bool) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = outbox.Event{AggregateID: aggregate, Type: "changed", Payload: []byte(fmt.Sprint(i))}
	}
	require.NoError(t, box.Append(t.Context(), tx, events...))
	if !keep {
		return
	}
	var newest int64
	require.NoError(t, tx.QueryRow(`SELECT max(id) FROM coop_outbox`).Scan(&newest))
	for i := range n {
		c.expect(aggregate, newest-int64(n)+1+int64(i))
	}
	require.NoError(t, tx.Commit())
}
