package coopsqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

var (
	// ErrNoChanges says that the store has no coop_changes: it was never opened
	// with _coop_changes.
	ErrNoChanges = errors.New("coopsqlite: the store records no changes: open it with _coop_changes")
	// ErrChangesMissing says that a reader of the feed has missed changes: they
	// were pruned before it came, or the table was dropped.
	ErrChangesMissing = errors.New("coopsqlite: changes are missing from the feed")
)

const (
	// A page of changes is read at a time, so that no connection and no
	// snapshot is held while the caller works: so many changes, or bytes.
	pageChanges = 256
	pageBytes   = 1 << 20
	// feedPoll is how often somebody who hears of no commits looks for some.
	feedPoll = 50 * time.Millisecond
)

// Changes iterates over the changes that come after the number after, in the
// order in which they were committed, up to the newest. 0 begins with the
// oldest that is there. Every committed change comes once, and none of a
// transaction that was rolled back: whoever keeps the Seq of the last change it
// has dealt with can go on from there at any time, as any other process can.
//
// An error is the last thing it yields: [ErrNoChanges], [ErrChangesMissing] if
// some of those asked for were pruned, or the context's.
func (s *Store) Changes(ctx context.Context, after int64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		f := feed{store: s, after: after}
		if _, err := f.read(ctx, yield); err != nil {
			yield(Change{}, err)
		}
	}
}

// Follow iterates like Changes and then waits for more, until ctx ends, whose
// error is then the last thing it yields; after the pool's Close that is
// [ErrStopped]. In the process that owns the store it is woken by commits. A
// reader, and a member of a shared group, looks every 50 ms whether another
// process has committed, on a connection that it keeps meanwhile.
func (s *Store) Follow(ctx context.Context, after int64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		f := feed{store: s, after: after}
		if err := f.follow(ctx, yield); err != nil {
			yield(Change{}, err)
		}
	}
}

// feed is one reader's place in the feed of changes.
type feed struct {
	store *Store
	after int64
}

// read yields what there is. It reports whether the caller wants more.
func (f *feed) read(ctx context.Context, yield func(Change, error) bool) (more bool, err error) {
	for {
		page, err := f.page(ctx)
		if err != nil || len(page) == 0 {
			return true, err
		}
		for _, values := range page {
			change, err := changeOf(values)
			if err != nil {
				return false, err
			}
			f.after = change.Seq
			if !yield(change, nil) {
				return false, nil
			}
		}
	}
}

func (f *feed) follow(ctx context.Context, yield func(Change, error) bool) error {
	mode := f.store.own.mode
	wait := f.awaitCommit
	if mode == modeReader || mode == modeShared {
		poll, err := f.newPoll(ctx)
		if err != nil {
			return err
		}
		defer poll.close()
		wait = poll.await
	}
	for {
		// Asked for before reading, so that no commit falls in between.
		committed := f.store.own.commits.wait()
		more, err := f.read(ctx, yield)
		if err != nil || !more {
			return err
		}
		if err := wait(ctx, committed); err != nil {
			return err
		}
	}
}

func (f *feed) awaitCommit(ctx context.Context, committed <-chan struct{}) error {
	select {
	case <-committed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll notices the commits of other processes.
type poll struct {
	feed    *feed
	conn    *conn
	version int64
}

func (f *feed) newPoll(ctx context.Context) (*poll, error) {
	if err := f.store.usable(); err != nil {
		return nil, err
	}
	c, err := f.store.connector.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &poll{feed: f, conn: c, version: -1}, nil
}

// await returns when any connection but its own has committed since it last
// did (https://sqlite.org/pragma.html#pragma_data_version).
func (p *poll) await(ctx context.Context, committed <-chan struct{}) error {
	ticker := time.NewTicker(feedPoll)
	defer ticker.Stop()
	for {
		if err := p.feed.store.usable(); err != nil {
			return err
		}
		v, err := p.conn.sh.Query("PRAGMA main.data_version")
		if err != nil {
			return p.conn.explain(ctx, err)
		}
		if version := number(v[0]); version != p.version {
			p.version = version
			return nil
		}
		select {
		case <-committed:
			return nil
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *poll) close() { _ = p.conn.Close() }

// page reads the next changes.
func (f *feed) page(ctx context.Context) ([][]any, error) {
	if err := first(ctx.Err(), f.store.usable()); err != nil {
		return nil, err
	}
	c, err := f.store.connector.connect(ctx)
	if err != nil {
		return nil, err
	}
	page, err := f.pageOn(ctx, c)
	if isNoTable(err) {
		err = f.noTable()
	}
	return page, first(err, c.Close())
}

func (f *feed) pageOn(ctx context.Context, c *conn) ([][]any, error) {
	rows, err := c.QueryContext(ctx, "SELECT seq, time, epoch, tx, tbl, op, key, old, new, actor, metadata"+
		" FROM main.coop_changes WHERE seq > ? ORDER BY seq LIMIT ?", namedValues([]driver.Value{f.after, int64(pageChanges)}))
	if err != nil {
		return nil, err
	}
	var page [][]any
	for size := 0; size < pageBytes; {
		values := make([]driver.Value, len(rows.Columns()))
		if err = rows.Next(values); err != nil {
			break
		}
		row := make([]any, len(values))
		for i, v := range values {
			row[i] = v
			if s, ok := v.(string); ok {
				size += len(s)
			}
		}
		page = append(page, row)
	}
	if err == io.EOF {
		err = nil
	}
	if err = first(err, rows.Close()); err != nil {
		return nil, err
	}
	return page, f.complete(ctx, c, page)
}

// endsOfFeed asks for the oldest and the newest number. min and max in one SELECT
// would read the whole table (https://sqlite.org/optoverview.html#the_min_max_optimization).
const endsOfFeed = "SELECT (SELECT min(seq) FROM main.coop_changes), (SELECT max(seq) FROM main.coop_changes)"

// complete makes sure that nothing is missing between the reader's place and
// the page. Only the beginning of the feed is pruned; what somebody has deleted
// in the middle is gone by intent.
func (f *feed) complete(ctx context.Context, c *conn, page [][]any) error {
	if f.after == 0 || len(page) > 0 && number(page[0][0]) == f.after+1 {
		return nil
	}
	ends, err := c.sh.Query(endsOfFeed)
	if err != nil {
		return c.explain(ctx, err)
	}
	switch oldest, newest := number(ends[0]), number(ends[1]); {
	case oldest > f.after+1:
		return fmt.Errorf("%w: those from %d to %d were pruned", ErrChangesMissing, f.after+1, oldest-1)
	case newest < f.after:
		return fmt.Errorf("%w: it ends with %d, and those after %d were asked for: coop_changes was dropped, or this is another store", ErrChangesMissing, newest, f.after)
	}
	return nil
}

// noTable says what it means that coop_changes does not exist.
func (f *feed) noTable() error {
	if f.store.own.mode != modeReader && !f.store.connector.cfg.changes.none() {
		return nil // it comes with the first table
	}
	return fmt.Errorf("%w: %s", ErrNoChanges, f.store.own.name())
}

func isNoTable(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such table: main."+changesTable)
}
