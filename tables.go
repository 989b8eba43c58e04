package coopsqlite

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// table is one table of main, and what the fence means for it.
type table struct {
	name    string
	virtual string // the module, in lower case, of a virtual table
	// tracked tables must have their fences; why says why one has none.
	tracked bool
	why     string
	have    []trigger // fences on this table
	guards  []string  // shadow tables whose fences stand for this virtual one's
	shadow  bool      // belongs to a virtual table
	changes []trigger // that record its changes, if wanted
	newest  int       // place in the schema of the user's last trigger on it
	// definition is the text of the table and of its indexes, if changes are
	// recorded.
	definition []string
}

// schema is main's, read in one pass.
type schema struct {
	tables []*table
	byName map[string]*table // by folded name
	fences []trigger         // all triggers whose name says that they are fences
	// trackers are those whose name says that they record changes.
	trackers []tracker
	others   bool   // there are triggers of the user's
	replaces bool   // something of the user's may replace rows, if changes are recorded
	owner    bool   // coop_owner exists
	guard    string // coop_guard's text, or empty
}

// readSchema reads sqlite_schema once; a query per table would be quadratic.
func readSchema(c *shim.Conn, cfg *config) (*schema, error) {
	text, kinds := "iif(type = 'trigger' OR rootpage = 0, sql, '')", "('table', 'trigger')"
	if !cfg.changes.none() { // then indexes matter, and how each table is defined
		text, kinds = "sql", "('table', 'trigger', 'index')"
	}
	rows, err := c.Texts("SELECT type, name, tbl_name, " + text + " FROM main.sqlite_schema WHERE type IN " + kinds + " OR name = '" + guardView + "'")
	if err != nil {
		return nil, err
	}
	s := &schema{byName: make(map[string]*table, len(rows)/4), fences: make([]trigger, 0, len(rows)/4)}
	newest := map[string]int{}
	for i := 0; i < len(rows); i += 4 {
		kind, name, on, sql := rows[i], rows[i+1], rows[i+2], rows[i+3]
		if kind == "trigger" {
			switch {
			case isFenceName(name):
				s.fences = append(s.fences, trigger{name, on, sql})
			case isChangeName(name):
				s.trackers = append(s.trackers, tracker{trigger{name, on, sql}, i})
			default:
				s.others = true
				s.replaces = s.replaces || mayReplace(sql)
				newest[foldName(on)] = i
			}
			continue
		}
		if kind == "view" {
			s.guard = sql
			continue
		}
		if kind == "index" {
			if t := s.byName[foldName(on)]; t != nil { // a table comes before its indexes
				t.definition = append(t.definition, sql)
			}
			continue
		}
		s.replaces = s.replaces || mayReplace(sql)
		t := &table{name: name, definition: []string{sql}}
		if strings.HasPrefix(sql, "CREATE VIRTUAL TABLE") { // as SQLite writes it
			t.virtual = moduleOf(sql)
		}
		s.tables = append(s.tables, t)
		s.byName[foldName(name)] = t
		s.owner = s.owner || name == ownerTable
	}
	for _, t := range s.tables {
		t.newest = newest[foldName(t.name)]
		s.classify(t, cfg)
	}
	for _, f := range s.fences {
		if t := s.byName[foldName(f.table)]; t != nil {
			if t.have == nil {
				t.have = make([]trigger, 0, len(operations))
			}
			t.have = append(t.have, f)
		}
	}
	return s, nil
}

// forget takes out a fence that has been dropped.
func (s *schema) forget(f trigger) {
	s.fences = slices.DeleteFunc(s.fences, func(other trigger) bool { return other == f })
}

// classify decides whether the table is tracked.
func (s *schema) classify(t *table, cfg *config) {
	lower := strings.ToLower(t.name)
	switch {
	case strings.HasPrefix(lower, "sqlite_"):
		t.why = "an internal table of SQLite"
	case strings.HasPrefix(lower, "_litestream_"):
		t.why = "Litestream's own table"
	case t.virtual != "":
		s.classifyVirtual(t, cfg)
	default:
		t.tracked, t.why = s.trackShadow(t, cfg)
		if t.why == "" && !strings.HasPrefix(lower, ownPrefix) && !cfg.tables.has(t.name) {
			t.tracked, t.why = false, "excluded by _coop_tables"
		}
	}
}

// fencedShadows lists, by module, the shadow tables that can carry a fence, and
// whether that is on by default.
//
// It must not grow without a look into the module. FTS keeps what is inserted
// in memory and writes it when SQLite is about to open a savepoint. A trigger
// that can raise an error makes the statement it is on open a savepoint, too,
// within a transaction. So a fence on a table that FTS writes on that occasion
// calls itself until the stack is used up: on _data and _idx of FTS5, and
// _config, which the first deletion under "secure-delete" writes; on _segdir,
// _segments and _stat of FTS3 and FTS4. The others are written as the rows are.
var fencedShadows = map[string]struct {
	suffixes  []string
	byDefault bool
}{
	"rtree":     {[]string{"rowid"}, true},
	"rtree_i32": {[]string{"rowid"}, true},
	"geopoly":   {[]string{"rowid"}, true},
	"fts5":      {[]string{"content", "docsize"}, false},
	"fts4":      {[]string{"content", "docsize"}, false},
	"fts3":      {[]string{"content", "docsize"}, false},
}

// classifyVirtual says how a virtual table is guarded: SQLite allows no trigger
// on it.
func (s *schema) classifyVirtual(t *table, cfg *config) {
	shadows, known := fencedShadows[t.virtual]
	for _, suffix := range shadows.suffixes {
		if shadow := s.byName[foldName(t.name+"_"+suffix)]; shadow != nil {
			t.guards = append(t.guards, shadow.name)
		}
	}
	switch {
	case !cfg.tables.has(t.name):
		t.guards, t.why = nil, "excluded by _coop_tables"
	case !known:
		t.why = fmt.Sprintf("a virtual table (%s): SQLite allows no trigger on it", t.virtual)
	case len(t.guards) == 0:
		t.why = fmt.Sprintf("a virtual table (%s) without a shadow table that can carry a fence", t.virtual)
	case !cfg.virtual && !shadows.byDefault:
		t.guards, t.why = nil, fmt.Sprintf("a virtual table (%s): set _coop_virtual=on to fence it", t.virtual)
	default:
		t.why = "a virtual table, guarded through " + strings.Join(t.guards, ", ")
	}
}

// trackShadow decides for ordinary tables, among which the shadow tables of a
// virtual table are recognised by name, as SQLite does
// (https://sqlite.org/vtab.html#the_xshadowname_method): never fence one
// blindly.
func (s *schema) trackShadow(t *table, cfg *config) (tracked bool, why string) {
	for at := strings.LastIndexByte(t.name, '_'); at > 0; at = strings.LastIndexByte(t.name[:at], '_') {
		parent := s.byName[foldName(t.name[:at])]
		if parent == nil || parent.virtual == "" {
			continue
		}
		suffix := strings.ToLower(t.name[at+1:])
		shadows, known := fencedShadows[parent.virtual]
		if known && !isShadowSuffix(parent.virtual, suffix) {
			continue // an ordinary table that is merely named so
		}
		t.shadow = true
		for _, s := range shadows.suffixes {
			if s == suffix && (cfg.virtual || shadows.byDefault) && cfg.tables.has(parent.name) {
				return true, ""
			}
		}
		return false, fmt.Sprintf("a shadow table of %s (%s)", parent.name, parent.virtual)
	}
	return true, ""
}

// shadowSuffixes are all shadow tables of the modules we know.
var shadowSuffixes = map[string][]string{
	"rtree":     {"node", "parent", "rowid"},
	"rtree_i32": {"node", "parent", "rowid"},
	"geopoly":   {"node", "parent", "rowid"},
	"fts5":      {"config", "content", "data", "docsize", "idx"},
	"fts4":      {"content", "docsize", "segdir", "segments", "stat"},
	"fts3":      {"content", "docsize", "segdir", "segments", "stat"},
}

func isShadowSuffix(module, suffix string) bool {
	for _, s := range shadowSuffixes[module] {
		if s == suffix {
			return true
		}
	}
	return false
}

// usingModule finds the module's name behind the table's, which may be quoted
// in any of SQLite's ways.
var usingModule = regexp.MustCompile(`(?is)^CREATE VIRTUAL TABLE\s` + blanks +
	`(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|` + "`(?:[^`]|``)*`" + `|\[[^\]]*\]|[^\s"'\x60\[/]+)` + blanks +
	`USING` + blanks + `["'\x60\[]?(\w+)`)

// blanks are white space and comments.
const blanks = `(?:\s|/\*.*?\*/|--[^\n]*\n)*`

func moduleOf(sql string) string {
	if m := usingModule.FindStringSubmatch(sql); m != nil {
		return strings.ToLower(m[1])
	}
	return "unknown module"
}
