package leases_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	_ "github.com/coopsqlite/coopsqlite"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

// What processes that are killed and stopped at random saw of their leases
// must be explainable by one order of events, in which at most one holds a
// name at a time. https://github.com/anishathalye/porcupine

type action int

const (
	acquire action = iota
	extend
	release
	write // a Tx that commits
)

type input struct {
	action action
	name   string
	epoch  int64 // of the lease that is used
}

type outcome int

const (
	refused outcome = iota // held, or lost
	done
	unknown // nobody lived to tell
)

type output struct {
	outcome outcome
	info    leases.Info // done: the lease after it
}

// leaseState is one name. The times are the store's clock's.
type leaseState struct {
	epoch   int64
	held    bool
	expires int64 // 0: not known
}

// leaseModel judges one name.
var leaseModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(input).name
			byName[name] = append(byName[name], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byName {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{leaseState{}} },
	Step: func(state, in, out any) []any {
		s, i, o := state.(leaseState), in.(input), out.(output)
		mine := s.held && s.epoch == i.epoch
		if o.outcome == unknown {
			next := []any{s}
			switch {
			case i.action == acquire:
				next = append(next, leaseState{epoch: s.epoch + 1, held: true})
			case i.action == extend && mine:
				next = append(next, leaseState{epoch: s.epoch, held: true})
			case i.action == release && mine:
				next = append(next, leaseState{epoch: s.epoch})
			}
			return next
		}
		switch {
		case o.outcome == refused && i.action == acquire:
			if s.held {
				return []any{s}
			}
		case o.outcome == refused:
			// Lost: to a later grant, or to its expiry, which may have come.
			return []any{s}
		case i.action == acquire:
			free := !s.held || s.expires == 0 || o.info.Acquired.UnixNano() >= s.expires
			if free && o.info.Epoch == s.epoch+1 {
				return []any{leaseState{o.info.Epoch, true, o.info.Expires.UnixNano()}}
			}
		case i.action == extend:
			if mine && (s.expires == 0 || o.info.Renewed.UnixNano() < s.expires) {
				return []any{leaseState{s.epoch, true, o.info.Expires.UnixNano()}}
			}
		case i.action == release:
			if mine {
				return []any{leaseState{epoch: s.epoch}}
			}
		case i.action == write:
			if mine {
				return []any{s}
			}
		}
		return nil
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// history is what all clients did, on one clock.
type history struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) record(client int, i input, do func() (leases.Info, error)) (leases.Info, outcome) {
	called := time.Since(h.began)
	info, err := do()
	op := porcupine.Operation{ClientId: client, Input: i, Call: int64(called), Return: int64(time.Since(h.began))}
	o := output{outcome: unknown, info: info}
	switch {
	case err == nil:
		o.outcome = done
	case i.action == acquire && errors.Is(err, leases.ErrLost):
		op.Return = int64(time.Hour) // granted too late, and given back
	case errors.Is(err, leases.ErrHeld) || errors.Is(err, leases.ErrLost) || errors.Is(err, leases.ErrReleased):
		o.outcome = refused
	case errors.Is(err, leases.ErrNotExtended):
		return info, done // the lease is held, but there is nothing to record
	default:
		op.Return = int64(time.Hour) // it may take effect whenever
	}
	op.Output = o
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	return info, o.outcome
}

const (
	clients  = 4
	duration = 5 * time.Second
	ttl      = 300 * time.Millisecond
)

func checkHistories(t *testing.T, s leasetest.Store) {
	admin, err := sql.Open(s.Driver, s.DSN)
	require.NoError(t, err)
	defer admin.Close()
	_, err = leases.New(admin, &leases.Options{Dialect: s.Dialect})
	require.NoError(t, err)
	serial := "INTEGER PRIMARY KEY AUTOINCREMENT"
	if s.Dialect == leases.Postgres {
		serial = "bigint GENERATED ALWAYS AS IDENTITY"
	}
	_, err = admin.Exec(`CREATE TABLE writes (n ` + serial + `, name text NOT NULL, epoch bigint NOT NULL)`)
	require.NoError(t, err)

	h := &history{began: time.Now()}
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() { runClient(t, s, h, c) })
	}
	all.Wait()

	result := porcupine.CheckOperationsTimeout(leaseModel.ToModel(), h.ops, time.Minute)
	require.Equal(t, porcupine.Ok, result, "%d operations", len(h.ops))
	checkWrites(t, admin)
	t.Logf("%d operations", len(h.ops))
}

// runClient is one client after the other: each lives until it is killed, and
// is stopped now and then.
func runClient(t *testing.T, s leasetest.Store, h *history, c int) {
	names := []string{"x", "y", "z"}
	id := c
	for time.Since(h.began) < duration {
		w := leasetest.StartWorker(t, s, fmt.Sprintf("client-%d", id))
		lifetime := time.Duration(rand.N(1500)) * time.Millisecond
		var life sync.WaitGroup
		life.Go(func() {
			for died := time.Now().Add(lifetime); time.Now().Before(died); {
				time.Sleep(rand.N(300 * time.Millisecond))
				w.Stop()
				time.Sleep(rand.N(400 * time.Millisecond))
				w.Continue()
			}
			w.Kill()
		})
		for useLease(h, w, id, names[rand.N(len(names))]) != unknown {
		}
		life.Wait()
		id += clients // an operation of a dead client stays pending
	}
}

// useLease acquires a lease and uses it for a while. It returns the outcome of
// the last operation.
func useLease(h *history, w *leasetest.Worker, id int, name string) outcome {
	time.Sleep(rand.N(20 * time.Millisecond)) // or refusals would be most of the history
	var l *leasetest.Held
	_, o := h.record(id, input{action: acquire, name: name}, func() (leases.Info, error) {
		var err error
		l, err = w.Acquire(name, ttl, rand.N(100*time.Millisecond))
		if err != nil {
			return leases.Info{}, err
		}
		return l.Info, nil
	})
	if o != done {
		return o
	}
	epoch := l.Info.Epoch
	for range 1 + rand.N(6) {
		do := func(a action, fn func() error) {
			_, o = h.record(id, input{a, name, epoch}, func() (leases.Info, error) {
				err := fn()
				return l.Info, err
			})
		}
		switch rand.N(8) {
		case 0, 1, 2:
			do(extend, func() error { return l.Extend(ttl + rand.N(ttl)) })
		case 3, 4, 5:
			do(write, func() error {
				return l.Tx(fmt.Sprintf(`INSERT INTO writes (name, epoch) VALUES ('%s', %d)`, name, epoch), false)
			})
		case 6:
			do(release, l.Release)
			return o
		case 7:
			return o // and lets it expire
		}
		if o != done {
			return o
		}
	}
	return o
}

// checkWrites: whatever was committed under a lease was committed in the
// order of the epochs.
func checkWrites(t *testing.T, db *sql.DB) {
	rows, err := db.Query(`SELECT name, epoch FROM writes ORDER BY n`)
	require.NoError(t, err)
	defer rows.Close()
	last := map[string]int64{}
	for rows.Next() {
		var name string
		var epoch int64
		require.NoError(t, rows.Scan(&name, &epoch))
		require.GreaterOrEqual(t, epoch, last[name], "a write of an earlier holder of %s came later", name)
		last[name] = epoch
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, last)
}

func TestHistoriesOfKilledAndStoppedProcessesAreLinearizable(t *testing.T) {
	shared := func(t *testing.T) leasetest.Store {
		return leasetest.Store{Driver: "coopsqlite", DSN: "file:" + t.TempDir() + "/store.db?_journal_mode=WAL&_coop_owner=shared"}
	}
	for name, fresh := range map[string]func(*testing.T) leasetest.Store{
		"CoopsqliteShared": shared, "Modernc": modernc, "Postgres": postgres,
	} {
		t.Run(name, func(t *testing.T) { checkHistories(t, fresh(t)) })
	}
}
