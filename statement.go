package coopsqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// statement is one statement of SQL text, and what SQLite says it does. What
// it does is never judged by its first word.
type statement struct {
	text string // of this statement alone
	home *physical
	stmt *shim.Stmt
	// inTx is the same statement for use in a transaction in which the fence
	// has been asked: it does not ask again for every row.
	inTx    *shim.Stmt
	params  int
	columns int

	class

	// users counts the prepared statements and open rows that hold it; the
	// cache is not among them.
	users      int
	cached     bool
	prev, next *statement // in the cache's list
}

// class is what a statement does.
type class struct {
	// reads: main and attached databases stay as they are, so the gate is not
	// needed.
	reads    bool
	onlyTemp bool
	// writes: SQLite would refuse it on a read-only database.
	writes bool
	dml    bool // changes rows of main, and nothing else of it
	ddl    bool // changes main's schema
	// dropsOurs: may have dropped what the fences need.
	dropsOurs bool
	// touchesOwner: may change or drop coop_owner.
	touchesOwner bool
	// opens, commits, rollsBack: BEGIN or SAVEPOINT; COMMIT or RELEASE;
	// ROLLBACK, also to a savepoint.
	opens, commits, rollsBack, savepoint bool
	pragma                               bool
	explains                             bool
	pragmaBusy                           bool
	dirties                              bool   // leaves something behind in the connection
	attaches                             bool   // may attach or detach a database
	wrap                                 bool   // in autocommit, needs a transaction around it for its fences
	attached                             string // the attached database it would write
	sealed                               bool   // must not write one, whatever its names mean by then
	// alters: it is, or may be, ALTER TABLE of a table of main: altered, or if
	// that is empty, any.
	alters  bool
	altered string
}

// prepare finds or compiles the first statement of query, and returns what
// comes after it.
func (c *conn) prepare(ctx context.Context, query string) (s *statement, rest string, err error) {
	if s := c.cache.get(query); s != nil {
		c.own.counters.hits.Add(1)
		return s, "", nil
	}
	c.own.counters.misses.Add(1)
	if query, err = untilNUL(query); err != nil {
		return nil, "", err
	}
	c.start(c.watch(ctx)) // reading the schema may have to wait for a lock
	unguarded := c.unguarded()
	omit := c.omit(query, unguarded)
	p, err := c.sh.Prepare(query, c.cache.capacity > 0, omit)
	if isView(err) {
		if unseen := c.seeTriggers(); unseen != nil {
			err = unseen
		} else {
			p, err = c.sh.Prepare(query, c.cache.capacity > 0, omit)
		}
	}
	c.sh.Unwatch()
	if err != nil {
		return nil, "", c.explain(ctx, err)
	}
	text, rest := query[:p.Tail], query[p.Tail:]
	if strings.TrimSpace(rest) == "" {
		text, rest = query, "" // a text to be found again in the cache
	} else if blank(rest) {
		rest = "" // but mattn's driver must not see the comment: it would drop the rows
	}
	if p.Stmt == nil {
		return nil, rest, nil
	}
	if p.Stmt.Seen&(shim.PragmaSet|shim.TempDDL) != 0 {
		c.dirty = true // many PRAGMAs take effect when they are compiled
	}
	s = &statement{text: text, home: c.physical, stmt: p.Stmt, params: p.Stmt.Params, columns: p.Stmt.Columns, class: class{attached: p.Attached, altered: p.Altered}}
	if err := c.classify(s, p.Authorized); err != nil {
		s.finalize()
		return nil, "", err
	}
	switch {
	case !unguarded || !s.writes:
	case s.unguardable():
		s.stmt, s.inTx = nil, s.stmt
	default:
		s.stmt.Finalize()
		s.stmt = nil // compiled again when it runs
	}
	if rest == "" && text == query && s.cacheable() && !c.authorizerLost {
		c.cache.put(s)
	}
	return s, rest, nil
}

// lookForAuthorizer finds out whether the user's own authorizer has replaced
// ours. It may judge the same statement differently every time, so none is kept
// from then on.
func (c *conn) lookForAuthorizer() {
	if c.authorizerLost {
		return
	}
	p, err := c.sh.Prepare("SELECT 1", false, 0)
	if err == nil {
		p.Stmt.Finalize()
	}
	if c.authorizerLost = err != nil || !p.Authorized; c.authorizerLost {
		c.cache.clear()
	}
}

// classify turns what SQLite and the authorizer said into what the driver does.
func (c *conn) classify(s *statement, authorized bool) error {
	seen := s.stmt.Seen
	if s.stmt.Explain {
		s.reads, s.explains = true, true
		return nil
	}
	if !authorized {
		c.lookForAuthorizer() // VACUUM asks none
		extra, err := c.sh.Explain(s.text)
		if err != nil {
			return err
		}
		seen |= extra
		if c.authorizerLost && seen&(shim.Tables|shim.OpensTx|shim.CommitsTx|shim.RollsBack) == 0 {
			// It may be ATTACH or any PRAGMA; one of them replaces the busy handler.
			seen |= shim.Pragma | shim.PragmaSet | shim.Attaches
			c.sh.AdoptBusyTimeout()
		}
	}
	s.pragma = seen&shim.Pragma != 0
	s.pragmaBusy = seen&shim.BusyTimeout != 0
	s.opens = seen&shim.OpensTx != 0
	s.commits = seen&shim.CommitsTx != 0
	s.rollsBack = seen&shim.RollsBack != 0
	s.savepoint = seen&shim.InSavepoint != 0
	s.dirties = seen&(shim.PragmaSet|shim.Attaches|shim.TempDDL) != 0
	s.attaches = seen&shim.Attaches != 0
	s.writes = !s.stmt.ReadOnly && seen&(shim.PragmaReads|shim.VacuumInto) == 0
	written := seen & (shim.WriteMain | shim.WriteAttached | shim.WriteTemp)
	s.onlyTemp = written == shim.WriteTemp
	s.reads = !s.writes || s.onlyTemp
	// A write that names no table is CREATE … IF NOT EXISTS of what exists (it
	// may be gone when the statement runs), or VACUUM.
	unnamed := s.writes && written == 0 && !s.pragma && !s.transactional()
	s.dml = seen&shim.WriteMain != 0 && seen&(shim.DDL|shim.Pragma|shim.NoWrap) == 0
	// Without coop_owner's row the fences refuse everybody, so its change is
	// watched like one of the schema.
	s.touchesOwner = seen&shim.TouchesOwner != 0
	s.dml = s.dml && !s.touchesOwner
	s.ddl = seen&shim.DDL != 0 || s.touchesOwner || unnamed && seen&shim.NoWrap == 0
	s.alters = seen&shim.Alters != 0 || s.ddl && c.authorizerLost
	s.dropsOurs = seen&shim.DropsOurs != 0 || s.ddl && c.authorizerLost
	s.wrap = (s.ddl || seen&shim.Header != 0 || c.authorizerLost && s.writes) && seen&shim.NoWrap == 0 && !s.transactional()
	if s.attached == "" && seen&shim.WriteAttached != 0 {
		s.attached = anyAttached
	}
	// VACUUM writes a database that it attaches itself.
	s.sealed = s.attached == "" && seen&shim.NoWrap == 0
	return nil
}

// rejudge prepares the statement anew: its names may lead elsewhere since it
// was judged.
func (c *conn) rejudge(s *statement) error {
	p, err := c.sh.Prepare(s.text, s.cached, 0)
	if err != nil {
		return err
	}
	fresh := &statement{text: s.text, stmt: p.Stmt, class: class{attached: p.Attached, altered: p.Altered}}
	if err := c.classify(fresh, p.Authorized); err != nil {
		fresh.finalize()
		return err
	}
	s.finalize()
	s.stmt, s.class = fresh.stmt, fresh.class
	return nil
}

// anyAttached stands for an attached database whose name is not known.
const anyAttached = "?"

// cacheable reports whether the next preparation of the text would be judged
// alike. That is not so for a PRAGMA, for DDL, and for a write to a temporary
// table that a table of main may replace. EXPLAIN shows the program as it was
// when it was prepared.
func (s *statement) cacheable() bool { return !s.pragma && !s.ddl && !s.onlyTemp && !s.explains }

func (s *statement) retain() { s.users++ }

// release gives the statement back; without users and outside the cache it is
// finalized.
func (s *statement) release() {
	s.users--
	s.discard()
}

// letGo discards the statement, and the one that it was asked for as. It comes
// before the gate is passed on: on the hot connection others come next. Either
// may be nil or in use, and both be the same.
func (s *statement) letGo(asked *statement) {
	if s != nil {
		s.discard()
	}
	if asked != s {
		asked.discard()
	}
}

func (s *statement) discard() {
	if s.users == 0 && !s.cached {
		s.finalize()
	}
}

// unguardable reports whether one answer of the fence is good for all the rows
// that the statement writes in a transaction. In an attached database, another
// fence asks.
func (s *statement) unguardable() bool { return s.dml && s.attached == "" }

// unguarded reports whether the fence has been asked in the transaction that
// is open, so that statements need not ask again: it holds SQLite's write
// lock, so nobody can become the owner before it ends, and a withdrawn permit
// is seen by [conn.admitStatement] and at the commit.
func (c *conn) unguarded() bool {
	return c.checked && c.gated && c.inTx && c.cfg.fence && !c.authorizerLost && !c.plain
}

// omit is what a statement may be compiled without. To look for rows that REPLACE
// would delete is spared where it cannot: neither by the text's own words, nor, as
// the schema was when it was last covered, by a constraint's or a trigger's. SQLite
// compiles again, in full, once the schema is another.
func (c *conn) omit(text string, unguarded bool) shim.Omit {
	if !unguarded {
		return 0
	}
	if c.cfg.changes.none() || c.dirty || c.handedOut || !c.unguarded() || mayReplace(text) {
		return shim.Fences
	}
	version, err := c.sh.SchemaVersion()
	if err != nil || version != c.cov.version.Load() || c.cov.replaces.Load() {
		return shim.Fences
	}
	return shim.Fences | shim.Collisions
}

// mayReplace reports whether the word is anywhere in the text.
func mayReplace(sql string) bool {
	const word = "replace"
	for i := 0; i+len(word) <= len(sql); i++ {
		if sql[i]|0x20 == word[0] && strings.EqualFold(sql[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// transactional reports whether the statement begins or ends a transaction.
func (s *statement) transactional() bool { return s.opens || s.commits || s.rollsBack }

// finalize leaves what rows are using to them.
func (s *statement) finalize() {
	for _, form := range [...]**shim.Stmt{&s.stmt, &s.inTx} {
		if *form != nil && !(*form).Open() {
			(*form).Finalize()
		}
		*form = nil
	}
}

// drop finalizes what was compiled for one use, unless rows are using it.
func (s *statement) drop(used *shim.Stmt) {
	if used != nil && used != s.stmt && used != s.inTx && !used.Open() {
		used.Finalize()
	}
}

// enough refuses to run with a parameter left unbound, in mattn's words.
func (s *statement) enough(args []driver.NamedValue, start int) error {
	if len(args)-start < s.params {
		return fmt.Errorf("not enough args to execute query: want %d got %d", s.params, len(args)-start)
	}
	return nil
}

// arguments are those of the statement that begins at position start, by
// mattn's rules: as many as it has parameters, and all named ones.
func (s *statement) arguments(args []driver.NamedValue, start int) []driver.NamedValue {
	end := start + s.params
	if start == 0 && end == len(args) {
		return args
	}
	out := append(make([]driver.NamedValue, 0, len(args)), args[start:end]...)
	for i := range args {
		if args[i].Name != "" && (i < start || i >= end) {
			out = append(out, args[i])
		}
	}
	for i := range out {
		out[i].Ordinal = i + 1
	}
	return out
}

// readOnlyError is what SQLite answers to a write that may not be.
func readOnlyError() error {
	return shim.NewError(sqlite3.ErrReadonly, sqlite3.ErrNoExtended(sqlite3.ErrReadonly),
		"attempt to write a readonly database: the transaction was begun with sql.TxOptions{ReadOnly: true}")
}

// untilNUL cuts the text at a NUL byte, where SQLite stops to read, unless
// something would silently be left out.
func untilNUL(sql string) (string, error) {
	end := strings.IndexByte(sql, 0)
	if end < 0 {
		return sql, nil
	}
	if !blank(strings.TrimLeft(sql[end:], "\x00")) {
		return "", errors.New("coopsqlite: the SQL text contains a NUL byte, and SQLite would not read what is behind it")
	}
	return sql[:end], nil
}

// blank reports whether no statement follows: white space, semicolons and
// comments, as SQLite's tokenizer knows them (https://sqlite.org/lang_comment.html).
func blank(sql string) bool {
	for sql != "" {
		switch {
		case strings.HasPrefix(sql, "--"):
			end := strings.IndexByte(sql, '\n')
			if end < 0 {
				return true
			}
			sql = sql[end+1:]
		case strings.HasPrefix(sql, "/*"):
			end := strings.Index(sql[2:], "*/")
			if end < 0 {
				return true
			}
			sql = sql[2+end+2:]
		case strings.ContainsRune(" \t\n\v\f\r;", rune(sql[0])):
			sql = sql[1:]
		default:
			return false
		}
	}
	return true
}
