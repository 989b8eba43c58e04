package leasetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
)

// request is what a test asks of a worker; response is its answer. They are
// the same whether the worker lives in this process or in one of its own.
type request struct {
	ID      int           // chosen by the caller, in the answer again
	Op      string        // see serve
	Name    string        `json:",omitempty"`
	Handle  int           `json:",omitempty"` // of a lease, from acquire or hold
	TTL     time.Duration `json:",omitempty"`
	MaxWait time.Duration `json:",omitempty"`
	Timeout time.Duration `json:",omitempty"` // of the operation's context; 0 for none
	SQL     string        `json:",omitempty"` // tx: run in its body
	Fail    bool          `json:",omitempty"` // finish, tx: the body fails
	Pause   bool          `json:",omitempty"` // tx: the body waits for a finish of its handle
	Epoch   int64         `json:",omitempty"`
}

type response struct {
	ID     int
	Handle int         `json:",omitempty"`
	Info   leases.Info `json:",omitzero"`
	OK     bool        `json:",omitempty"`
	Err    string      `json:",omitempty"`
	Is     []string    `json:",omitempty"` // which of the sentinels Err is
	Cause  string      `json:",omitempty"` // finish: why the body's context had ended, if it had
}

var errBoom = errors.New("boom")

var sentinels = map[string]error{
	"held": leases.ErrHeld, "lost": leases.ErrLost, "not extended": leases.ErrNotExtended,
	"bounds": leases.ErrBounds, "released": leases.ErrReleased, "inside": leases.ErrInsideTx,
	"closed": leases.ErrClosed, "unknown": leases.ErrOutcomeUnknown, "boom": errBoom,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
}

// remoteError is an error that crossed the protocol: its text, and what it is.
type remoteError struct {
	text string
	is   []string
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Is(target error) bool {
	for _, name := range e.is {
		if sentinels[name] == target {
			return true
		}
	}
	return false
}

func (r *response) fail(err error) {
	if err == nil {
		return
	}
	r.Err = err.Error()
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			r.Is = append(r.Is, name)
		}
	}
}

func (r response) err() error {
	if r.Err == "" {
		return nil
	}
	return &remoteError{r.Err, r.Is}
}

// server carries out requests with one Manager.
type server struct {
	m      *leases.Manager
	db     *sql.DB
	events chan leases.Event // the latest ones, for event

	mu     sync.Mutex
	last   int
	leases map[int]*leases.Lease
	bodies map[int]*body
}

// body is a body of With or Tx that runs until it is told to finish.
type body struct {
	ctx    context.Context
	finish chan bool // true: fail
	cause  chan string
	result chan error
}

func newServer(s Store, db *sql.DB, owner string) (*server, error) {
	srv := &server{
		db: db, events: make(chan leases.Event, 1000),
		leases: map[int]*leases.Lease{}, bodies: map[int]*body{},
	}
	var err error
	srv.m, err = leases.New(db, &leases.Options{
		Dialect: s.Dialect, Owner: owner, Table: s.Table,
		OnEvent: func(e leases.Event) {
			select {
			case srv.events <- e:
			default: // nobody asks this worker for events
			}
		},
	})
	return srv, err
}

func (s *server) add(l *leases.Lease, b *body) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	if l != nil {
		s.leases[s.last] = l
	}
	if b != nil {
		s.bodies[s.last] = b
	}
	return s.last
}

func (s *server) get(handle int) (*leases.Lease, *body) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[handle], s.bodies[handle]
}

func (s *server) serve(q request) (r response) {
	r.ID = q.ID
	ctx := context.Background()
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Timeout)
		defer cancel()
	}
	l, b := s.get(q.Handle)
	if l != nil {
		defer func() { r.Info = l.Info() }()
	}
	switch q.Op {
	case "acquire":
		l, err := s.m.Acquire(ctx, q.Name, q.TTL, q.MaxWait)
		r.fail(err)
		if err == nil {
			r.Handle, r.Info = s.add(l, nil), l.Info()
		}
	case "extend":
		r.fail(l.Extend(ctx, q.TTL))
	case "release":
		r.fail(l.Release(ctx))
	case "err":
		r.fail(l.Err())
	case "await":
		done := l.Done()
		if b != nil {
			done = b.ctx.Done()
		}
		select {
		case <-done:
			r.fail(l.Err())
		case <-ctx.Done():
			r.fail(ctx.Err())
		}
	case "owner":
		info, ok, err := s.m.Owner(ctx, q.Name)
		r.Info, r.OK = info, ok
		r.fail(err)
	case "break":
		r.fail(s.m.Break(ctx, q.Name, q.Epoch))
	case "event":
		for {
			select {
			case e := <-s.events:
				if e.Kind.String() != q.Name {
					continue
				}
				r.Info = e.Info
				r.fail(e.Err)
			case <-ctx.Done():
				r.fail(ctx.Err())
			}
			return r
		}
	case "exec":
		_, err := s.db.ExecContext(ctx, q.SQL)
		r.fail(err)
	case "hold":
		s.hold(q, &r)
	case "tx":
		s.tx(ctx, l, q, &r)
	case "finish":
		b.finish <- q.Fail
		r.Cause = <-b.cause
		r.fail(<-b.result)
	default:
		r.fail(fmt.Errorf("unknown operation %q", q.Op))
	}
	return r
}

// hold starts a With and answers when its body runs, or when it never will.
func (s *server) hold(q request, r *response) {
	b := &body{finish: make(chan bool), cause: make(chan string, 1), result: make(chan error, 1)}
	entered := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		ran := false
		err := s.m.With(context.Background(), q.Name, q.TTL, q.MaxWait, func(ctx context.Context, l *leases.Lease) error {
			ran = true
			b.ctx = ctx
			entered <- s.add(l, b)
			return b.run()
		})
		if !ran {
			failed <- err
			return
		}
		b.result <- err
	}()
	select {
	case r.Handle = <-entered:
		l, _ := s.get(r.Handle)
		r.Info = l.Info()
	case err := <-failed:
		r.fail(err)
	}
}

// tx runs a Tx. With Pause it answers when the body has run its SQL, and the
// rest is up to finish.
func (s *server) tx(ctx context.Context, l *leases.Lease, q request, r *response) {
	run := func(b *body) error {
		return l.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, q.SQL); err != nil {
				return err
			}
			if b != nil {
				b.ctx = ctx
				r.Handle = s.add(l, b)
				b.result <- nil
				return b.run()
			}
			if q.Fail {
				return errBoom
			}
			return nil
		})
	}
	if !q.Pause {
		r.fail(run(nil))
		return
	}
	ctx = context.WithoutCancel(ctx)
	b := &body{finish: make(chan bool), cause: make(chan string, 1), result: make(chan error)}
	go func() { b.result <- run(b) }()
	r.fail(<-b.result)
}

// run waits for finish; what became of its context meanwhile is the cause.
func (b *body) run() error {
	fail := <-b.finish
	cause := ""
	if b.ctx.Err() != nil {
		cause = context.Cause(b.ctx).Error()
	}
	b.cause <- cause
	if fail {
		return errBoom
	}
	return nil
}
