package coopsqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// coverageOf is Verify's answer, by table.
func coverageOf(t *testing.T, store *coopsqlite.Store) (*coopsqlite.Coverage, map[string]coopsqlite.TableCoverage) {
	t.Helper()
	coverage, err := store.Verify(t.Context())
	require.NoError(t, err)
	byName := map[string]coopsqlite.TableCoverage{}
	for _, table := range coverage.Tables {
		byName[table.Name] = table
	}
	return coverage, byName
}

func TestVerifySaysOfEachTableHowFarItIsFencedAndWhyNot(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_watch=0&_coop_tables=-excluded")
	mustExec(t, db, family...)
	mustExec(t, db, "CREATE TABLE excluded (a)", "CREATE TABLE numbered (a INTEGER PRIMARY KEY AUTOINCREMENT)", "CREATE TABLE _litestream_seq (id, seq)",
		"CREATE VIRTUAL TABLE area USING rtree(id, x, y)", "CREATE VIEW v AS SELECT 1", "CREATE TEMP TABLE scratch (a)")
	store := storeOf(t, db)
	coverage, tables := coverageOf(t, store)
	require.True(t, coverage.Complete())
	require.Empty(t, coverage.Stray)
	for name, want := range map[string]coopsqlite.TableCoverage{
		"parent":          {State: coopsqlite.Fenced, Tracked: true},
		"coop_owner":      {State: coopsqlite.Fenced, Tracked: true},
		"area_rowid":      {State: coopsqlite.Fenced, Tracked: true},
		"area":            {State: coopsqlite.NotFenced, Why: "a virtual table, guarded through area_rowid"},
		"area_node":       {State: coopsqlite.NotFenced, Why: "a shadow table of area (rtree)"},
		"excluded":        {State: coopsqlite.NotFenced, Why: "excluded by _coop_tables"},
		"sqlite_sequence": {State: coopsqlite.NotFenced, Why: "an internal table of SQLite"},
		"_litestream_seq": {State: coopsqlite.NotFenced, Why: "Litestream's own table"},
	} {
		want.Name = name
		require.Equal(t, want, tables[name])
	}
	require.NotContains(t, tables, "v")
	require.NotContains(t, tables, "scratch")

	mustExec(t, openPlain(t, path), "CREATE TABLE open (a)", "DROP TRIGGER coop_fence_parent_update", "CREATE TRIGGER coop_fence_stray BEFORE INSERT ON child BEGIN SELECT 1; END")
	coverage, tables = coverageOf(t, store)
	require.False(t, coverage.Complete())
	require.Equal(t, coopsqlite.TableCoverage{Name: "parent", State: coopsqlite.PartlyFenced, Tracked: true, Missing: []string{"coop_fence_parent_update"}}, tables["parent"])
	require.Equal(t, coopsqlite.NotFenced, tables["open"].State)
	require.True(t, tables["open"].Tracked)
	require.Equal(t, []string{"coop_fence_stray"}, coverage.Stray)

	// A reader sees the same, by the owner's settings.
	reader, readersTables := coverageOf(t, storeOf(t, open(t, "file:"+escapePath(path)+"?mode=ro")))
	require.Equal(t, coverage.Stray, reader.Stray)
	require.Equal(t, tables, readersTables)

	require.NoError(t, store.Refence(t.Context()))
	coverage, _ = coverageOf(t, store)
	require.True(t, coverage.Complete())
}

func TestUnfencedStoreIsAnOrdinaryFileUntilItIsFencedAgain(t *testing.T) {
	for _, way := range []string{"Refence", "the next owner"} {
		t.Run(way, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_coop_watch=2ms&_coop_changes=child")
			mustExec(t, db, family...)
			store := storeOf(t, db)
			require.NoError(t, store.Unfence(t.Context()))

			outside := openPlain(t, path)
			require.Empty(t, values(t, outside, "SELECT name FROM sqlite_schema WHERE type = 'trigger'"))
			require.Equal(t, "0", value(t, outside, "SELECT count(*) FROM sqlite_schema WHERE name = 'coop_owner'"))
			mustExec(t, outside, "INSERT INTO parent (name) VALUES ('outside')", "ALTER TABLE child RENAME TO kid", "CREATE TABLE more (a)")
			mustExec(t, db, "INSERT INTO parent (name) VALUES ('owner')", "CREATE TABLE stays_open (a)", "DROP TABLE more")
			tx, err := db.Begin()
			require.NoError(t, err)
			mustExec(t, tx, "CREATE TABLE this_too (a)", "INSERT INTO this_too VALUES (1)")
			require.NoError(t, tx.Commit())
			mustExec(t, outside, "INSERT INTO stays_open VALUES (1)", "INSERT INTO this_too VALUES (1)")
			_, err = coopsqlite.NewConnector(path, nil)
			require.ErrorIs(t, err, coopsqlite.ErrConflict, "the lock is held all the same")
			require.NoError(t, store.Unfence(t.Context()), "again does nothing")
			require.Zero(t, store.Stats().Repairs, "the watcher leaves it alone")

			if way == "Refence" {
				require.NoError(t, store.Refence(t.Context()))
			} else {
				require.NoError(t, db.Close())
				db = open(t, path)
			}
			_, err = outside.Exec("INSERT INTO parent (name) VALUES ('outside')")
			require.EqualError(t, err, noPermit)
			mustExec(t, db, "INSERT INTO parent (name) VALUES ('owner')", "CREATE TABLE fenced_again (a)")
			coverage, _ := coverageOf(t, storeOf(t, db))
			require.True(t, coverage.Complete())
		})
	}
}

func TestRefenceIsRefusedWhereTheDSNSaysOff(t *testing.T) {
	db := open(t, newPath(t)+"?_coop_fence=off")
	require.ErrorContains(t, storeOf(t, db).Refence(t.Context()), "_coop_fence=off")
}

// Litestream writes two tables of its own into the store it replicates, and
// holds a read transaction in between.
func TestLitestreamsTablesStayWritableToIt(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_journal_mode=WAL")
	mustExec(t, db, family...)
	replicator := openPlain(t, path)
	mustExec(t, replicator,
		"CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
		"CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER)")
	for i := range 20 {
		mustExec(t, replicator, "INSERT INTO _litestream_seq (id, seq) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET seq = seq + 1")
		mustExec(t, db, "INSERT INTO parent (name) VALUES ('beside')", "CREATE TABLE IF NOT EXISTS n (a)")
		tx, err := replicator.Begin()
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO _litestream_lock (id) VALUES (1)") // takes the write lock
		require.NoError(t, tx.Rollback())
		mustExec(t, replicator, "PRAGMA wal_checkpoint(PASSIVE)")
		require.Equal(t, i+3, len(values(t, replicator, "SELECT id FROM parent")))
	}
	require.NoError(t, db.Close())
	db = open(t, path)
	mustExec(t, db, "INSERT INTO parent (name) VALUES ('x')")
	mustExec(t, replicator, "UPDATE _litestream_seq SET seq = 0")
	coverage, tables := coverageOf(t, storeOf(t, db))
	require.True(t, coverage.Complete())
	require.Equal(t, coopsqlite.NotFenced, tables["_litestream_seq"].State)
}
