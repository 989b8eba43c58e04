package coopsqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// ownerSQL makes the table that names the present ownership. It is not STRICT:
// a program with an older SQLite must still be able to read the store. WITHOUT
// ROWID keeps its row from a user's update hook
// (https://sqlite.org/c3ref/update_hook.html).
const ownerSQL = `CREATE TABLE main.coop_owner(
 id INTEGER PRIMARY KEY CHECK (id = 1),
 epoch INTEGER NOT NULL,
 fence INTEGER NOT NULL,
 mode TEXT NOT NULL,
 settings TEXT NOT NULL,
 holder TEXT NOT NULL,
 host TEXT NOT NULL,
 pid INTEGER NOT NULL,
 app TEXT NOT NULL,
 acquired_at INTEGER NOT NULL
) WITHOUT ROWID`

// ownerRow is what coop_owner says.
type ownerRow struct {
	epoch, fence int64
	mode         string
	settings     settings
	holder       Holder
}

func readOwner(c *shim.Conn) (*ownerRow, error) {
	v, err := c.Query("SELECT epoch, fence, mode, settings, host, pid, app, acquired_at FROM main.coop_owner")
	if err != nil || len(v) < 8 {
		return nil, err
	}
	row := &ownerRow{}
	row.epoch, _ = v[0].(int64)
	row.fence, _ = v[1].(int64)
	row.mode, _ = v[2].(string)
	text, _ := v[3].(string)
	_ = json.Unmarshal([]byte(text), &row.settings)
	row.holder.Host, _ = v[4].(string)
	pid, _ := v[5].(int64)
	row.holder.PID = int(pid)
	row.holder.App, _ = v[6].(string)
	at, _ := v[7].(int64)
	row.holder.Since = time.Unix(at, 0).UTC()
	row.holder.Epoch, row.holder.Mode = row.epoch, row.mode
	return row, nil
}

// write puts this ownership's row in place of the one before. What it does last
// makes changes(), which the user may look at next, forget that row.
func (o *ownership) write(c *shim.Conn) error {
	h := o.holder
	return c.Exec(fmt.Sprintf(
		"INSERT OR REPLACE INTO main.coop_owner VALUES(1, %d, %d, %s, %s, %s, %s, %d, %s, %d); DELETE FROM main.coop_owner WHERE 0",
		o.epoch.Load(), o.fence.Load(), quoteText(o.mode), quoteText(o.settings.json()), quoteText(h.String()),
		quoteText(h.Host), h.PID, quoteText(h.App), h.Since.Unix()))
}

// takeOver makes this ownership the newest of the store: in one transaction it
// counts the epoch up, writes its fence number and completes the fences. It
// runs on the ownership's first connection, before anything else does. An
// empty store stays empty; its first commit brings all this.
func (c *conn) takeOver() error {
	empty, err := c.isEmpty()
	if err != nil {
		return err
	}
	if empty {
		c.cov.version.Store(0)
		return nil
	}
	// Not checked against the fence: this is where the fence changes hands.
	if _, err = c.sh.Begin(shim.BeginImmediate, false); err == nil {
		if err = c.claim(); err == nil {
			err = c.sh.Control(shim.Commit)
		}
		if err != nil {
			c.rollback()
		} else {
			c.record()
		}
	}
	return shim.Annotate(err, func(message string) string { return "taking ownership: " + message })
}

func (c *conn) isEmpty() (bool, error) {
	v, err := c.sh.Query("SELECT 1 FROM main.sqlite_schema LIMIT 1")
	return len(v) == 0, err
}

// claim writes coop_owner in the open transaction, or, as a member of a shared
// group that exists, adopts what is there, and completes the fences.
func (c *conn) claim() error {
	s, err := readSchema(c.sh, c.cfg)
	if err != nil {
		return err
	}
	adopted, err := c.succeed(s)
	if err != nil {
		return err
	}
	if !adopted && s.owner {
		if err := c.own.write(c.sh); err != nil {
			return err
		}
	}
	return c.complete(s)
}

// succeed counts the epoch of the owner before up, and makes its coop_owner
// ready to be written. A member of a shared group adopts that group's instead.
func (c *conn) succeed(s *schema) (adopted bool, err error) {
	if !s.owner {
		return false, nil
	}
	if !ownerHasColumns(c.sh) {
		return false, c.dropOwner(s) // not of our making
	}
	row, err := readOwner(c.sh)
	if err != nil {
		return false, err
	}
	if row == nil {
		return false, c.dropOwner(s)
	}
	if c.own.mode == modeShared && row.mode == modeShared {
		return true, c.adopt(row)
	}
	c.own.setEpoch(row.epoch + 1)
	// An older owner's fence of any other form refuses to be taken over.
	for _, f := range s.byName[ownerTable].have {
		if !slices.Contains(ownerFences[:], f) {
			if err := c.sh.Exec(dropTrigger(f.name)); err != nil {
				return false, err
			}
			s.forget(f)
		}
	}
	return false, nil
}

// dropOwner makes way for a coop_owner of our own.
func (c *conn) dropOwner(s *schema) error {
	for _, f := range s.byName[ownerTable].have {
		s.forget(f)
	}
	s.owner = false
	s.tables = slices.DeleteFunc(s.tables, func(t *table) bool { return t.name == ownerTable })
	delete(s.byName, ownerTable)
	return c.sh.Exec("DROP TABLE main.coop_owner")
}

// ownerHasColumns reports whether coop_owner is of our making.
func ownerHasColumns(c *shim.Conn) bool {
	_, err := c.Query("SELECT id, epoch, fence, mode, settings, holder, host, pid, app, acquired_at FROM main.coop_owner LIMIT 0")
	return err == nil
}

// adopt makes this process a member of the group that owns the store.
func (c *conn) adopt(row *ownerRow) error {
	o := c.own
	if reason := o.settings.differs(row.settings); reason != "" {
		return &ConflictError{Path: o.path, Holder: row.holder, Reason: reason + ": members of a shared ownership must agree; to change it, open the store once with _coop_owner=exclusive"}
	}
	o.setEpoch(row.epoch)
	o.fence.Store(row.fence)
	o.shim.SetFence(row.fence)
	return nil
}

// adoptFirstWriter makes this process a member of the group whose first write
// has ended the store's emptiness since this one was opened.
func (c *conn) adoptFirstWriter() (adopted bool, err error) {
	row, err := readOwner(c.sh)
	if err != nil || row == nil || row.mode != modeShared {
		return false, nil // still empty, or what follows will say why not
	}
	if err := c.adopt(row); err != nil {
		return false, err
	}
	c.cov.persisted.Store(true)
	return true, nil
}

// begin starts a transaction that will write, and makes sure that this
// ownership is still the newest. On error no transaction is open; the gate is
// still held.
func (c *conn) begin(kind shim.Kind) error {
	c.moved = false
	state, err := c.sh.Begin(kind, kind != shim.Begin)
	if err != nil {
		return err
	}
	if err := c.admit(state); err != nil || kind == shim.Begin {
		return err
	}
	if c.plain {
		err = c.keepPlain()
	}
	if err != nil {
		c.rollBack()
	}
	return err
}

// admit acts on the fence's answer inside a transaction: it repairs a missing
// coop_owner, or rolls back and says why the owner may not write.
func (c *conn) admit(state shim.FenceState) error {
	o := c.own
	var err error
	switch {
	case state == shim.Fenced:
		return nil
	case state == shim.NoOwner && !c.cov.persisted.Load(),
		state != shim.Stopped && !c.cfg.epoch,
		state != shim.Stopped && !c.cfg.fence && !c.cov.persisted.Load():
		return nil
	case state == shim.NoOwner:
		// A migrator dropped everything, or an outsider did.
		if err = c.restoreOwner(); err == nil {
			return nil
		}
	case state == shim.Superseded && o.mode == modeShared && !c.cov.persisted.Load():
		// The store was empty; another member of the group was first to write.
		var adopted bool
		if adopted, err = c.adoptFirstWriter(); adopted {
			return nil
		} else if err == nil {
			err = o.lose("another owner wrote the empty store first")
		}
	case state == shim.Superseded:
		err = o.lose(c.supersededBy())
		o.counters.refused.Add(1)
	default:
		err = o.writable()
	}
	c.rollBack()
	return err
}

// restoreOwner puts coop_owner back, or its row: some tools empty every table.
func (c *conn) restoreOwner() error {
	if err := c.cover(); err != nil || !c.pendingOwner {
		return err
	}
	if state, err := c.sh.CheckFence(); err != nil || state != shim.NoOwner {
		return err
	}
	return c.own.write(c.sh)
}

// supersededBy names the newer owner.
func (c *conn) supersededBy() string {
	row, err := readOwner(c.sh)
	if err != nil || row == nil {
		return "a newer owner has taken the store over"
	}
	return "a newer owner has taken the store over: epoch " + strconv.FormatInt(row.epoch, 10) + ", " + row.holder.String()
}

// cover completes the fences in the open transaction: every tracked table gets
// its three triggers, whatever DDL has run, and coop_owner is there again if
// it was dropped. It remembers the schema version to be recorded once the
// transaction has committed, and counts the statements it took in c.repairs.
func (c *conn) cover() error {
	s, err := readSchema(c.sh, c.cfg)
	if err != nil {
		return err
	}
	return c.complete(s)
}

// complete does cover's work on a schema that has just been read.
func (c *conn) complete(s *schema) error {
	fencing := c.cfg.fence && !c.own.unfenced.Load()
	if !s.owner && fencing {
		if len(s.tables) == 0 {
			c.pendingOwner, c.pendingTriggers, c.pendingReplaces = false, s.others, s.replaces
			return c.covered() // still, or again, empty
		}
		if err := c.sh.Exec(ownerSQL); err != nil {
			return err
		}
		if err := c.own.write(c.sh); err != nil {
			return err
		}
		s.owner = true
		s.tables = append(s.tables, &table{name: ownerTable, tracked: true})
	}
	c.pendingOwner = s.owner
	if err := c.addChanges(s); err != nil {
		return err
	}
	var statements []string
	if fencing {
		statements = s.repairs(c.cfg.epoch, c.lifted)
	}
	if !c.own.unfenced.Load() {
		statements = append(statements, s.trackingRepairs()...)
	}
	for _, statement := range statements {
		if err := c.sh.Exec(statement); err != nil {
			return shim.Annotate(err, func(message string) string { return "completing the fences: " + message })
		}
		c.repairs++
	}
	c.pendingReplaces = s.replaces
	c.pendingTriggers = s.others || !c.cfg.changes.none() || c.own.unfenced.Load() && len(s.trackers) > 0
	return c.covered()
}

func (c *conn) covered() error {
	version, err := c.sh.SchemaVersion()
	c.pendingVersion = version
	c.pending = err == nil
	return err
}

// repairs are the statements that make the fences complete: first all that is
// ours but wrong goes (a trigger whose table was renamed keeps the old name,
// which the new table of that name needs), then what is missing comes. Tables
// in lifted are left without, for Bulk.
func (s *schema) repairs(bothArms bool, lifted map[string]bool) []string {
	var statements []string
	if want := guardSQL(bothArms); s.guard != want {
		if s.guard != "" {
			statements = append(statements, "DROP VIEW main."+guardView)
		}
		statements = append(statements, inMain(want, "CREATE VIEW "))
	}
	if s.intact(lifted) {
		return statements
	}
	wanted := make(map[string]trigger, len(s.fences))
	for _, t := range s.tables {
		if !t.tracked || lifted[foldName(t.name)] {
			continue
		}
		for _, f := range fenceTriggers(t.name) {
			wanted[f.name] = f
		}
	}
	for _, f := range s.fences {
		if w, ok := wanted[f.name]; ok && w == f {
			delete(wanted, f.name)
			continue
		}
		statements = append(statements, dropTrigger(f.name))
	}
	if len(wanted) == 0 {
		return statements
	}
	for _, t := range s.tables { // in a stable order
		if !t.tracked || lifted[foldName(t.name)] {
			continue
		}
		for _, op := range operations {
			if w, missing := wanted[fencePrefix+t.name+"_"+op]; missing {
				statements = append(statements, w.create())
			}
		}
	}
	return statements
}

// intact reports whether nothing is missing and nothing is too many. It is the
// usual answer, and found without writing out what each trigger should be; no
// means to look closer.
func (s *schema) intact(lifted map[string]bool) bool {
	fences := 0
	for _, t := range s.tables {
		if !t.tracked || lifted[foldName(t.name)] {
			continue
		}
		seen := 0
		for _, f := range t.have {
			for i := range operations {
				if f.guards(t.name, i) {
					seen |= 1 << i
				}
			}
		}
		if seen != 1<<len(operations)-1 {
			return false
		}
		fences += len(operations)
	}
	return fences == len(s.fences)
}
