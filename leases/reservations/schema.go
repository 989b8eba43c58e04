package reservations

import (
	"strings"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// The schema of all three tables is for people to read too. A line's
// held_until repeats its reservation's while that is held, so that the holds on
// one SKU that are over can be found without looking at the others.
const (
	stockSQLite = `
CREATE TABLE IF NOT EXISTS {table} (
	sku       TEXT    PRIMARY KEY,
	available INTEGER NOT NULL CHECK (available >= 0)
) STRICT, WITHOUT ROWID;
`
	stockPostgres = `
CREATE TABLE IF NOT EXISTS {table} (
	sku       text   COLLATE "C" PRIMARY KEY,
	available bigint NOT NULL CHECK (available >= 0)
);
`
	reservationsSQLite = `
CREATE TABLE IF NOT EXISTS {table} (
	id          INTEGER PRIMARY KEY,
	scope       TEXT    NOT NULL,
	op_key      TEXT    NOT NULL,
	fingerprint BLOB    NOT NULL, -- of the request: version, SHA-256
	payload     BLOB    NOT NULL,
	state       TEXT    NOT NULL CHECK (state IN ('held', 'confirmed', 'cancelled', 'expired', 'rejected')),
	held_until  INTEGER,          -- Unix nanoseconds, as all times; NULL without a hold
	created_at  INTEGER NOT NULL,
	ended_at    INTEGER,          -- NULL while it is held
	UNIQUE (scope, op_key),
	CHECK ((state = 'held') = (ended_at IS NULL))
) STRICT;
` + reservationIndexes
	reservationsPostgres = `
CREATE TABLE IF NOT EXISTS {table} (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	scope       text   COLLATE "C" NOT NULL,
	op_key      text   COLLATE "C" NOT NULL,
	fingerprint bytea  NOT NULL, -- of the request: version, SHA-256
	payload     bytea  NOT NULL,
	state       text   NOT NULL CHECK (state IN ('held', 'confirmed', 'cancelled', 'expired', 'rejected')),
	held_until  bigint,          -- Unix nanoseconds, as all times; NULL without a hold
	created_at  bigint NOT NULL,
	ended_at    bigint,          -- NULL while it is held
	UNIQUE (scope, op_key),
	CHECK ((state = 'held') = (ended_at IS NULL))
);
` + reservationIndexes
	reservationIndexes = `
CREATE INDEX IF NOT EXISTS {table_held} ON {on} (held_until) WHERE state = 'held';
CREATE INDEX IF NOT EXISTS {table_ended} ON {on} (ended_at) WHERE ended_at IS NOT NULL;
`
	linesSQLite = `
CREATE TABLE IF NOT EXISTS {table} (
	reservation_id INTEGER NOT NULL,
	sku            TEXT    NOT NULL,
	quantity       INTEGER NOT NULL CHECK (quantity > 0),
	held_until     INTEGER,
	PRIMARY KEY (reservation_id, sku)
) STRICT, WITHOUT ROWID;
` + lineIndexes
	linesPostgres = `
CREATE TABLE IF NOT EXISTS {table} (
	reservation_id bigint NOT NULL,
	sku            text   COLLATE "C" NOT NULL,
	quantity       bigint NOT NULL CHECK (quantity > 0),
	held_until     bigint,
	PRIMARY KEY (reservation_id, sku)
);
` + lineIndexes
	lineIndexes = `
CREATE INDEX IF NOT EXISTS {table_held} ON {on} (sku, held_until) WHERE held_until IS NOT NULL;
`
)

// tableNames are those of one repository.
type tableNames struct {
	stock, reservations, lines sqltx.Name
}

func (t Tables) names() (names tableNames, err error) {
	for _, n := range []struct {
		name *sqltx.Name
		text string
	}{
		{&names.stock, t.Stock},
		{&names.reservations, t.Reservations},
		{&names.lines, t.Reservations + "_lines"},
	} {
		if *n.name, err = sqltx.ParseName(n.text); err != nil {
			return tableNames{}, err
		}
	}
	return names, nil
}

func (n tableNames) tables(d leases.Dialect) []sqltx.Table {
	return []sqltx.Table{
		table(d, n.stock, stockSQLite, stockPostgres),
		table(d, n.reservations, reservationsSQLite, reservationsPostgres),
		table(d, n.lines, linesSQLite, linesPostgres),
	}
}

func table(d leases.Dialect, name sqltx.Name, sqlite, postgres string) sqltx.Table {
	on := name.String()
	if d == leases.SQLite {
		on = name.Bare()
	}
	r := strings.NewReplacer("{table}", name.String(), "{on}", on,
		"{table_held}", name.Index(d, "held"), "{table_ended}", name.Index(d, "ended"))
	return sqltx.Table{Name: name, SQLite: r.Replace(sqlite), Postgres: r.Replace(postgres)}
}
