package outboxtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A consumer is an HTTP server as consumers are: it fails, it stalls, it dies
// and comes back. It remembers what was delivered to it, and complains about an
// event whose predecessor it has not yet taken.
type consumer struct {
	t       testing.TB
	address string

	mu     sync.Mutex
	server *http.Server
	order  map[string][]int64 // of each aggregate: the events, as they were appended
	taken  map[int64]int      // how often each was taken with success
	calls  int
	total  int // events taken at least once
}

func startConsumer(t testing.TB) *consumer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &consumer{t: t, address: listener.Addr().String(), order: map[string][]int64{}, taken: map[int64]int{}}
	c.serve(listener)
	t.Cleanup(func() { _ = c.server.Close() })
	return c
}

func (c *consumer) url() string { return "http://" + c.address + "/" }

// expect says that the events of the aggregate are to come in this order.
func (c *consumer) expect(aggregate string, ids ...int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order[aggregate] = append(c.order[aggregate], ids...)
}

func (c *consumer) serve(listener net.Listener) {
	c.server = &http.Server{Handler: http.HandlerFunc(c.take)}
	go func() { _ = c.server.Serve(listener) }()
}

// dieAndComeBack cuts every connection, in the middle of whatever it carries.
func (c *consumer) dieAndComeBack() {
	_ = c.server.Close()
	time.Sleep(20 * time.Millisecond) // some find nobody there
	// A relay that dials a port where nobody listens may be given that very port
	// for its own end, and keep it until it is killed.
	var listener net.Listener
	require.Eventually(c.t, func() (listening bool) {
		l, err := net.Listen("tcp", c.address)
		if err == nil {
			listener = l
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	c.serve(listener)
}

func (c *consumer) take(w http.ResponseWriter, r *http.Request) {
	switch rand.IntN(20) {
	case 0:
		http.Error(w, "not today", http.StatusServiceUnavailable)
		return
	case 1: // longer than some relay lives
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
	case 2: // taken, but nobody is told
		defer panic(http.ErrAbortHandler)
	}
	id, err := strconv.ParseInt(r.Header.Get("Event-Id"), 10, 64)
	if !assert.NoError(c.t, err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if problem := c.judge(r.Header.Get("Aggregate"), id); problem != "" {
		c.t.Error(problem)
	}
	if c.taken[id]++; c.taken[id] == 1 {
		c.total++
	}
}

// judge wants that an event's first delivery comes after its predecessor was
// taken.
func (c *consumer) judge(aggregate string, id int64) string {
	if c.taken[id] > 0 || aggregate == "" {
		return ""
	}
	before := int64(0)
	for _, next := range c.order[aggregate] {
		if next == id {
			break
		}
		before = next
	}
	if before != 0 && c.taken[before] == 0 {
		return fmt.Sprintf("event %d came before %d was taken", id, before)
	}
	return ""
}

func (c *consumer) count() (total, calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total, c.calls
}
