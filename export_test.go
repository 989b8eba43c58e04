package coopsqlite

import (
	"fmt"
	"time"
)

// What the tests need and the API does not show.

// Register is what init does.
var Register = register

// QuoteName and QuoteText are the forms in which names go into SQL.
var (
	QuoteName = quoteName
	QuoteText = quoteText
	EqualName = equalName
)

// FenceSQL is the statement that makes the fence against op on the table.
func FenceSQL(table, op string) string {
	for i, f := range fenceTriggers(table) {
		if operations[i] == op {
			return f.create()
		}
	}
	panic(fmt.Sprintf("no operation %q", op))
}

// ParsedDSN is what a DSN was understood to say.
type ParsedDSN struct {
	Plain       string // for mattn's driver
	Path, Mode  string
	Wait        time.Duration
	BusyTimeout time.Duration
	Tables      string // canonical
	Changes     string
}

// ParseDSN parses a DSN without opening anything.
func ParseDSN(dsn string) (ParsedDSN, error) {
	c, err := parseDSN(dsn)
	if err != nil {
		return ParsedDSN{}, err
	}
	return ParsedDSN{c.dsn, c.path, c.mode, c.wait, c.busyTimeout, c.tables.String(), c.changes.String()}, nil
}

// Selects reports whether a value of _coop_tables means the table.
func Selects(value, table string) (bool, error) {
	s, err := parseSelection("_coop_tables", value)
	return s.has(table), err
}

// WriteQueue is how many calls of Write wait for their turn.
func WriteQueue(s *Store) int {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return len(s.group.queue)
}

// HasHot reports whether the store's pool has its hot connection.
func HasHot(s *Store) bool {
	s.connector.mu.Lock()
	defer s.connector.mu.Unlock()
	return s.connector.hot != nil || s.connector.hotTaken
}

// TrimParked runs a round of what the timer does.
func TrimParked(s *Store) { s.connector.trimParked() }
