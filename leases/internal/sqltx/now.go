package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// anchor is the one row that ties the boot-time clock to the calendar. It is
// written once per boot, so all processes on the store count from the same
// point, and a step of the wall clock moves nobody.
var anchor = Table{
	Name: Name{table: "coop_clock"},
	SQLite: `CREATE TABLE IF NOT EXISTS "coop_clock" (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	boot_id TEXT    NOT NULL,
	boot_ns INTEGER NOT NULL,
	unix_ns INTEGER NOT NULL
) STRICT`,
}

const (
	readAnchor  = `SELECT boot_id, boot_ns, unix_ns FROM "coop_clock" WHERE id = 1`
	writeAnchor = `INSERT INTO "coop_clock" (id, boot_id, boot_ns, unix_ns) VALUES (1, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET boot_id = excluded.boot_id, boot_ns = excluded.boot_ns, unix_ns = excluded.unix_ns`
	// PostgreSQL's now() stands still within a transaction; clock_timestamp
	// does not. Microseconds are all the server has.
	readServer = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000`
)

// Now is the store's time in Unix nanoseconds. tx is a write transaction of
// this store; whatever the reading is compared with must be locked before.
//
// Whose clock: the injected one if there is one; the server's on PostgreSQL;
// the boot-time clock with its anchor on SQLite, and the wall clock where the
// system has no such clock.
func (s *Store) Now(ctx context.Context, tx Querier) (int64, error) {
	if now, ok := s.settled(ctx); ok {
		return now, nil
	}
	return s.now(ctx, tx, true)
}

// Peek is Now for those who only look: it runs on the pool, in no
// transaction, and writes nothing.
func (s *Store) Peek(ctx context.Context) (int64, error) {
	return s.now(ctx, s.db, false)
}

func (s *Store) now(ctx context.Context, q Querier, mayAnchor bool) (int64, error) {
	switch {
	case s.clock != nil:
		return s.injectedNow(), nil
	case s.dialect == Postgres:
		var now int64
		err := q.QueryRowContext(ctx, readServer).Scan(&now)
		return now, err
	}
	if a := s.anchored.Load(); a != nil {
		return a.now(), nil
	}
	id := bootID()
	sinceBoot, ok := BootTime()
	if !ok || id == "" {
		return time.Now().UnixNano(), nil
	}
	a, err := anchorOf(ctx, q, id)
	if err != nil {
		return 0, err
	}
	if a != nil {
		return a.now(), nil
	}
	wall := time.Now().UnixNano()
	if mayAnchor {
		if _, err := q.ExecContext(ctx, writeAnchor, id, int64(sinceBoot), wall); err != nil {
			return 0, fmt.Errorf("write the clock's anchor: %w", err)
		}
	}
	return wall, nil
}

// anchorage is the anchor's row, of this boot.
type anchorage struct{ bootNS, unixNS int64 }

func (a *anchorage) now() int64 {
	sinceBoot, _ := BootTime() // it told when the anchor was written
	return a.unixNS + int64(sinceBoot) - a.bootNS
}

// anchorOf reads the anchor, nil if there is none of this boot.
func anchorOf(ctx context.Context, q Querier, id string) (*anchorage, error) {
	var anchorID string
	var a anchorage
	err := q.QueryRowContext(ctx, readAnchor).Scan(&anchorID, &a.bootNS, &a.unixNS)
	if errors.Is(err, sql.ErrNoRows) || err == nil && anchorID != id {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the clock's anchor: %w", err)
	}
	return &a, nil
}

// fixAnchor reads the anchor once and for all where no other process can write
// it, writing it before if it must.
func (s *Store) fixAnchor(ctx context.Context) error {
	id := bootID()
	if s.clock != nil || id == "" || !s.alone() {
		return nil
	}
	a, err := anchorOf(ctx, s.db, id)
	if err == nil && a == nil {
		err = s.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := s.Now(ctx, tx)
			return err
		})
		if err == nil {
			a, err = anchorOf(ctx, s.db, id)
		}
	}
	if err == nil {
		s.anchored.Store(a)
	}
	return err
}

// injectedNow never goes back, whatever the injected clock does.
func (s *Store) injectedNow() int64 {
	s.lastMu.Lock()
	defer s.lastMu.Unlock()
	s.last = max(s.last, s.clock.Now().UnixNano())
	return s.last
}
