package coopsqlite

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/flock"
	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// owners is the table of what this process owns. Pools with
// _coop_owner=process find each other in it, and a conflict with ourselves is
// told from one with another process.
var owners = struct {
	sync.Mutex
	byKey map[string]*ownership
}{byKey: map[string]*ownership{}}

// ownership is the right of this process to write one store. The pools of a
// process share one if their DSNs say so.
type ownership struct {
	key      string // in owners; empty for what is never shared
	path     string // real path of the store; empty in memory
	mode     string
	settings settings
	holder   Holder
	created  bool        // the store's file was not there before
	lock     *flock.File // nil for readers and in memory
	file     os.FileInfo // of the store as it was taken over; nil where there is no lock
	shim     *shim.Store // nil for readers
	gate     gate
	coverage coverState
	counters counters
	commits  signal
	logger   *slog.Logger

	// opening is held while the first connection takes the store over, and
	// refs counts the pools; both belong to the owners table.
	opening sync.Mutex
	taken   bool
	refs    int

	fence   atomic.Int64
	epoch   atomic.Int64
	stopped atomic.Bool
	// unfenced: the fences were taken away on request and are not put back.
	unfenced atomic.Bool
	// drains counts the calls of Drain that wait or have succeeded. While there
	// is one, no write begins, so that the store can change hands.
	drains atomic.Int64
	// lost is why this ownership writes no more although it was not closed.
	lost  atomic.Pointer[fencedError]
	watch watcher
}

// settings are what all members of an ownership must agree on. They are stored
// in coop_owner.
type settings struct {
	Fence   bool   `json:"fence"`
	Tables  string `json:"tables"`
	Epoch   bool   `json:"epoch"`
	Changes string `json:"changes"`
	Virtual bool   `json:"virtual"`
}

func (c *config) settings() settings {
	return settings{c.fence, c.tables.String(), c.epoch, c.changes.String(), c.virtual}
}

func (s settings) json() string {
	b, _ := json.Marshal(s) // strings and booleans only
	return string(b)
}

// differs names the first parameter in which two settings disagree.
func (s settings) differs(o settings) string {
	onOff := func(v bool) string {
		if v {
			return "on"
		}
		return "off"
	}
	for _, p := range []struct{ name, mine, theirs string }{
		{"_coop_fence", onOff(s.Fence), onOff(o.Fence)},
		{"_coop_tables", s.Tables, o.Tables},
		{"_coop_epoch", onOff(s.Epoch), onOff(o.Epoch)},
		{"_coop_changes", s.Changes, o.Changes},
		{"_coop_virtual", onOff(s.Virtual), onOff(o.Virtual)},
	} {
		if p.mine != p.theirs {
			return fmt.Sprintf("this DSN says %s=%s, the present owners say %s", p.name, p.mine, p.theirs)
		}
	}
	return ""
}

// coverState is what is known of the fences in one database: the schema version
// at which they were complete, and whether coop_owner is there. It changes only
// while the gate is held. All
// connections to a file share it; a private database in memory has its own.
type coverState struct {
	version   atomic.Int64
	triggers  atomic.Bool // at that version main has others than the fences
	replaces  atomic.Bool // at that version something of the user's may replace rows, if changes are recorded
	persisted atomic.Bool
	trackers  trackers
}

// signal lets anybody wait for the next commit.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
	s.mu.Unlock()
}

// lockPoll is how often an open with _coop_wait looks whether the owner is gone.
const lockPoll = 2 * time.Millisecond

// join finds or makes the ownership that cfg asks for. The caller must take it
// over with the first connection, and leave it in the end.
func join(ctx context.Context, cfg *config, logger *slog.Logger) (*ownership, error) {
	switch cfg.mode {
	case modeReader:
		path, err := cfg.path, error(nil)
		if path != "" && path != ":memory:" {
			if path, err = realPath(path); err != nil {
				path = cfg.path // SQLite will say what is wrong with it
			} else {
				cfg.resolve(path)
			}
		}
		return &ownership{path: path, mode: modeReader, logger: logger, refs: 1}, nil
	case modeMemory:
		return joinMemory(cfg, logger), nil
	}
	path, err := realPath(cfg.path)
	if err != nil {
		return nil, err
	}
	cfg.resolve(path)
	start := time.Now()
	for {
		o, err := tryJoin(path, cfg, logger)
		var conflict *ConflictError
		if !errors.As(err, &conflict) || conflict.Reason != "" {
			return o, err
		}
		conflict.Waited = time.Since(start)
		if conflict.Waited >= cfg.wait {
			if cfg.wait == 0 {
				conflict.Waited = 0
			}
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), conflict)
		case <-time.After(lockPoll):
		}
	}
}

func joinMemory(cfg *config, logger *slog.Logger) *ownership {
	owners.Lock()
	defer owners.Unlock()
	key := ""
	if cfg.shareName != "" {
		key = "memory:" + cfg.shareName
		if o := owners.byKey[key]; o != nil {
			o.refs++
			return o
		}
	}
	o := newOwnership(key, "", modeMemory, cfg, logger)
	if key != "" {
		owners.byKey[key] = o
	}
	return o
}

// tryJoin shares the ownership of this process or takes the lock, at once.
func tryJoin(path string, cfg *config, logger *slog.Logger) (*ownership, error) {
	owners.Lock()
	defer owners.Unlock()
	if o := owners.byKey[path]; o != nil {
		conflict := &ConflictError{Path: path, Holder: o.holder, Self: true}
		conflict.Holder.Epoch = o.epoch.Load()
		if o.mode != cfg.mode || cfg.mode == modeExclusive {
			return nil, conflict
		}
		if conflict.Reason = cfg.settings().differs(o.settings); conflict.Reason != "" {
			return nil, conflict
		}
		o.refs++
		return o, nil
	}

	lockPath, mode := path+lockSuffix, flock.Exclusive
	if cfg.mode == modeShared {
		mode = flock.Shared
	}
	lock, err := flock.Acquire(lockPath, path, mode)
	if errors.Is(err, flock.ErrHeld) {
		return nil, &ConflictError{Path: path, Holder: readHolder(lockPath)}
	}
	if err != nil {
		return nil, lockError(lockPath, err)
	}
	o := newOwnership(path, path, cfg.mode, cfg, logger)
	o.lock = lock
	_, err = os.Stat(path)
	o.created = errors.Is(err, fs.ErrNotExist)
	owners.byKey[path] = o
	return o, nil
}

// lockError says what stands in the way of the lock file.
func lockError(path string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		hint = ": this user may not write it or its directory; open with mode=ro to read"
	case errors.Is(err, syscall.EROFS):
		hint = ": the file system is read-only; open with mode=ro to read"
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS):
		hint = ": this file system has no flock; keep the store on a local one"
	case errors.Is(err, flock.ErrNotRegular):
		hint = ": a link or another kind of file stands where the lock belongs; it was not touched"
	}
	return fmt.Errorf("coopsqlite: the lock file of the store, %s, cannot be taken: %w%s", path, err, hint)
}

func newOwnership(key, path, mode string, cfg *config, logger *slog.Logger) *ownership {
	o := &ownership{
		key: key, path: path, mode: mode, settings: cfg.settings(), logger: logger,
		holder: newHolder(cfg), refs: 1,
	}
	o.fence.Store(newFence())
	o.coverage.version.Store(-1)
	o.shim = shim.NewStore(o.fence.Load())
	o.setEpoch(1)
	return o
}

func (o *ownership) setEpoch(epoch int64) {
	o.epoch.Store(epoch)
	o.shim.SetEpoch(epoch)
}

// newFence is a random positive number of 63 bits.
func newFence() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return int64(binary.NativeEndian.Uint64(b[:])&math.MaxInt64) | 1
}

func newHolder(cfg *config) Holder {
	host, _ := os.Hostname()
	app := cfg.app
	if app == "" {
		app = filepath.Base(os.Args[0])
	}
	return Holder{PID: os.Getpid(), Host: host, App: app, Since: time.Now().UTC(), Mode: cfg.mode}
}

// announce writes the holder's line into the lock file.
func (o *ownership) announce() error {
	if o.lock == nil {
		return nil
	}
	holder := o.holder // others read it meanwhile
	holder.Epoch = o.epoch.Load()
	line, err := json.Marshal(holder)
	if err != nil {
		return err
	}
	if err := o.lock.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("coopsqlite: writing the holder into the lock file: %w", err)
	}
	return nil
}

// readHolder reads what the holder of a lock says of itself. Coop engines in
// other languages say nothing.
func readHolder(lockPath string) Holder {
	var h Holder
	_ = json.Unmarshal(flock.Read(lockPath), &h)
	return h
}

// leave gives up one pool's share. The last one withdraws the permit, then the
// lock. With discard, the open has failed, and what it made is removed again.
func (o *ownership) leave(discard bool) {
	if o.mode == modeReader {
		return
	}
	owners.Lock()
	defer owners.Unlock()
	if o.refs--; o.refs > 0 {
		return
	}
	o.stopped.Store(true)
	o.shim.SetPermit(false)
	o.watch.stop()
	o.commits.fire()
	if o.key != "" {
		delete(owners.byKey, o.key)
	}
	if o.lock != nil {
		switch {
		case discard && !o.taken:
			o.lock.Discard(o.removeEmpty)
		default:
			_ = o.lock.Release(o.mode != modeShared)
		}
	}
}

// removeEmpty takes back the empty file that a failed open has made.
func (o *ownership) removeEmpty() {
	if info, err := os.Stat(o.path); o.created && err == nil && info.Size() == 0 {
		_ = os.Remove(o.path)
	}
}

// writable says why this ownership may not write, if so.
func (o *ownership) writable() error {
	if o.stopped.Load() {
		o.counters.refused.Add(1)
		return &fencedError{sentinel: ErrFenced, path: o.name(), reason: "the sql.DB that owned the store was closed"}
	}
	if lost := o.lost.Load(); lost != nil {
		o.counters.refused.Add(1)
		return lost
	}
	return nil
}

// admitsNew says why no further write may begin although those under way may
// end, if so.
func (o *ownership) admitsNew() error {
	if o.drains.Load() == 0 {
		return nil
	}
	o.counters.refused.Add(1)
	return fmt.Errorf("%w: %s: the store was drained", ErrStopped, o.name())
}

// lose stops the writes of this ownership from now on.
func (o *ownership) lose(reason string) *fencedError {
	e := &fencedError{sentinel: ErrSuperseded, path: o.name(), reason: reason}
	if o.lost.CompareAndSwap(nil, e) {
		o.logger.Error("coopsqlite: writes have stopped", "store", o.name(), "reason", reason)
	}
	return o.lost.Load()
}

// private reports whether every connection has a database of its own, in memory
// or in a temporary file, which ends with it.
func (o *ownership) private() bool { return o.mode == modeMemory && o.key == "" }

func (o *ownership) name() string {
	if o.path == "" {
		return "database in memory"
	}
	return o.path
}
