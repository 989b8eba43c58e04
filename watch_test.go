package coopsqlite_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// journal is a logger's output that a test can look at meanwhile.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// openLogged opens a pool whose log the test can read.
func openLogged(t *testing.T, dsn string) (*sql.DB, *journal) {
	t.Helper()
	log := &journal{}
	connector, err := coopsqlite.NewConnector(dsn, &coopsqlite.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db, log
}

// eventually waits for what the watcher does.
func eventually(t *testing.T, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, patience, 2*time.Millisecond, message)
}

func TestWatcherRepairsWhatAnOutsiderOpened(t *testing.T) {
	for name, statements := range map[string][]string{
		"a new table":              {"CREATE TABLE n (a)"},
		"a dropped fence":          {"DROP TRIGGER coop_fence_parent_update"},
		"a fence that is no more":  {"DROP TRIGGER coop_fence_parent_update", "CREATE TRIGGER coop_fence_parent_update BEFORE UPDATE ON parent BEGIN SELECT 1; END"},
		"a fence elsewhere":        {"DROP TRIGGER coop_fence_parent_update", "CREATE TRIGGER coop_fence_parent_update BEFORE UPDATE ON child BEGIN SELECT 1; END"},
		"all fences":               {"DROP TRIGGER coop_fence_coop_owner_insert", "DROP TRIGGER coop_fence_coop_owner_update", "DROP TRIGGER coop_fence_coop_owner_delete"},
		"coop_owner":               {"DROP TABLE coop_owner"},
		"coop_guard":               {"DROP VIEW coop_guard"},
		"another coop_guard":       {"DROP VIEW coop_guard", "CREATE VIEW coop_guard AS SELECT 1"},
		"coop_owner, and rows":     {"DROP TRIGGER coop_fence_coop_owner_delete", "DELETE FROM coop_owner"},
		"a table dropped and made": {"DROP TABLE child", "CREATE TABLE child (id, parent)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			db, log := openLogged(t, path+"?_coop_watch=2ms")
			mustExec(t, db, family...)
			store := storeOf(t, db)
			require.Zero(t, store.Stats().Repairs, "the owner's own DDL is not counted")
			outside := openPlain(t, path)
			mustExec(t, outside, "BEGIN; "+strings.Join(statements, "; ")+"; COMMIT")
			eventually(t, func() bool { return store.Stats().Repairs > 0 }, "the watcher did nothing")
			eventually(t, func() bool { return len(gaps(t, outside)) == 0 }, "the fences are not complete")
			mustExec(t, db, "INSERT INTO parent (name) VALUES ('still the owner')")
			require.Contains(t, log.String(), "fences were restored")
			require.Contains(t, log.String(), path)
			require.Equal(t, "1", value(t, db, "SELECT epoch FROM coop_owner"))
		})
	}
}

func TestWatcherRepairsWhileNobodyWrites(t *testing.T) {
	path := newPath(t)
	db, _ := openLogged(t, path+"?_coop_watch=2ms&_journal_mode=WAL")
	mustExec(t, db, family...)
	outside := openPlain(t, path)
	for i := range 20 {
		mustExec(t, outside, "DROP TRIGGER coop_fence_parent_insert")
		eventually(t, func() bool { return storeOf(t, db).Stats().Repairs > int64(i) }, "not repaired")
	}
	require.Empty(t, gaps(t, outside))
}

func TestWithoutAWatcherTheNextTransactionRepairs(t *testing.T) {
	path := newPath(t)
	db, log := openLogged(t, path+"?_coop_watch=0")
	mustExec(t, db, family...)
	outside := openPlain(t, path)
	mustExec(t, outside, "DROP TRIGGER coop_fence_parent_insert", "CREATE TABLE n (a)")
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO child (id) VALUES (7)")
	require.NoError(t, tx.Commit())
	require.Empty(t, gaps(t, outside))
	require.Zero(t, storeOf(t, db).Stats().Repairs)
	require.Empty(t, log.String())
}

// losses are the ways in which a store ceases to be its owner's.
var losses = []struct {
	name string
	lose func(t *testing.T, path string)
	says string
}{
	{"another file takes the store's place", func(t *testing.T, path string) {
		other := newPath(t)
		mustExec(t, openPlain(t, other), family...)
		require.NoError(t, os.Rename(other, path))
	}, "another file has taken the place of the store"},
	{"the store is deleted", func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, "store's file was removed"},
	{"the store is renamed", func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".old")) }, "store's file was removed or renamed"},
	{"the lock file is removed", func(t *testing.T, path string) { require.NoError(t, os.Remove(path+".engine.lock")) }, "lock file"},
	{"another lock file takes its place", func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path+".new", nil, 0o600))
		require.NoError(t, os.Rename(path+".new", path+".engine.lock"))
	}, "lock file"},
	{"a newer owner comes although the lock is there", func(t *testing.T, path string) {
		mustExec(t, openPlain(t, path), "BEGIN; DROP TRIGGER coop_fence_coop_owner_update; UPDATE coop_owner SET epoch = 7, fence = 77, app = 'newer'; COMMIT")
	}, "a newer owner has taken the store over: epoch 7, newer"},
}

func TestWatcherStopsTheWritesOfAStoreThatIsLost(t *testing.T) {
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			path := newPath(t)
			db, log := openLogged(t, path+"?_coop_watch=2ms&_journal_mode=WAL")
			mustExec(t, db, family...)
			store := storeOf(t, db)
			status, err := store.Status(t.Context())
			require.NoError(t, err)
			require.NoError(t, status.Lost)

			reader, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer reader.Close()
			// The watcher itself may have the parked connection just now; then this
			// one opens its own with its first use.
			require.NoError(t, reader.PingContext(t.Context()))
			tx, err := db.Begin() // under way when it happens
			require.NoError(t, err)
			if strings.HasPrefix(loss.name, "a newer owner") {
				require.NoError(t, tx.Rollback()) // nobody can come meanwhile
			} else {
				mustExec(t, tx, "INSERT INTO parent (name) VALUES ('in time?')")
			}
			loss.lose(t, path)
			eventually(t, func() bool { return store.Stats().Lost }, "the watcher noticed nothing")

			if !strings.HasPrefix(loss.name, "a newer owner") {
				require.ErrorIs(t, tx.Commit(), coopsqlite.ErrSuperseded, "its rows would be lost")
			}
			refused := store.Stats().Refused
			for _, statement := range []string{"INSERT INTO parent (name) VALUES ('late')", "CREATE TABLE n (a)", "DROP TABLE child", "PRAGMA user_version = 7", "VACUUM"} {
				_, err := db.Exec(statement)
				require.ErrorIs(t, err, coopsqlite.ErrSuperseded, statement)
				require.ErrorIs(t, err, coopsqlite.ErrFenced, statement)
				require.ErrorContains(t, err, loss.says, statement)
				require.ErrorContains(t, err, path)
			}
			_, err = db.Begin()
			require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
			require.ErrorContains(t, err, loss.says)
			require.ErrorContains(t, store.Write(t.Context(), func(coopsqlite.DBTX) error { return nil }), loss.says)
			require.ErrorContains(t, store.Bulk(t.Context(), nil, func(coopsqlite.DBTX) error { return nil }), loss.says)
			require.ErrorContains(t, store.Refence(t.Context()), loss.says)
			require.Greater(t, store.Stats().Refused, refused)

			var n int
			require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT count(*) FROM parent").Scan(&n), "reading goes on")
			require.Equal(t, 2, n)
			eventually(t, func() bool { return strings.Contains(log.String(), "writes have stopped") }, "nothing was logged")
			require.Contains(t, log.String(), loss.says)
			require.Equal(t, 1, strings.Count(log.String(), "writes have stopped"), "it is said once")
			if status, err = store.Status(t.Context()); err == nil { // it may need a connection more
				err = status.Lost
			}
			require.ErrorContains(t, err, loss.says)
			require.NoError(t, reader.Close())
			require.NoError(t, db.Close())
		})
	}
}

// The next owner of a store that was lost takes it as it lies there.
func TestStoreThatWasReplacedIsOwnedAnew(t *testing.T) {
	path := newPath(t)
	db, _ := openLogged(t, path+"?_coop_watch=2ms")
	mustExec(t, db, family...)
	losses[0].lose(t, path)
	eventually(t, func() bool { return storeOf(t, db).Stats().Lost }, "the watcher noticed nothing")
	require.NoError(t, db.Close())
	db = open(t, path)
	mustExec(t, db, "INSERT INTO parent (name) VALUES ('new')")
	requireCovered(t, path)
}

// A new connection would make an empty file where the store was, or write the
// store that took its place.
func TestNewConnectionsNoticeThatTheFileIsAnother(t *testing.T) {
	for _, loss := range losses[:3] {
		t.Run(loss.name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_coop_watch=0&_journal_mode=WAL")
			mustExec(t, db, family...)
			one, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer one.Close()
			loss.lose(t, path)
			names := entries(t, filepath.Dir(path))
			_, err = db.Exec("INSERT INTO parent (name) VALUES ('lost')")
			require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
			require.ErrorContains(t, err, loss.says)
			_, err = one.ExecContext(t.Context(), "INSERT INTO parent (name) VALUES ('lost')")
			require.ErrorContains(t, err, loss.says)
			require.Equal(t, names, entries(t, filepath.Dir(path)), "no file was made")
		})
	}
}

// The watcher and a growing pool open connections at any moment, also in the
// one in which the file goes.
func TestConnectionsOpenedWhileTheFileGoesMakeNoOther(t *testing.T) {
	for _, name := range []string{"plain.db", "o#d%d? name.db"} {
		for range 30 {
			path := filepath.Join(t.TempDir(), name)
			dsn := "file:" + strings.NewReplacer("%", "%25", "#", "%23", "?", "%3F").Replace(path) + "?_journal_mode=WAL&mode=rwc"
			if name == "plain.db" {
				dsn = path + "?_journal_mode=WAL&cache=shared"
			}
			db := open(t, dsn)
			mustExec(t, db, family...)
			opening := make(chan error, 1)
			started := make(chan struct{})
			go func() {
				var once sync.Once
				for {
					conns := make([]*sql.Conn, 0, 8)
					for range cap(conns) {
						conn, err := db.Conn(t.Context())
						if err != nil {
							opening <- err
							return
						}
						defer conn.Close()
					}
					once.Do(func() { close(started) })
				}
			}()
			<-started
			require.NoError(t, os.Remove(path))
			err := <-opening
			require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
			require.ErrorContains(t, err, "store's file was removed")
			require.NoFileExists(t, path)
			require.NoError(t, db.Close())
		}
	}
}

func TestFurtherConnectionsCanMakeOtherFiles(t *testing.T) {
	for _, prefix := range []string{"", "file:"} {
		path := newPath(t)
		db := open(t, prefix+path)
		mustExec(t, db, family...)
		for i := range 3 {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			attached := path + strconv.Itoa(i)
			for _, statement := range []string{"ATTACH '" + attached + "' AS other", "CREATE TABLE other.t (a)", "DETACH other", "VACUUM INTO '" + attached + ".copy'"} {
				_, err := conn.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			require.FileExists(t, attached)
			require.FileExists(t, attached+".copy")
		}
	}
}

func TestWatcherEndsWithItsPool(t *testing.T) {
	path := newPath(t)
	before := runtime.NumGoroutine()
	for range 20 {
		db, _ := openLogged(t, path+"?_coop_watch=1ms")
		mustExec(t, db, "CREATE TABLE IF NOT EXISTS t (a)")
		require.NoError(t, db.Close())
	}
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, "goroutines are left")
}

// A transaction that takes its time keeps the watcher from repairing, not from
// noticing that the store is gone.
func TestWatcherLooksWhileATransactionIsOpen(t *testing.T) {
	path := newPath(t)
	db, _ := openLogged(t, path+"?_coop_watch=2ms&_journal_mode=WAL")
	mustExec(t, db, family...)
	outside := openPlain(t, path)
	mustExec(t, outside, "CREATE TABLE n (a)") // what the watcher would like to repair
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	mustExec(t, tx, "INSERT INTO parent (name) VALUES ('slow')")
	require.NoError(t, os.Remove(path+".engine.lock"))
	began := time.Now()
	eventually(t, func() bool { return storeOf(t, db).Stats().Lost }, "the watcher noticed nothing")
	require.Less(t, time.Since(began), 8*time.Second, "it waited for the gate, which ends after the busy timeout of 10 s")
}
