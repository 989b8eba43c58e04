package leases

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"

	"github.com/coopsqlite/coopsqlite/internal/hint"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// pageRows is how many rows All reads at a time.
const pageRows = 256

// Owner tells who holds the lease of that name now; ok is false if nobody
// does.
func (m *Manager) Owner(ctx context.Context, name string) (info Info, ok bool, err error) {
	if err := checkName("the name", name); err != nil {
		return Info{}, false, err
	}
	v, err := m.look(ctx, claim{key: lineKey{name: name}, names: []string{name}})
	return v.holder, v.holder.Token != "", err
}

// All yields the leases that are held, of names with that prefix, in the
// bytewise order of the names. It reads in pages and holds no connection while
// it yields, so a lease that changes meanwhile is seen before or after.
func (m *Manager) All(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for r, err := range m.scan(ctx, prefix) {
			if err != nil {
				yield(Info{}, fmt.Errorf("leases: list %q: %w", prefix, err))
				return
			}
			if r.held() && !yield(r.info(), nil) {
				return
			}
		}
	}
}

// scan yields the rows with that prefix, in the order of the names.
func (m *Manager) scan(ctx context.Context, prefix string) iter.Seq2[reading, error] {
	return func(yield func(reading, error) bool) {
		for from := prefix; ; {
			page, err := m.pageOf(ctx, from)
			if err != nil {
				yield(reading{}, err)
				return
			}
			for _, r := range page {
				if !strings.HasPrefix(r.name, prefix) {
					return // names are in order, so no more follow
				}
				if !yield(r, nil) {
					return
				}
			}
			if len(page) < pageRows {
				return
			}
			from = page[len(page)-1].name + "\x01" // the least name behind it: names have no NUL
		}
	}
}

func (m *Manager) pageOf(ctx context.Context, from string) (page []reading, err error) {
	ctx, cancel := m.op(ctx)
	defer cancel()
	err = m.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) error {
		page = page[:0]
		now, err := m.store.Peek(ctx)
		if err != nil {
			return err
		}
		rows, err := q.QueryContext(ctx, m.table.page, from, pageRows)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r, err := scanRow(rows.Scan)
			if err != nil {
				return err
			}
			page = append(page, reading{row: r, found: true, now: now})
		}
		return rows.Err()
	})
	return page, err
}

// Break takes the lease of that name from whoever was granted it with that
// epoch, without asking: the holder's next renewal, Tx or Verify is ErrLost.
// It is for holders known to be dead. The epoch, from Owner or All, makes sure
// that nobody else is hit: if the name was granted again since, the error is
// a [*HeldError] while that grant lasts. Where that grant is over already,
// Break does nothing.
func (m *Manager) Break(ctx context.Context, name string, epoch int64) error {
	if err := checkName("the name", name); err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := m.op(hint.Urgent(ctx))
	defer cancel()
	var before reading
	err := m.store.Write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		before, err = m.judge(ctx, tx, m.table.lock, name)
		switch {
		case err != nil:
			return err
		case epoch < 1 || epoch > before.epoch:
			return fmt.Errorf("%w: %s was never granted with epoch %d, the last was %d", ErrBounds, name, epoch, before.epoch)
		case epoch < before.epoch && before.held():
			return &HeldError{Name: name, Holder: before.info()}
		case epoch < before.epoch || before.token == "":
			return nil
		}
		freed := before.row
		freed.token, freed.owner, freed.expires = "", "", 0
		return m.table.write(ctx, tx, freed)
	})
	if err != nil {
		return fmt.Errorf("leases: break %s: %w", name, err)
	}
	m.wakeAll()
	if before.epoch == epoch && before.token != "" {
		m.emit(Event{Kind: Broken, Info: before.info()})
	}
	return nil
}

// RaiseEpochs makes every later grant, of whatever name, have an epoch greater
// by more than by than any in the table, and returns the bound. It is for
// after the restore of a backup or a failover, where grants may have been
// forgotten whose epochs others have seen; by must exceed the number of grants
// that any name can have lost. Leases that are held stay held.
func (m *Manager) RaiseEpochs(ctx context.Context, by int64) (floor int64, err error) {
	if by < 1 {
		return 0, fmt.Errorf("%w: epochs raised by %d, want at least 1", ErrBounds, by)
	}
	if err := m.ready(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := m.op(ctx)
	defer cancel()
	// The whole table is read here, outside the transaction, so as not to
	// keep writers waiting.
	if err := m.store.DB().QueryRowContext(ctx, m.table.highest).Scan(&floor); err != nil {
		return 0, fmt.Errorf("leases: raise epochs: %w", err)
	}
	floor += by
	err = m.store.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, m.table.raise, floor)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("leases: raise epochs: %w", err)
	}
	return floor, nil
}
