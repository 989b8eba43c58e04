package outbox

import (
	"strings"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// The event's row is written twice in its life: by Append and by its end. What
// changes while it is being delivered (due time, attempts, claim) is in the
// heads: one row for each aggregate that has events left, pointing at its
// first, and one for each event outside any order. So a claim looks only at
// events that may be delivered now, however many wait behind them, and Append,
// Ack and Nack of one aggregate exclude each other by its head's lock.
//
// due_at is when the head may be claimed: after a pause, or when a claim that
// nobody answered runs out. It is NULL where the head is dead. A claim that is
// still there when the head is due is one that ended without an answer.
const eventsSQLite = `
CREATE TABLE IF NOT EXISTS {table} (
	id             INTEGER PRIMARY KEY AUTOINCREMENT,
	aggregate_type TEXT    NOT NULL,
	aggregate_id   TEXT    NOT NULL,
	type           TEXT    NOT NULL,
	payload        BLOB    NOT NULL,
	state          TEXT    NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead', 'discarded')),
	created_at     INTEGER NOT NULL, -- Unix nanoseconds, as all times
	ended_at       INTEGER,          -- delivered or discarded
	attempts       INTEGER,          -- of an event that ended or is dead
	last_error     TEXT
) STRICT;
` + eventIndexes

const headsSQLite = `
CREATE TABLE IF NOT EXISTS {table} (
	event_id       INTEGER PRIMARY KEY,
	aggregate_type TEXT    NOT NULL,
	aggregate_id   TEXT    NOT NULL,
	due_at         INTEGER,
	attempts       INTEGER NOT NULL DEFAULT 0,
	claim          TEXT,
	last_error     TEXT
) STRICT;
` + headIndexes

// In PostgreSQL event_id is NULL from the moment in which Append takes an
// aggregate's lock until it knows the number of the event, and never in a
// committed row. Numbers are drawn under that lock, so they rise with the
// order of the commits within an aggregate.
const eventsPostgres = `
CREATE TABLE IF NOT EXISTS {table} (
	id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	aggregate_type text   COLLATE "C" NOT NULL,
	aggregate_id   text   COLLATE "C" NOT NULL,
	type           text   NOT NULL,
	payload        bytea  NOT NULL,
	state          text   NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead', 'discarded')),
	created_at     bigint NOT NULL, -- Unix nanoseconds, as all times
	ended_at       bigint,          -- delivered or discarded
	attempts       integer,         -- of an event that ended or is dead
	last_error     text
);
` + eventIndexes

const headsPostgres = `
CREATE TABLE IF NOT EXISTS {table} (
	event_id       bigint  UNIQUE,
	aggregate_type text    COLLATE "C" NOT NULL,
	aggregate_id   text    COLLATE "C" NOT NULL,
	due_at         bigint,
	attempts       integer NOT NULL DEFAULT 0,
	claim          text,
	last_error     text
) WITH (fillfactor = 70);
` + headIndexes

const eventIndexes = `
CREATE INDEX IF NOT EXISTS {table_pending} ON {on} (aggregate_type, aggregate_id, id) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS {table_dead} ON {on} (id) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS {table_ended} ON {on} (ended_at) WHERE ended_at IS NOT NULL;
`

const headIndexes = `
CREATE UNIQUE INDEX IF NOT EXISTS {table_aggregate} ON {on} (aggregate_type, aggregate_id) WHERE aggregate_id <> '';
CREATE INDEX IF NOT EXISTS {table_due} ON {on} (due_at, event_id) WHERE due_at IS NOT NULL;
`

func tables(d leases.Dialect, events, heads sqltx.Name) []sqltx.Table {
	return []sqltx.Table{
		table(d, events, eventsSQLite, eventsPostgres),
		table(d, heads, headsSQLite, headsPostgres),
	}
}

func table(d leases.Dialect, name sqltx.Name, sqlite, postgres string) sqltx.Table {
	on := name.String()
	if d == leases.SQLite {
		on = name.Bare()
	}
	tokens := []string{"{table}", name.String(), "{on}", on}
	for _, index := range []string{"pending", "dead", "ended", "aggregate", "due"} {
		tokens = append(tokens, "{table_"+index+"}", name.Index(d, index))
	}
	r := strings.NewReplacer(tokens...)
	return sqltx.Table{Name: name, SQLite: r.Replace(sqlite), Postgres: r.Replace(postgres)}
}
