package leases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// defaultTable is the table's name where Options says nothing else.
const defaultTable = "coop_leases"

// floorName is the name of the row whose epoch every grant exceeds. No lease
// can have it, since a name has at least one byte.
const floorName = ""

// row is a lease as the table has it. A free one has no token; it is kept,
// since the next grant's epoch must be greater than its epoch.
type row struct {
	name, token, owner         string
	epoch                      int64
	acquired, renewed, expires int64 // Unix ns, on the store's clock
	floor                      int64
}

func (r row) held(now int64) bool { return r.token != "" && r.expires > now }

func (r row) info() Info {
	return Info{
		Name: r.name, Token: r.token, Owner: r.owner, Epoch: r.epoch,
		Acquired: time.Unix(0, r.acquired), Renewed: time.Unix(0, r.renewed), Expires: time.Unix(0, r.expires),
	}
}

// table holds the statements.
type table struct {
	ddl sqltx.Table

	read, lock, share string // one row, by name
	page              string // rows from a name on, by name
	add, put          string
	highest, raise    string
}

func newTable(d Dialect, name string) (table, error) {
	if name == "" {
		name = defaultTable
	}
	parsed, err := sqltx.ParseName(name)
	if err != nil {
		return table{}, fmt.Errorf("leases: Options.Table: %w", err)
	}
	q := parsed.String()
	const columns = `name, token, owner, epoch, acquired, renewed, expires`
	read := `SELECT ` + columns + `, coalesce((SELECT epoch FROM ` + q + ` WHERE name = ''), 0) FROM ` + q
	t := table{
		ddl: sqltx.Table{
			Name: parsed,
			SQLite: `CREATE TABLE IF NOT EXISTS ` + q + ` (
	name     TEXT    PRIMARY KEY NOT NULL,
	token    TEXT    NOT NULL,
	owner    TEXT    NOT NULL,
	epoch    INTEGER NOT NULL CHECK (epoch >= 0),
	acquired INTEGER NOT NULL,
	renewed  INTEGER NOT NULL,
	expires  INTEGER NOT NULL
) STRICT, WITHOUT ROWID`,
			Postgres: `CREATE TABLE IF NOT EXISTS ` + q + ` (
	name     text   COLLATE "C" PRIMARY KEY,
	token    text   NOT NULL,
	owner    text   NOT NULL,
	epoch    bigint NOT NULL CHECK (epoch >= 0),
	acquired bigint NOT NULL,
	renewed  bigint NOT NULL,
	expires  bigint NOT NULL
)`,
		},
		read: read + ` WHERE name = ?`,
		page: read + ` WHERE name >= ? ORDER BY name LIMIT ?`,
		add:  `INSERT INTO ` + q + ` (` + columns + `) VALUES (?, '', '', 0, 0, 0, 0) ON CONFLICT (name) DO NOTHING`,
		put: `UPDATE ` + q + ` SET token = ?, owner = ?, epoch = ?, acquired = ?, renewed = ?, expires = ?
WHERE name = ?`,
		highest: `SELECT coalesce(max(epoch), 0) FROM ` + q,
		raise: `INSERT INTO ` + q + ` AS l (` + columns + `) VALUES ('', '', '', ?, 0, 0, 0)
ON CONFLICT (name) DO UPDATE SET epoch = CASE WHEN excluded.epoch > l.epoch THEN excluded.epoch ELSE l.epoch END`,
	}
	t.lock, t.share = t.read, t.read
	if d == Postgres {
		t.lock += ` FOR UPDATE`
		t.share += ` FOR SHARE`
	}
	for _, query := range []*string{&t.read, &t.lock, &t.share, &t.page, &t.add, &t.put, &t.highest, &t.raise} {
		*query = d.Rebind(*query)
	}
	return t, nil
}

// Schema is the DDL of the default tables, for those who would rather create
// them by a migration of their own than let New do it.
func Schema(d Dialect) string {
	t, err := newTable(d, defaultTable)
	if err != nil {
		return ""
	}
	return sqltx.Schema(d, t.ddl)
}

func scanRow(scan func(...any) error) (r row, err error) {
	err = scan(&r.name, &r.token, &r.owner, &r.epoch, &r.acquired, &r.renewed, &r.expires, &r.floor)
	return r, err
}

// get runs one of read, lock and share. A name that was never granted gives a
// free row of epoch 0, and found false.
func (t *table) get(ctx context.Context, q sqltx.Querier, query, name string) (r row, found bool, err error) {
	r, err = scanRow(q.QueryRowContext(ctx, query, name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return row{name: name}, false, nil
	}
	return r, err == nil, err
}

// write stores r over the row of its name, which exists and is locked.
func (t *table) write(ctx context.Context, tx sqltx.Querier, r row) error {
	_, err := tx.ExecContext(ctx, t.put, r.token, r.owner, r.epoch, r.acquired, r.renewed, r.expires, r.name)
	return err
}

// reading is a row together with the time it was judged at: on the store's
// clock, and on the local monotonic one just before.
type reading struct {
	row
	found bool
	local time.Duration
	now   int64
}

func (r reading) held() bool { return r.row.held(r.now) }

// left is how much longer the lease was valid when it was read.
func (r reading) left() time.Duration { return time.Duration(r.expires - r.now) }

// judge reads the row of name under a lock and then the time. In this order:
// a time read before a wait for the lock could call a lease valid that
// expired during the wait.
func (m *Manager) judge(ctx context.Context, tx sqltx.Querier, query, name string) (r reading, err error) {
	r.row, r.found, err = m.table.get(ctx, tx, query, name)
	if err != nil {
		return r, err
	}
	r.local = m.clock.Elapsed()
	r.now, err = m.store.Now(ctx, tx)
	return r, err
}
