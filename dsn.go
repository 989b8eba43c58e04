package coopsqlite

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Modes of ownership, the values of _coop_owner, and those that a DSN implies.
const (
	modeExclusive = "exclusive"
	modeProcess   = "process"
	modeShared    = "shared"
	modeReader    = "reader"
	modeMemory    = "memory"
)

// Defaults that differ from mattn's driver. Each is restored by naming
// mattn's value in the DSN.
const (
	defaultBusyTimeout   = 10 * time.Second
	defaultTxLock        = "immediate"
	defaultStmtCacheSize = 128
	defaultWatch         = time.Second
)

// config is a parsed DSN.
type config struct {
	dsn    string // for mattn's driver, without our own parameters
	params string // its part from the question mark on
	// existing is dsn for a store that is known to be there: SQLite must not
	// make a new file in its place. Empty before resolve.
	existing string
	uri      bool   // SQLite must see the parameters
	path     string // of the store as written, decoded; empty for a private temporary database
	// shareName names a memory database that connections of this process share.
	shareName string

	mode        string
	wait        time.Duration
	fence       bool
	epoch       bool
	tables      selection
	changes     selection
	virtual     bool
	watch       time.Duration
	app         string
	actor       string
	txLock      string
	busyTimeout time.Duration
	stmtCache   int
	journalSet  bool
	loc         *time.Location // of the times that are read; nil: as they are written
}

// parseDSN reads a data source name as mattn's driver does, takes our own
// parameters out, and puts in the defaults that differ. Every parameter whose
// name begins with _coop_ is checked.
func parseDSN(dsn string) (*config, error) {
	c := &config{
		mode:        modeExclusive,
		fence:       true,
		epoch:       true,
		tables:      selection{all: true},
		watch:       defaultWatch,
		txLock:      defaultTxLock,
		busyTimeout: defaultBusyTimeout,
		stmtCache:   defaultStmtCacheSize,
	}
	name, query := dsn, ""
	switch pos := strings.IndexByte(dsn, '?'); {
	case pos == 0:
		// mattn's driver would make a file of that name, parameters and all.
		return nil, fmt.Errorf("coopsqlite: DSN %q has no name before the question mark: for a database in memory write :memory:, for a file name that begins with one file:%%3F", dsn)
	case pos > 0:
		name, query = dsn[:pos], dsn[pos+1:]
	}
	isURI := strings.HasPrefix(dsn, "file:")
	if isURI {
		// SQLite ends a URI's parameters at a fragment and ignores it; mattn's
		// driver would take it for part of a value.
		query, _, _ = strings.Cut(query, "#")
	}
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("coopsqlite: the parameters of DSN %q: %w", dsn, err)
	}
	if err := c.own(params); err != nil {
		return nil, err
	}
	timeoutKnown := c.timeout(params)
	if err := c.shared(params); err != nil {
		return nil, err
	}

	kept := make([]string, 0, 8)
	for part := range strings.SplitSeq(query, "&") {
		key, err := url.QueryUnescape(strings.SplitN(part, "=", 2)[0])
		ours := strings.HasPrefix(key, "_coop_") || timeoutKnown && (key == "_busy_timeout" || key == "_timeout")
		if part != "" && (err != nil || !ours) {
			kept = append(kept, part)
		}
	}
	if timeoutKnown {
		// Only while it is being opened does mattn's connection wait by itself.
		kept = append(kept, "_busy_timeout="+strconv.FormatInt(min(c.busyTimeout, openWait).Milliseconds(), 10))
	}
	if !params.Has("_stmt_cache_size") {
		kept = append(kept, "_stmt_cache_size="+strconv.Itoa(c.stmtCache))
	}
	if !params.Has("_txlock") {
		kept = append(kept, "_txlock="+c.txLock)
	}
	if err := c.locate(name, isURI, params); err != nil {
		return nil, fmt.Errorf("coopsqlite: DSN %q: %w", dsn, err)
	}
	if name == "" {
		// mattn's driver reads parameters only behind a name. An empty URI is
		// the same private temporary database.
		name = "file:"
	}
	c.params = "?" + strings.Join(kept, "&")
	c.dsn = name + c.params
	// SQLite reads mode and immutable in a URI only. Behind a plain name a
	// reader would be able to write, and make a file that is not there.
	c.uri = isURI || params.Get("mode") == "ro" || isTrue(params.Get("immutable"))
	return c, nil
}

// resolve makes every connection open the file at the store's real path, which
// is what is owned, wherever links in the name may lead later and whatever the
// working directory is by then.
func (c *config) resolve(realPath string) {
	name := realPath
	if c.uri || strings.Contains(name, "?") {
		name = "file:" + escapeURI(name)
	}
	c.dsn = name + c.params

	var kept []string
	for part := range strings.SplitSeq(c.params[1:], "&") {
		// Behind a plain name SQLite has not seen its own parameters.
		if c.uri || strings.HasPrefix(part, "_") || strings.HasPrefix(part, "vfs=") {
			kept = append(kept, part)
		}
	}
	// Of two modes SQLite takes the last.
	c.existing = "file:" + escapeURI(realPath) + "?" + strings.Join(append(kept, "mode=rw"), "&")
}

// own reads the parameters that begin with _coop_.
func (c *config) own(params url.Values) error {
	for key, values := range params {
		if !strings.HasPrefix(key, "_coop_") {
			continue
		}
		if len(values) > 1 {
			return fmt.Errorf("coopsqlite: parameter %s is given %d times", key, len(values))
		}
		if err := c.set(key, values[0]); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) set(key, value string) (err error) {
	switch key {
	case "_coop_owner":
		switch value {
		case modeExclusive, modeProcess, modeShared:
			c.mode = value
		default:
			return badValue(key, value, "exclusive, process or shared")
		}
	case "_coop_wait":
		c.wait, err = parseDuration(key, value)
	case "_coop_watch":
		c.watch, err = parseDuration(key, value)
	case "_coop_fence":
		c.fence, err = parseSwitch(key, value)
	case "_coop_epoch":
		c.epoch, err = parseSwitch(key, value)
	case "_coop_virtual":
		c.virtual, err = parseSwitch(key, value)
	case "_coop_tables":
		c.tables, err = parseSelection(key, value)
	case "_coop_changes":
		if value == "off" {
			c.changes = selection{}
			return nil
		}
		c.changes, err = parseSelection(key, value)
	case "_coop_app":
		c.app, err = parseText(key, value)
	case "_coop_actor":
		c.actor, err = parseText(key, value)
	default:
		return fmt.Errorf("coopsqlite: unknown parameter %s: the known ones are _coop_owner, _coop_wait, _coop_fence, _coop_tables, _coop_epoch, _coop_changes, _coop_virtual, _coop_watch, _coop_app and _coop_actor", key)
	}
	return err
}

// timeout reads the busy timeout, of which mattn's driver knows two names. It
// reports whether the value is good.
func (c *config) timeout(params url.Values) bool {
	key := "_busy_timeout"
	if params.Has("_timeout") {
		key = "_timeout"
	}
	value := params.Get(key)
	if value == "" {
		return true
	}
	ms, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return false
	}
	c.busyTimeout = time.Duration(max(ms, 0)) * time.Millisecond
	return true
}

// shared reads the parameters of mattn's driver that this one needs to know.
// A bad value is reported by mattn's driver, in its own words, when it opens.
func (c *config) shared(params url.Values) error {
	if v := params.Get("_txlock"); v != "" {
		c.txLock = strings.ToLower(v)
	}
	if n, err := strconv.Atoi(params.Get("_stmt_cache_size")); err == nil && n >= 0 {
		c.stmtCache = n
	}
	switch loc := params.Get("_loc"); strings.ToLower(loc) {
	case "":
	case "auto":
		c.loc = time.Local
	default:
		c.loc, _ = time.LoadLocation(loc)
	}
	c.journalSet = params.Has("_journal_mode") || params.Has("_journal")
	readOnly := params.Get("mode") == "ro" || isTrue(params.Get("immutable")) || isTrue(params.Get("_query_only"))
	if readOnly {
		if params.Has("_coop_owner") {
			return fmt.Errorf("coopsqlite: _coop_owner=%s cannot go with mode=ro, immutable=1 or _query_only=1: a reader owns nothing", params.Get("_coop_owner"))
		}
		c.mode = modeReader
	}
	return nil
}

// locate finds the file that SQLite will open (https://sqlite.org/uri.html).
func (c *config) locate(name string, isURI bool, params url.Values) error {
	path := name
	if isURI {
		var err error
		if path, err = pathOfURI(name); err != nil {
			return err
		}
	}
	if strings.IndexByte(path, 0) >= 0 {
		return errors.New("a NUL byte in the file name")
	}
	c.path = path
	vfs := params.Get("vfs")
	memory := path == "" || path == ":memory:" || isURI && (params.Get("mode") == "memory" || vfs == "memdb")
	if !memory {
		return nil
	}
	if c.mode == modeShared {
		return errors.New("_coop_owner=shared needs a file: a database in memory belongs to one process")
	}
	c.mode = modeMemory
	if vfs == "memdb" && strings.HasPrefix(path, "/") || isURI && params.Get("cache") == "shared" {
		c.shareName = vfs + "|" + path
	}
	return nil
}

// pathOfURI decodes the path of a file: URI by SQLite's rules: an authority
// must be empty or localhost, a fragment is dropped, and %HH stands for a byte.
func pathOfURI(uri string) (string, error) {
	rest := strings.TrimPrefix(uri, "file:")
	if strings.HasPrefix(rest, "//") {
		authority, path, _ := strings.Cut(rest[2:], "/")
		if authority != "" && authority != "localhost" {
			return "", fmt.Errorf("the URI names the host %q: only an empty host or localhost is a file of this machine", authority)
		}
		rest = "/" + path
	}
	rest, _, _ = strings.Cut(rest, "#")
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		if rest[i] == '%' && i+2 < len(rest) {
			if v, err := strconv.ParseUint(rest[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		b.WriteByte(rest[i])
	}
	return b.String(), nil
}

// selection says which tables a parameter means: all but some, or some.
type selection struct {
	all     bool
	include []string
	exclude []string
}

func (s selection) none() bool { return !s.all && len(s.include) == 0 }

// has reports whether the table is meant. SQLite's names differ in more than
// the case of ASCII letters.
func (s selection) has(table string) bool {
	match := func(name string) bool { return equalName(name, table) }
	if slices.ContainsFunc(s.exclude, match) {
		return false
	}
	return s.all || slices.ContainsFunc(s.include, match)
}

// String is the canonical form: what is stored beside the fence, and compared.
func (s selection) String() string {
	var parts []string
	if s.all {
		parts = append(parts, "*")
	}
	include, exclude := slices.Clone(s.include), slices.Clone(s.exclude)
	slices.Sort(include)
	slices.Sort(exclude)
	parts = append(parts, include...)
	for _, name := range exclude {
		parts = append(parts, "-"+name)
	}
	if len(parts) == 0 {
		return "off"
	}
	return strings.Join(parts, ",")
}

// parseSelection reads "*", "a,b", "*,-c" or "-c" (all but c).
func parseSelection(key, value string) (selection, error) {
	var s selection
	for part := range strings.SplitSeq(value, ",") {
		name, excluded := strings.CutPrefix(part, "-")
		switch {
		case part == "*":
			s.all = true
		case name == "":
			return s, badValue(key, value, "*, or names separated by commas, each with a minus in front to exclude it")
		case excluded:
			s.exclude = append(s.exclude, name)
		default:
			s.include = append(s.include, name)
		}
	}
	if len(s.include) == 0 {
		s.all = true
	}
	if s.all && len(s.include) > 0 {
		return s, badValue(key, value, "either * or names, not both")
	}
	return s, nil
}

func parseDuration(key, value string) (time.Duration, error) {
	if value == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return 0, badValue(key, value, "0 or a duration such as 500ms or 10s")
	}
	return d, nil
}

func parseSwitch(key, value string) (bool, error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, badValue(key, value, "on or off")
}

func parseText(key, value string) (string, error) {
	if value == "" || strings.ContainsAny(value, "\n\r\x00") {
		return "", badValue(key, value, "a name on one line")
	}
	return value, nil
}

func badValue(key, value, want string) error {
	return fmt.Errorf("coopsqlite: parameter %s=%s: want %s", key, value, want)
}

// isTrue reads a boolean as SQLite's URI parameters and mattn's driver do.
func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "1", "yes", "true", "on":
		return true
	}
	return false
}
