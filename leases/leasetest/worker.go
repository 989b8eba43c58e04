package leasetest

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
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
	// StopAt: the process stands still before its nth call to the database.
	StopAt int `json:",omitempty"`
	// StopAtCommitOf: before it commits the first transaction with a
	// statement that begins like this.
	StopAtCommitOf string `json:",omitempty"`
}

// stopped is the ID of the message that a process stands still.
const stopped = -1

// open opens the store, with the stops that are wanted; stop is called at
// one and does not return.
func (c workerConfig) open(stop func()) (*sql.DB, error) {
	if c.StopAt == 0 && c.StopAtCommitOf == "" {
		return sql.Open(c.Store.Driver, c.Store.DSN)
	}
	var mu sync.Mutex
	calls, armed := 0, false
	return OpenObserved(c.Store.Driver, c.Store.DSN, func(call string) {
		mu.Lock()
		calls++
		if c.StopAtCommitOf != "" && strings.HasPrefix(call, c.StopAtCommitOf) {
			armed = true
		}
		now := calls == c.StopAt || armed && call == "COMMIT"
		mu.Unlock()
		if now {
			stop()
		}
	}, nil)
}

// work answers requests, each in a goroutine of its own, until there are no
// more.
func work(config string, requests io.Reader, responses io.Writer) error {
	var c workerConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(responses)
	answer := func(r response) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r) // the reader is gone only when this process is to go
	}
	db, err := c.open(func() {
		answer(response{ID: stopped})
		select {}
	})
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := newServer(c.Store, db, c.Owner)
	if err != nil {
		return err
	}
	in := json.NewDecoder(requests)
	answer(response{}) // ready
	for {
		var q request
		if err := in.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		go func() { answer(s.serve(q)) }()
	}
}

// Worker is one party that competes for leases: a Manager of its own, in this
// process or in another.
type Worker struct {
	t       *testing.T
	Owner   string
	process *os.Process     // nil if it lives in this one
	stopped <-chan struct{} // closed when it stands still, as configured
	kill    func()
	call    func(request) (response, error)
}

// Stop makes the worker's process stand still, until Continue.
func (w *Worker) Stop() { require.NoError(w.t, w.process.Signal(syscall.SIGSTOP)) }

// Continue lets it go on.
func (w *Worker) Continue() { require.NoError(w.t, w.process.Signal(syscall.SIGCONT)) }

// Kill ends the worker's process with SIGKILL and waits for its end.
func (w *Worker) Kill() { w.kill() }

// StartWorker starts a worker as a process of its own. The test binary's
// TestMain must call [Main]. It is killed when the test ends.
func StartWorker(t *testing.T, s Store, owner string) *Worker {
	t.Helper()
	return startWorker(t, workerConfig{Store: s, Owner: owner})
}

func startWorker(t *testing.T, c workerConfig) *Worker {
	t.Helper()
	config, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	cl := &client{in: json.NewEncoder(in), waiting: map[int]chan response{}, gone: make(chan struct{}), stopped: make(chan struct{})}
	decoder := json.NewDecoder(bufio.NewReader(out))
	var first response
	require.NoError(t, decoder.Decode(&first), "worker %s did not start", c.Owner)
	if first.ID == stopped {
		close(cl.stopped)
	}
	go cl.receive(decoder)
	return &Worker{t: t, Owner: c.Owner, process: cmd.Process, stopped: cl.stopped, kill: kill, call: cl.call}
}

// client is this side of a process worker.
type client struct {
	mu      sync.Mutex
	in      *json.Encoder
	last    int
	waiting map[int]chan response
	gone    chan struct{}
	stopped chan struct{}
}

func (c *client) receive(decoder *json.Decoder) {
	defer close(c.gone)
	for {
		var r response
		if decoder.Decode(&r) != nil {
			return
		}
		if r.ID == stopped {
			close(c.stopped)
			continue
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
