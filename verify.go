package coopsqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// CoverState says how far one table is guarded.
type CoverState string

const (
	Fenced       CoverState = "fenced"     // all three triggers are there
	PartlyFenced CoverState = "partly"     // some are missing or differ
	NotFenced    CoverState = "not fenced" // none of them is there
)

// TableCoverage is one table of the store.
type TableCoverage struct {
	Name  string
	State CoverState
	// Tracked tables are meant to be fenced; one that is not is a finding.
	Tracked bool
	// Missing names the triggers that a tracked table lacks, and coop_guard,
	// which they select from, if that is not as it should be.
	Missing []string
	// Why a table is not tracked; empty for those that are.
	Why string
}

// Coverage is the answer of [Store.Verify].
type Coverage struct {
	Tables []TableCoverage
	// Stray triggers have a name of ours and are not what they should be.
	Stray []string
}

// Complete reports whether every tracked table has its fences.
func (c *Coverage) Complete() bool {
	for _, t := range c.Tables {
		if t.Tracked && t.State != Fenced {
			return false
		}
	}
	return len(c.Stray) == 0
}

// Verify reports for every table of the store whether it is fenced, partly, or
// not, and why. It only reads; a reader may ask too, and is answered by the
// settings that the present owner stored.
func (s *Store) Verify(ctx context.Context) (*Coverage, error) {
	var out *Coverage
	err := s.withConn(ctx, func(c *conn) error {
		cfg := c.cfg
		if s.own.mode == modeReader {
			row, err := readOwner(c.sh)
			if err == nil && row != nil {
				if cfg, err = row.settings.apply(cfg); err != nil {
					return err
				}
			}
		}
		schema, err := readSchema(c.sh, cfg)
		if err == nil {
			out = schema.coverage(cfg.epoch)
		}
		return err
	})
	return out, err
}

// apply gives a reader's configuration what the owner has stored.
func (s settings) apply(cfg *config) (*config, error) {
	out := *cfg
	out.fence, out.epoch, out.virtual = s.Fence, s.Epoch, s.Virtual
	var err error
	if out.tables, err = parseSelection("_coop_tables", s.Tables); err != nil {
		return nil, err
	}
	if s.Changes != "off" {
		out.changes, err = parseSelection("_coop_changes", s.Changes)
	}
	return &out, err
}

func (s *schema) coverage(bothArms bool) *Coverage {
	out := &Coverage{}
	guarded := s.guard == guardSQL(bothArms)
	right := make(map[string]bool, len(s.fences))
	for _, t := range s.tables {
		entry := TableCoverage{Name: t.name, Tracked: t.tracked, Why: t.why, State: NotFenced}
		found := 0
		for _, want := range fenceTriggers(t.name) {
			if t.has(want) {
				found++
				right[want.name] = t.tracked
			} else if t.tracked {
				entry.Missing = append(entry.Missing, want.name)
			}
		}
		whole := guarded || t.name == ownerTable
		if found > 0 && !whole && t.tracked {
			entry.Missing = append(entry.Missing, guardView)
		}
		switch {
		case found == len(operations) && whole:
			entry.State = Fenced
		case found > 0:
			entry.State = PartlyFenced
		}
		out.Tables = append(out.Tables, entry)
	}
	for _, f := range s.fences {
		if !right[f.name] {
			out.Stray = append(out.Stray, f.name)
		}
	}
	return out
}

// has reports whether the table has just that trigger.
func (t *table) has(want trigger) bool {
	for _, have := range t.have {
		if have.name == want.name && have.sql == want.sql {
			return true
		}
	}
	return false
}

// Refence completes the fences now, and puts them back after Unfence. There is
// seldom a need: every commit of the owner does so by itself.
func (s *Store) Refence(ctx context.Context) error {
	if !s.connector.cfg.fence {
		return errors.New("coopsqlite: Refence: the DSN says _coop_fence=off")
	}
	was := s.own.unfenced.Swap(false)
	err := s.writeTx(ctx, func(c *conn) error {
		return c.cover()
	})
	if err != nil {
		s.own.unfenced.Store(was)
	}
	return err
}

// Unfence makes the store an ordinary file again, for a dump, a restore or
// another tool: the fences, the tracking triggers and coop_owner go, in one
// transaction. They come back with Refence or the next owner. While they are
// away only the lock protects the store.
func (s *Store) Unfence(ctx context.Context) error {
	if s.own.mode == modeShared {
		return errors.New("coopsqlite: Unfence: the other members of a shared ownership would fence the store again: open it with _coop_owner=exclusive")
	}
	was := s.own.unfenced.Swap(true)
	err := s.writeTx(ctx, func(c *conn) error {
		return stripFences(c.sh.Query, c.sh.Exec)
	})
	if err != nil {
		s.own.unfenced.Store(was)
		return err
	}
	s.own.coverage.persisted.Store(false)
	return nil
}

// stripFences removes everything of ours that guards or watches, from the open
// transaction.
func stripFences(query func(string) ([]any, error), exec func(string) error) error {
	names, err := query(`SELECT name FROM main.sqlite_schema WHERE type = 'trigger' AND (name LIKE 'coop\_fence\_%' ESCAPE '\' OR name LIKE 'coop\_change\_%' ESCAPE '\')`)
	if err != nil {
		return err
	}
	for _, name := range names {
		text, _ := name.(string)
		if err := exec(dropTrigger(text)); err != nil {
			return err
		}
	}
	return exec("DROP VIEW IF EXISTS main." + guardView + "; DROP TABLE IF EXISTS main.coop_owner")
}

// Status is what is known of a store, for a person to read.
type Status struct {
	Path  string
	Mode  string // of the ownership that asks
	Epoch int64  // of the newest ownership that the file knows
	// Holder is who the file says its newest owner is.
	Holder Holder
	// Held reports whether that owner is still there, as far as can be told
	// without touching the lock: it left its name in the lock file and, on
	// this host, its process lives.
	Held          bool
	Tables        int // in the store
	TablesFenced  int
	TablesOpen    int // tracked, and without complete fences
	SchemaVersion int64
	JournalMode   string
	Size          int64 // of the file, in bytes
	Lost          error // why this ownership writes no more, or nil
}

// Status describes the store. It only reads.
func (s *Store) Status(ctx context.Context) (*Status, error) {
	coverage, err := s.Verify(ctx)
	if err != nil {
		return nil, err
	}
	st := &Status{Path: s.Path(), Mode: s.Mode(), Tables: len(coverage.Tables)}
	for _, t := range coverage.Tables {
		switch {
		case t.State == Fenced:
			st.TablesFenced++
		case t.Tracked:
			st.TablesOpen++
		}
	}
	if lost := s.own.lost.Load(); lost != nil {
		st.Lost = lost
	}
	if st.Path != "" {
		if info, err := os.Stat(st.Path); err == nil {
			st.Size = info.Size()
		}
		st.Holder = readHolder(st.Path + lockSuffix)
		st.Held = st.Holder.alive()
	}
	err = s.withConn(ctx, func(c *conn) error {
		row, err := readOwner(c.sh)
		if err == nil && row != nil {
			st.Epoch = row.epoch
			if st.Holder.PID == 0 {
				st.Holder = row.holder
			}
		}
		values, err := c.sh.Query("SELECT (SELECT schema_version FROM pragma_schema_version), (SELECT journal_mode FROM pragma_journal_mode)")
		if err == nil && len(values) == 2 {
			st.SchemaVersion, _ = values[0].(int64)
			st.JournalMode, _ = values[1].(string)
		}
		return err
	})
	return st, err
}

// alive reports whether the holder's process is there, if it can be told.
func (h Holder) alive() bool {
	if h.PID <= 0 {
		return false
	}
	if host, _ := os.Hostname(); host != h.Host {
		return true
	}
	err := syscall.Kill(h.PID, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// Drain lets no further write begin and waits until those under way have
// ended, so that the store can change hands without anybody's being cut off:
// what would begin to write answers [ErrStopped] from then on, transactions
// that hold the gate go on to their end, and so do reads. It concerns all pools
// of this process that share the ownership. When ctx ends first, writes are let
// in again.
func (s *Store) Drain(ctx context.Context) error {
	if s.own.mode == modeReader {
		return nil
	}
	if hint.IsInside(ctx, s.own) {
		return ErrNested
	}
	s.own.drains.Add(1)
	var last grant
	last.note()
	// The gate's queue is first come, first served: whoever holds a place in it
	// has ended, or is refused, when ours comes.
	if err := s.own.gate.acquire(ctx, &last, forever, false); err != nil {
		s.own.drains.Add(-1)
		return fmt.Errorf("coopsqlite: draining %s: %w", s.own.name(), err)
	}
	s.own.gate.release()
	return nil
}

// forever is a wait that only its context ends.
const forever = 1<<63 - 1

// withConn lends a connection of the pool's to a function that reads.
func (s *Store) withConn(ctx context.Context, fn func(c *conn) error) error {
	if err := first(ctx.Err(), s.usable()); err != nil {
		return err
	}
	c, err := s.connector.connect(ctx)
	if err != nil {
		return err
	}
	c.start(c.watch(ctx))
	err = c.explain(ctx, fn(c))
	c.sh.Unwatch()
	return first(err, c.Close())
}

// first is the first error of several, as it is: errors.Join would hide the
// type of a single one.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// writeTx runs fn in a write transaction of its own.
func (s *Store) writeTx(ctx context.Context, fn func(c *conn) error) error {
	if s.own.mode == modeReader {
		return readerError(s.own.name())
	}
	if err := s.usable(); err != nil {
		return err
	}
	c, err := s.connector.connect(ctx)
	if err != nil {
		return err
	}
	err = c.writeTx(ctx, func() error { return fn(c) })
	return first(err, c.Close())
}

// usable says why there is no store as a whole: the pool was closed, or each of
// its connections has a database of its own.
func (s *Store) usable() error {
	s.connector.mu.Lock()
	closed := s.connector.closed
	s.connector.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("%w: %s: the sql.DB was closed", ErrStopped, s.own.name())
	case s.own.private():
		return errors.New("coopsqlite: every connection to this database in memory has one of its own: use file:name?mode=memory&cache=shared")
	}
	return nil
}

func readerError(name string) error {
	return shim.NewError(sqlite3.ErrReadonly, sqlite3.ErrNoExtended(sqlite3.ErrReadonly), "attempt to write a readonly database: "+name+" was opened as a reader")
}
