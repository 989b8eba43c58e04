package coopsqlite

import (
	"database/sql/driver"
	"slices"
	"strings"
	"sync"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// tracker is a trigger that records changes, and its place in the schema.
type tracker struct {
	trigger
	place int
}

// trackers remembers what was worked out for tables that have not changed
// since: asking SQLite about a thousand tables takes a tenth of a second.
type trackers struct {
	mu      sync.Mutex
	byTable map[string]known
}

type known struct {
	definition string
	triggers   []trigger
}

// track decides which tables are recorded, and with which triggers.
func (s *schema) track(c *shim.Conn, cfg *config, cache *trackers) error {
	cache.mu.Lock()
	defer cache.mu.Unlock()
	now := make(map[string]known, len(cache.byTable))
	var unknown []*table
	for _, t := range s.tables {
		if !t.recorded(cfg) {
			continue
		}
		k := cache.byTable[t.name]
		if k.definition != strings.Join(t.definition, ";") {
			unknown = append(unknown, t)
			continue
		}
		now[t.name], t.changes = k, k.triggers
	}
	if len(unknown) > 0 {
		shapes, err := readShapes(c, unknown)
		if err != nil {
			return err
		}
		for _, t := range unknown {
			if shapes[t.name] == nil {
				continue // gone, or not to be named
			}
			t.changes = changeTriggers(t.name, shapes[t.name])
			now[t.name] = known{strings.Join(t.definition, ";"), t.changes}
		}
	}
	cache.byTable = now
	return nil
}

// addChanges makes coop_changes if it is missing, and decides what is recorded.
func (c *conn) addChanges(s *schema) error {
	if c.cfg.changes.none() || c.own.unfenced.Load() || len(s.tables) == 0 {
		return nil
	}
	if s.byName[changesTable] == nil {
		if err := c.sh.Exec(changesSQL); err != nil {
			return err
		}
		t := &table{name: changesTable, tracked: true}
		s.tables = append(s.tables, t)
		s.byName[changesTable] = t
	}
	return s.track(c.sh, c.cfg, &c.cov.trackers)
}

// recorded reports whether changes of the table are wanted. * means all tables
// of the user that are fenced; a table that is named need not be, but outsiders
// cannot write it then, for want of the functions.
func (t *table) recorded(cfg *config) bool {
	lower := strings.ToLower(t.name)
	switch {
	case t.virtual != "", t.shadow, lower == ownerTable, lower == changesTable, strings.HasPrefix(lower, "sqlite_"):
		return false
	case cfg.changes.all:
		return t.tracked && !strings.HasPrefix(lower, ownPrefix) && cfg.changes.has(t.name)
	}
	return cfg.changes.has(t.name)
}

// trackingRepairs are the statements that make the tracking triggers complete.
// Those of a table are made anew if any is wrong or missing, or in the wrong
// place: SQLite fires the newest trigger first, and if one of the user's came
// before ours and changed the new row once more, that would be recorded before
// the row itself.
func (s *schema) trackingRepairs() []string {
	have := map[string][]tracker{}
	for _, f := range s.trackers {
		have[foldName(f.table)] = append(have[foldName(f.table)], f)
	}
	var drop, create []string
	for _, t := range s.tables {
		want := t.changes
		if t.name == changesTable {
			want = []trigger{keepNewest}
		}
		if t.tracks(have[foldName(t.name)], want) {
			continue
		}
		for _, w := range want {
			create = append(create, w.create())
		}
		for _, f := range have[foldName(t.name)] {
			drop = append(drop, dropTrigger(f.name))
		}
	}
	// A trigger whose table was renamed keeps a name that another may need.
	return append(drop, create...)
}

// tracks reports whether the table has just the triggers that are wanted, after
// all others.
func (t *table) tracks(have []tracker, want []trigger) bool {
	return slices.EqualFunc(have, want, func(h tracker, w trigger) bool { return h.trigger == w && h.place >= t.newest })
}

// runAltering runs ALTER TABLE, in a savepoint: either the table is altered and
// recorded as before, or nothing has happened. The statement prepares itself
// again when it finds the triggers gone.
func (c *conn) runAltering(s *statement, stmt *shim.Stmt, args []driver.NamedValue) (rowid, changes int64, err error) {
	if err := c.sh.Control(shim.Savepoint); err != nil {
		return 0, 0, err
	}
	// What an outsider may have dropped, SQLite would miss in our triggers.
	if err = c.beforeCommit(); err == nil {
		err = c.untrack(s.altered)
	}
	if err == nil {
		rowid, changes, err = c.sh.Run(stmt, &c.args, args)
	}
	if err == nil {
		err = c.cover()
	}
	if c.sh.Autocommit() {
		return rowid, changes, err // SQLite has rolled everything back
	}
	if err != nil {
		c.pending, c.pendingOwner = false, false
		_ = c.sh.Control(shim.RollbackTo)
	}
	return rowid, changes, first(err, c.sh.Control(shim.Release))
}

// late reports whether a trigger of the user's would fire before ours. If it
// changes the new row once more, that would be recorded before the row itself.
// SQLite fires the newest first; it does not promise to.
func (s *schema) late(f tracker) bool {
	t := s.byName[foldName(f.table)]
	return t != nil && t.newest > f.place
}

// untrack takes the tracking triggers off a table that is about to be altered:
// SQLite would refuse to drop a column that a trigger names, and renaming one
// leaves the names inside strings as they were. An empty name means any table.
// cover puts them back, for the table as it is then.
func (c *conn) untrack(altered string) error {
	s, err := readSchema(c.sh, c.cfg)
	if err != nil {
		return err
	}
	for _, f := range s.trackers {
		if altered == "" || equalName(f.table, altered) {
			if err := c.sh.Exec(dropTrigger(f.name)); err != nil {
				return err
			}
		}
	}
	return nil
}
