package leasetest

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
)

// workerEnv carries a process worker's configuration.
const workerEnv = "LEASETEST_WORKER"

// Main is for TestMain of a test that runs the suite with processes: in a
// process that the suite started it does that process's work and exits, in
// any other it does nothing.
func Main() {
	config := os.Getenv(workerEnv)
	if config == "" {
		return
	}
	if err := work(config, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leasetest worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type workerConfig struct {
	Store Store
	Owner string
}

// work answers requests, each in a goroutine of its own, until there are no
// more.
func work(config string, requests io.Reader, responses io.Writer) error {
	var c workerConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	db, err := sql.Open(c.Store.Driver, c.Store.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := newServer(c.Store, db, c.Owner)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(responses)
	in := json.NewDecoder(requests)
	if err := out.Encode(response{}); err != nil { // ready
		return err
	}
	for {
		var q request
		if err := in.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			r := s.serve(q)
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(r) // the reader is gone only when this process is to go
		}()
	}
}

// Worker is one party that competes for leases: a Manager of its own, in this
// process or in another.
type Worker struct {
	t     *testing.T
	Owner string
	// Process is the worker's process, to stop and to kill; nil if it lives in
	// this one.
	Process *os.Process
	call    func(request) (response, error)
}

// StartWorker starts a worker as a process of its own. The test binary's
// TestMain must call [Main]. It is killed when the test ends.
func StartWorker(t *testing.T, s Store, owner string) *Worker {
	t.Helper()
	config, err := json.Marshal(workerConfig{s, owner})
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &client{in: json.NewEncoder(in), waiting: map[int]chan response{}, gone: make(chan struct{})}
	decoder := json.NewDecoder(bufio.NewReader(out))
	var ready response
	require.NoError(t, decoder.Decode(&ready), "worker %s did not start", owner)
	go c.receive(decoder)
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Worker{t: t, Owner: owner, Process: cmd.Process, call: c.call}
}

// client is this side of a process worker.
type client struct {
	mu      sync.Mutex
	in      *json.Encoder
	last    int
	waiting map[int]chan response
	gone    chan struct{}
}

func (c *client) receive(decoder *json.Decoder) {
	defer close(c.gone)
	for {
		var r response
		if decoder.Decode(&r) != nil {
			return
		}
		c.mu.Lock()
		answer := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		answer <- r
	}
}

func (c *client) call(q request) (response, error) {
	answer := make(chan response, 1)
	c.mu.Lock()
	c.last++
	q.ID = c.last
	c.waiting[q.ID] = answer
	err := c.in.Encode(q)
	c.mu.Unlock()
	if err != nil {
		return response{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-c.gone:
		return response{}, io.ErrUnexpectedEOF
	}
}

// LocalWorker starts a worker in this process, on a pool of its caller's.
func LocalWorker(t *testing.T, s Store, db *sql.DB, owner string) *Worker {
	t.Helper()
	srv, err := newServer(s, db, owner)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.m.Close()) })
	return &Worker{t: t, Owner: owner, call: func(q request) (response, error) { return srv.serve(q), nil }}
}

// Held is a lease in a worker's hands.
type Held struct {
	w      *Worker
	handle int
	Info   leases.Info // as of the last answer
}

func (w *Worker) ask(q request) (response, error) {
	r, err := w.call(q)
	if err != nil {
		return r, fmt.Errorf("worker %s: %w", w.Owner, err)
	}
	return r, r.err()
}

// Acquire acquires a lease.
func (w *Worker) Acquire(name string, ttl, maxWait time.Duration) (*Held, error) {
	r, err := w.ask(request{Op: "acquire", Name: name, TTL: ttl, MaxWait: maxWait})
	if err != nil {
		return nil, err
	}
	return &Held{w, r.Handle, r.Info}, nil
}

// MustAcquire acquires a lease that must be free.
func (w *Worker) MustAcquire(name string, ttl time.Duration) *Held {
	w.t.Helper()
	h, err := w.Acquire(name, ttl, 0)
	require.NoError(w.t, err)
	return h
}

// Hold enters With, whose body runs until Finish.
func (w *Worker) Hold(name string, ttl, maxWait time.Duration) (*Held, error) {
	r, err := w.ask(request{Op: "hold", Name: name, TTL: ttl, MaxWait: maxWait})
	if err != nil {
		return nil, err
	}
	return &Held{w, r.Handle, r.Info}, nil
}

// OwnerOf is the name of the holder, empty if there is none.
func (w *Worker) OwnerOf(name string) string {
	w.t.Helper()
	r, err := w.ask(request{Op: "owner", Name: name})
	require.NoError(w.t, err)
	require.Equal(w.t, r.OK, r.Info.Owner != "")
	return r.Info.Owner
}

// AwaitEvent waits for an event of that kind, skipping others, and returns the
// error it carries.
func (w *Worker) AwaitEvent(kind leases.EventKind, timeout time.Duration) error {
	_, err := w.ask(request{Op: "event", Name: kind.String(), Timeout: timeout})
	return err
}

// Break breaks a lease.
func (w *Worker) Break(name string, epoch int64) error {
	_, err := w.ask(request{Op: "break", Name: name, Epoch: epoch})
	return err
}

// Exec runs a statement on the worker's pool.
func (w *Worker) Exec(statement string) error {
	_, err := w.ask(request{Op: "exec", SQL: statement})
	return err
}

func (h *Held) ask(q request) error {
	q.Handle = h.handle
	r, err := h.w.ask(q)
	if r.Info.Name != "" {
		h.Info = r.Info
	}
	return err
}

// Extend extends the lease.
func (h *Held) Extend(ttl time.Duration) error { return h.ask(request{Op: "extend", TTL: ttl}) }

// Release releases it.
func (h *Held) Release() error { return h.ask(request{Op: "release"}) }

// Err is the Lease's Err.
func (h *Held) Err() error { return h.ask(request{Op: "err"}) }

// Await waits for Done, in a body for the end of its context, and returns Err.
func (h *Held) Await(timeout time.Duration) error {
	return h.ask(request{Op: "await", Timeout: timeout})
}

// Tx runs a statement in the lease's Tx; with fail the body fails after it.
func (h *Held) Tx(statement string, fail bool) error {
	return h.ask(request{Op: "tx", SQL: statement, Fail: fail})
}

// OpenTx runs a statement in the lease's Tx, whose body then waits for Finish.
func (h *Held) OpenTx(statement string) (*Held, error) {
	r, err := h.w.ask(request{Op: "tx", Handle: h.handle, SQL: statement, Pause: true})
	if err != nil {
		return nil, err
	}
	return &Held{h.w, r.Handle, r.Info}, nil
}

// Finish ends the body that Hold or OpenTx started: cause is why its context
// had ended by then, if it had, err what With or Tx returned.
func (h *Held) Finish(fail bool) (cause string, err error) {
	r, err := h.w.ask(request{Op: "finish", Handle: h.handle, Fail: fail})
	return r.Cause, err
}
