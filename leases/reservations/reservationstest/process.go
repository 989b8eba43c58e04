package reservationstest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

// clientEnv carries the configuration of a client's process.
const clientEnv = "RESERVATIONSTEST_CLIENT"

const (
	skus = 3
	keys = 1200 // few enough that clients meet over them
)

type clientConfig struct {
	Store leasetest.Store
	Seed  uint64
}

// An outcome is what a client was told: it counts, whatever happens to the
// client next.
type outcome struct {
	Key    string
	Status reservations.Status `json:",omitempty"` // of Reserve
	State  reservations.State  `json:",omitempty"` // of Confirm and Cancel
}

// Main is for TestMain of a test that runs clients as processes: in a process
// that the test started it is one and never returns, in any other it does
// nothing.
func Main() {
	config := os.Getenv(clientEnv)
	if config == "" {
		return
	}
	go endWithParent()
	if err := shopForEver(config); err != nil {
		fmt.Fprintln(os.Stderr, "reservationstest client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// endWithParent ends this process when the test that started it is gone, however
// that ended: nobody else holds the other end of its standard input.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

func shopForEver(config string) error {
	var c clientConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	db, err := sql.Open(c.Store.Driver, c.Store.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	repo, err := reservations.New(db, &reservations.Options{Dialect: c.Store.Dialect})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(outcome{Key: "ready"}); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(c.Seed, 0))
	for {
		if err := shop(repo, r, func(o outcome) error { return out.Encode(o) }); err != nil {
			return err
		}
	}
}

// shop does one thing or two and tells their outcome.
func shop(repo *reservations.Repository, r *rand.Rand, tell func(outcome) error) error {
	ctx := context.Background()
	n := r.Uint64N(keys)
	key := fmt.Sprint(n)
	receipt, err := repo.Reserve(ctx, requestOf(n))
	if err != nil {
		return err
	}
	if err := tell(outcome{Key: key, Status: receipt.Status}); err != nil {
		return err
	}
	var decided reservations.Reservation
	switch r.IntN(8) {
	case 0, 1:
		decided, err = repo.Confirm(ctx, "", key, outbox.Event{AggregateType: "confirmed", AggregateID: key, Type: "order.confirmed"})
	case 2:
		decided, err = repo.Cancel(ctx, "", key)
	case 3:
		_, err = repo.ExpireHolds(ctx)
		return err
	default:
		return nil
	}
	if errors.Is(err, reservations.ErrHoldEnded) || errors.Is(err, reservations.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return tell(outcome{Key: key, State: decided.State})
}

// requestOf is the request with that key: always the same one.
func requestOf(n uint64) reservations.Request {
	r := rand.New(rand.NewPCG(n, 1))
	key := fmt.Sprint(n)
	request := reservations.Request{Key: key, Event: event(key)}
	for range 1 + r.IntN(skus) {
		request.Lines = append(request.Lines, reservations.Line{SKU: fmt.Sprint(r.IntN(skus)), Quantity: 1 + r.Int64N(2)})
	}
	if r.IntN(3) > 0 {
		request.Hold = time.Duration(1+r.IntN(50)) * time.Millisecond
	}
	return request
}

// RunKills lets many processes reserve, confirm, cancel and expire at once and
// kills them at random moments of a life that long, that many times. Then it wants that nothing was
// lost or made up, and that what a client was told is true. TestMain must call
// [Main].
func RunKills(t *testing.T, target leasetest.Store, processes, kills int, life time.Duration) {
	const perSKU = 300
	db, err := sql.Open(target.Driver, target.DSN)
	require.NoError(t, err)
	defer db.Close()
	repo, err := reservations.New(db, &reservations.Options{Dialect: target.Dialect})
	require.NoError(t, err)
	for n := range skus {
		require.NoError(t, repo.SetStock(t.Context(), fmt.Sprint(n), perSKU))
	}

	var mu sync.Mutex
	var told []outcome
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			for n := p; n < kills; n += processes {
				client, err := startClient(target, uint64(n))
				if !assert.NoError(t, err) {
					return
				}
				time.AfterFunc(rand.N(life), func() { _ = client.cmd.Process.Kill() })
				heard := client.listen()
				assert.Equal(t, -1, client.cmd.ProcessState.ExitCode(), "the client ended by itself")
				mu.Lock()
				told = append(told, heard...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	s := &store{T: t, db: db, dialect: target.Dialect, repo: repo}
	time.Sleep(50 * time.Millisecond) // every hold is over now
	_, err = repo.ExpireHolds(t.Context())
	require.NoError(t, err)
	s.balance(skus * perSKU)
	require.Zero(t, s.number(`SELECT count(*) FROM coop_reservations WHERE state = 'held'`))
	s.oneEventEach()
	s.truthOf(told)
	t.Logf("%d kills, %d outcomes told, %d reservations", kills, len(told), s.number(`SELECT count(*) FROM coop_reservations`))
}

// oneEventEach wants one event for every reservation and one for every hold
// that was confirmed, and no others.
func (s *store) oneEventEach() {
	s.Helper()
	for _, wrong := range []string{
		`SELECT count(*) FROM coop_reservations r WHERE (SELECT count(*) FROM coop_outbox o
			WHERE o.aggregate_type = 'order' AND o.aggregate_id = r.op_key) <> 1`,
		`SELECT count(*) FROM coop_reservations r WHERE held_until IS NOT NULL AND (SELECT count(*) FROM coop_outbox o
			WHERE o.aggregate_type = 'confirmed' AND o.aggregate_id = r.op_key) <> CASE WHEN r.state = 'confirmed' THEN 1 ELSE 0 END`,
		`SELECT count(*) FROM coop_outbox o WHERE NOT EXISTS (SELECT 1 FROM coop_reservations r WHERE r.op_key = o.aggregate_id)`,
	} {
		require.Zero(s, s.number(wrong), wrong)
	}
}

// truthOf wants that the database agrees with what clients were told.
func (s *store) truthOf(told []outcome) {
	s.Helper()
	accepted := map[string]int{}
	for _, o := range told {
		switch {
		case o.Status == reservations.Accepted:
			accepted[o.Key]++
			require.Equal(s, 1, accepted[o.Key], "key %s was accepted twice", o.Key)
			fallthrough
		case o.Status == reservations.Replayed:
			_, err := s.repo.Get(s.Context(), "", o.Key)
			require.NoError(s, err, "key %s was %s", o.Key, o.Status)
		case o.State != "":
			s.state(o.Key, o.State)
		}
	}
	require.NotEmpty(s, accepted)
}

type client struct {
	cmd *exec.Cmd
	out *json.Decoder
}

// startClient starts a client as a process of its own, and returns when it works.
func startClient(target leasetest.Store, seed uint64) (client, error) {
	config, err := json.Marshal(clientConfig{target, seed})
	if err != nil {
		return client{}, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clientEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // see endWithParent
		return client{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return client{}, err
	}
	if err := cmd.Start(); err != nil {
		return client{}, err
	}
	c := client{cmd, json.NewDecoder(bufio.NewReader(out))}
	var ready outcome
	if err := c.out.Decode(&ready); err != nil {
		_ = cmd.Process.Kill()
		return client{}, fmt.Errorf("client did not start: %w, %w", err, cmd.Wait())
	}
	return c, nil
}

// listen returns what the client tells until it is killed. What it said last
// may be cut off: then nobody was told.
func (c client) listen() []outcome {
	var heard []outcome
	for {
		var o outcome
		if c.out.Decode(&o) != nil {
			_ = c.cmd.Wait()
			return heard
		}
		heard = append(heard, o)
	}
}
