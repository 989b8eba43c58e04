package leases_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases"
)

// openExample opens a store in a folder of its own, for one process.
func openExample() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "leases")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("coopsqlite", "file:"+filepath.Join(dir, "app.db")+"?_journal_mode=WAL")
	if err != nil {
		log.Fatal(err)
	}
	return db, func() { db.Close(); os.RemoveAll(dir) }
}

// A job that is due on every machine of a cluster, and must run on one.
func ExampleManager_With() {
	db, remove := openExample()
	defer remove()
	ctx := context.Background()
	if _, err := db.Exec(`CREATE TABLE runs (day TEXT PRIMARY KEY, worker TEXT)`); err != nil {
		log.Fatal(err)
	}

	nightly := func(worker string) error {
		m, err := leases.New(db, &leases.Options{Owner: worker})
		if err != nil {
			return err
		}
		defer m.Close()
		err = m.With(ctx, "nightly", 30*time.Second, 0, func(ctx context.Context, l *leases.Lease) error {
			// The Tx commits only while the lease is held; the primary key makes
			// a second run on the same day, after the first has ended, do nothing.
			return l.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO runs VALUES ('2024-05-17', ?) ON CONFLICT DO NOTHING`, worker)
				return err
			})
		})
		if errors.Is(err, leases.ErrHeld) {
			return nil // somebody else is at it
		}
		return err
	}

	var cluster sync.WaitGroup
	for _, worker := range []string{"worker-a", "worker-b", "worker-c"} {
		cluster.Go(func() {
			if err := nightly(worker); err != nil {
				log.Print(err)
			}
		})
	}
	cluster.Wait()
	var runs int
	if err := db.QueryRow(`SELECT count(*) FROM runs`).Scan(&runs); err != nil {
		log.Fatal(err)
	}
	fmt.Println("runs:", runs)
	// Output: runs: 1
}

// One leader at a time; when it is gone another takes over.
func ExampleManager_Elect() {
	db, remove := openExample()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	terms := make(chan int64)
	var cluster sync.WaitGroup
	for _, worker := range []string{"worker-a", "worker-b"} {
		m, err := leases.New(db, &leases.Options{Owner: worker})
		if err != nil {
			log.Fatal(err)
		}
		defer m.Close()
		cluster.Go(func() {
			_ = m.Elect(ctx, "leader", 10*time.Second, func(ctx context.Context, l *leases.Lease) error {
				select {
				case terms <- l.Info().Epoch: // lead, for a while
				case <-ctx.Done():
				}
				return nil // and step down
			})
		})
	}
	fmt.Println("term", <-terms)
	fmt.Println("term", <-terms)
	cluster.Wait()
	// Output:
	// term 1
	// term 2
}

// documents is somebody else's service, which takes part in the fencing: it
// refuses an epoch smaller than the greatest that it has seen.
func documents() http.Handler {
	var mu sync.Mutex
	var greatest int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		epoch, err := strconv.ParseInt(r.Header.Get("Fencing-Token"), 10, 64)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || epoch < greatest {
			http.Error(w, "superseded", http.StatusPreconditionFailed)
			return
		}
		greatest = epoch
	})
}

// A holder that was paused wakes up after somebody else was granted the lease.
// It cannot know, but the service it calls can.
func ExampleLease_Info() {
	db, remove := openExample()
	defer remove()
	ctx := context.Background()
	api := httptest.NewServer(documents())
	defer api.Close()
	m, err := leases.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	write := func(l *leases.Lease) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, api.URL+"/report", nil)
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("Fencing-Token", strconv.FormatInt(l.Info().Epoch, 10))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Status
	}

	paused, err := m.Acquire(ctx, "report", time.Second, 0)
	if err != nil {
		log.Fatal(err)
	}
	next, err := m.Acquire(ctx, "report", time.Minute, -1) // once that has expired
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(write(next))
	fmt.Println(write(paused))
	// Output:
	// 200 OK
	// 412 Precondition Failed
}
