package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

func TestExclusiveOwnerKeepsEverybodyOut(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_app=first")
	for _, mode := range []string{"exclusive", "process", "shared"} {
		_, err := sql.Open("coopsqlite", path+"?_coop_owner="+mode)
		require.ErrorIs(t, err, coopsqlite.ErrConflict, mode)
		var conflict *coopsqlite.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.True(t, conflict.Self, "the holder is this process")
		require.Equal(t, os.Getpid(), conflict.Holder.PID)
		require.Equal(t, "first", conflict.Holder.App)
		require.Contains(t, err.Error(), "this process already")

		other := start(t, roleOwner, path+"?_coop_owner="+mode)
		require.True(t, other.opened.Conflict, other.opened.Err)
		require.False(t, other.opened.Self)
	}
	require.Equal(t, "exclusive", storeOf(t, db).Mode())
}

func TestConflictNamesTheHolderAndWhatToDo(t *testing.T) {
	path := newPath(t)
	before := time.Now().Truncate(time.Second)
	other := start(t, roleOwner, path+"?_coop_app=stockd")
	require.Empty(t, other.try("CREATE TABLE t (a)"))

	_, err := sql.Open("coopsqlite", path)
	require.ErrorIs(t, err, coopsqlite.ErrConflict)
	var conflict *coopsqlite.ConflictError
	require.ErrorAs(t, err, &conflict)
	host, _ := os.Hostname()
	require.Equal(t, path, conflict.Path)
	require.Equal(t, other.cmd.Process.Pid, conflict.Holder.PID)
	require.Equal(t, host, conflict.Holder.Host)
	require.Equal(t, "stockd", conflict.Holder.App)
	require.Equal(t, "exclusive", conflict.Holder.Mode)
	require.WithinRange(t, conflict.Holder.Since, before, time.Now())
	require.False(t, conflict.Self)
	require.Zero(t, conflict.Waited)
	message := err.Error()
	require.True(t, strings.HasPrefix(message, "Another Coop writer owns this store"), message)
	for _, part := range []string{path, "stockd", fmt.Sprint(other.cmd.Process.Pid), "stop it", "mode=ro", "_coop_wait"} {
		require.Contains(t, message, part)
	}
}

func TestEpochCountsEveryOwnership(t *testing.T) {
	path := newPath(t)
	for epoch := int64(1); epoch <= 4; epoch++ {
		db := open(t, path)
		mustExec(t, db, "CREATE TABLE IF NOT EXISTS t (a)")
		require.Equal(t, epoch, storeOf(t, db).Epoch())
		require.Equal(t, fmt.Sprint(epoch), value(t, db, "SELECT epoch FROM coop_owner"))
		require.Equal(t, "1", value(t, db, "SELECT fence = coop_context('fence') FROM coop_owner"))
		require.NoError(t, db.Close())
	}
}

func TestPoolsOfOneProcessShareAnOwnership(t *testing.T) {
	path := newPath(t)
	dsn := path + "?_coop_owner=process&_journal_mode=WAL"
	first, second := open(t, dsn), open(t, dsn)
	mustExec(t, first, "CREATE TABLE t (a)")
	mustExec(t, second, "INSERT INTO t VALUES (1)")
	require.Equal(t, storeOf(t, first).Epoch(), storeOf(t, second).Epoch())
	require.True(t, start(t, roleOwner, dsn).opened.Conflict, "another process is kept out")
	_, err := sql.Open("coopsqlite", path)
	require.ErrorIs(t, err, coopsqlite.ErrConflict, "so is an exclusive pool of this one")

	require.NoError(t, first.Close())
	mustExec(t, second, "INSERT INTO t VALUES (2)")
	require.True(t, start(t, roleOwner, dsn).opened.Conflict, "the second still owns it")
	require.NoError(t, second.Close())
	require.Empty(t, start(t, roleOwner, dsn).opened.Err)
}

func TestPoolsOfOneProcessMustAgree(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_owner=process")
	for _, parameter := range []string{"_coop_tables=-x", "_coop_epoch=off", "_coop_fence=off", "_coop_changes=*", "_coop_virtual=on"} {
		_, err := sql.Open("coopsqlite", path+"?_coop_owner=process&"+parameter)
		var conflict *coopsqlite.ConflictError
		require.ErrorAs(t, err, &conflict, parameter)
		name, _, _ := strings.Cut(parameter, "=")
		require.Contains(t, conflict.Reason, name)
	}
	mustExec(t, db, "CREATE TABLE t (a)")
}

func TestSharedProcessesWriteTogetherAndOutsidersStayOut(t *testing.T) {
	path := newPath(t)
	dsn := path + "?_coop_owner=shared&_journal_mode=WAL"
	const members, each = 4, 50
	group := make([]*process, members)
	for i := range group {
		group[i] = start(t, roleOwner, dsn)
		require.Empty(t, group[i].opened.Err)
	}
	require.Empty(t, group[0].try("CREATE TABLE t (member, n)"))
	var wg sync.WaitGroup
	failures := make([]string, members)
	for i, p := range group {
		wg.Go(func() {
			for n := range each {
				if failures[i] = p.try(fmt.Sprintf("INSERT INTO t VALUES (%d, %d)", i, n)); failures[i] != "" {
					return
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, make([]string, members), failures)
	require.Equal(t, []string{fmt.Sprint(members * each)}, group[1].ask("SELECT count(*) FROM t").Values)
	epochs := map[string]bool{}
	for _, p := range group {
		r := p.ask("SELECT epoch, fence = coop_context('fence') FROM coop_owner")
		require.Empty(t, r.Err)
		require.Equal(t, "1", r.Values[1])
		epochs[r.Values[0]] = true
	}
	require.Len(t, epochs, 1, "a group is one ownership")
	require.Equal(t, noPermit, start(t, roleOutsider, path).try("INSERT INTO t VALUES (9, 9)"))
	for _, mode := range []string{"exclusive", "process"} {
		require.True(t, start(t, roleOwner, path+"?_coop_owner="+mode).opened.Conflict, mode)
	}
	r := start(t, roleOwner, dsn+"&_coop_tables=-t").opened
	require.True(t, r.Conflict, "members must agree")
	require.Contains(t, r.Err, "_coop_tables")
}

// A fresh file opened by several processes at once: nobody fails.
func TestSharedProcessesMayOpenAFreshStoreAtOnce(t *testing.T) {
	for range 5 {
		path := newPath(t)
		dsn := path + "?_coop_owner=shared&_journal_mode=WAL"
		const members = 4
		replies := make([]string, members)
		var wg sync.WaitGroup
		for i := range members {
			p := start(t, roleOwner, dsn)
			require.Empty(t, p.opened.Err)
			wg.Go(func() {
				replies[i] = p.try("CREATE TABLE IF NOT EXISTS t (a)")
				if replies[i] == "" {
					replies[i] = p.try("INSERT INTO t VALUES (1)")
				}
			})
		}
		wg.Wait()
		require.Equal(t, make([]string, members), replies)
	}
}

func TestWaitingOpenGetsTheStoreWhenItsOwnerGoes(t *testing.T) {
	path := newPath(t)
	other := start(t, roleOwner, path)
	require.Empty(t, other.try("CREATE TABLE t (a)"))
	opened := make(chan error, 1)
	var db *sql.DB
	go func() {
		var err error
		db, err = sql.Open("coopsqlite", path+"?_coop_wait=50s")
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatal("opened beside the owner", err)
	case <-time.After(100 * time.Millisecond):
	}
	other.stop()
	require.NoError(t, <-opened)
	mustExec(t, db, "INSERT INTO t VALUES (1)")
	require.NoError(t, db.Close())
}

func TestWaitingOpenGivesUpInTime(t *testing.T) {
	path := newPath(t)
	open(t, path)
	_, err := sql.Open("coopsqlite", path+"?_coop_wait=120ms")
	var conflict *coopsqlite.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.GreaterOrEqual(t, conflict.Waited, 120*time.Millisecond)
	require.Contains(t, err.Error(), "waited")
}

func TestReadersTakeNothingAndWriteNothing(t *testing.T) {
	path := newPath(t)
	owner := open(t, path+"?_journal_mode=WAL")
	mustExec(t, owner, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
	for _, parameters := range []string{"mode=ro", "_query_only=1", "immutable=1", "mode=ro&_coop_wait=1s"} {
		t.Run(parameters, func(t *testing.T) {
			if parameters == "immutable=1" { // which ignores the write-ahead log
				_, err := owner.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
				require.NoError(t, err)
			}
			reader := open(t, "file:"+path+"?"+parameters)
			require.Equal(t, "reader", storeOf(t, reader).Mode())
			require.Zero(t, storeOf(t, reader).Epoch())
			require.Equal(t, "1", value(t, reader, "SELECT count(*) FROM t"))
			reader.SetMaxOpenConns(1)
			for _, queryOnly := range []string{"on", "off"} {
				mustExec(t, reader, "PRAGMA query_only = "+queryOnly)
				for _, statement := range []string{"INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (2) RETURNING a", "CREATE TABLE u (a)", "VACUUM"} {
					_, err := queryAll(reader, statement)
					var sqliteErr sqlite3.Error
					require.ErrorAs(t, err, &sqliteErr, statement)
					require.Equal(t, sqlite3.ErrReadonly, sqliteErr.Code, "%s: %v", statement, err)
				}
			}
			require.Equal(t, []string{"0", "NULL", "NULL"}, values(t, reader, "SELECT coop_write_permit(), coop_context('fence'), coop_change('epoch')"))
			mustExec(t, reader, "CREATE TEMP TABLE mine (a)", "INSERT INTO mine SELECT a FROM t")
			require.NoError(t, reader.Close())
		})
	}
	require.Equal(t, "1", value(t, owner, "SELECT count(*) FROM t"))
}

func TestReaderOfAStoreThatIsNotThereMakesNoFile(t *testing.T) {
	path := newPath(t)
	reader := open(t, "file:"+path+"?mode=ro")
	require.Error(t, reader.Ping())
	require.NoError(t, reader.Close())
	require.Empty(t, entries(t, filepath.Dir(path)))
}

func TestMemoryNeedsNoLockAndLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, dsn := range []string{":memory:", "file::memory:", "file:name?mode=memory", "file:name?mode=memory&cache=shared", "file:/name?vfs=memdb", ""} {
		t.Run(dsn, func(t *testing.T) {
			db := open(t, dsn)
			db.SetMaxOpenConns(1)
			require.Equal(t, "memory", storeOf(t, db).Mode())
			require.Empty(t, storeOf(t, db).Path())
			mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
			require.Equal(t, "1", value(t, db, "SELECT coop_write_permit()"))
			require.Equal(t, []string{"coop_owner", "t"},
				values(t, db, "SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'trigger' ORDER BY 1"))
			require.NoError(t, db.Close())
		})
	}
	require.Empty(t, entries(t, dir))
}

func TestMemoryDatabasesWithTheSameSharedNameAreOne(t *testing.T) {
	dsn := "file:/" + t.Name() + "?vfs=memdb"
	first, second := open(t, dsn), open(t, dsn)
	mustExec(t, first, "CREATE TABLE t (a)")
	mustExec(t, second, "INSERT INTO t VALUES (1)")
	require.Equal(t, "1", value(t, first, "SELECT count(*) FROM t"))
}

func TestSharedMemoryIsRefused(t *testing.T) {
	_, err := sql.Open("coopsqlite", ":memory:?_coop_owner=shared")
	require.ErrorContains(t, err, "_coop_owner=shared needs a file")
}

// A program that opens a store and changes its page size before it has a table
// must find it empty.
func TestEmptyStoreStaysEmptyUntilTheFirstWrite(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	db.SetMaxOpenConns(1)
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM sqlite_schema"))
	mustExec(t, db, "PRAGMA page_size = 8192", "PRAGMA auto_vacuum = FULL", "PRAGMA encoding = 'UTF-16le'", "CREATE TABLE t (a)")
	require.Equal(t, "8192", value(t, db, "PRAGMA page_size"))
	require.Equal(t, "1", value(t, db, "PRAGMA auto_vacuum"))
	require.Equal(t, "UTF-16le", value(t, db, "PRAGMA encoding"))
	require.NoError(t, db.Close())
	requireFenced(t, path, "t")
}

func TestCloseWithdrawsThePermitThenTheLock(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_journal_mode=WAL")
	mustExec(t, db, "CREATE TABLE t (a)")
	connector := connectorOf(t, path)
	require.ErrorIs(t, connector, coopsqlite.ErrConflict)

	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO t VALUES (1)")
	require.NoError(t, db.Close())

	_, err = tx.Exec("INSERT INTO t VALUES (2)")
	require.ErrorIs(t, err, coopsqlite.ErrFenced)
	require.ErrorContains(t, err, "Coop writer fenced")
	err = tx.Commit()
	require.ErrorIs(t, err, coopsqlite.ErrFenced)

	next := start(t, roleOwner, path)
	require.Empty(t, next.opened.Err, "the lock is free")
	require.Equal(t, []string{"0"}, next.ask("SELECT count(*) FROM t").Values, "nothing of the transaction landed")
}

func TestConnectorIsStoppedAfterClose(t *testing.T) {
	path := newPath(t)
	connector, err := coopsqlite.NewConnector(path, nil)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	mustExec(t, db, "CREATE TABLE t (a)")
	require.NoError(t, db.Close())
	_, err = connector.Connect(context.Background())
	require.ErrorIs(t, err, coopsqlite.ErrStopped)
	require.ErrorContains(t, err, "Coop writer is stopped")
	require.ErrorContains(t, err, path)
	require.NoError(t, connector.Close(), "closing again does nothing")
}

// Triggers guard rows; what changes the schema is refused by the driver.
func TestSchemaChangesAreRefusedAfterClose(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)", "CREATE TABLE u (a)", "CREATE INDEX u_a ON u (a)")
	sqlConn, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer sqlConn.Close()
	require.NoError(t, db.Close())
	for _, statement := range []string{
		"CREATE TABLE v (a)", "DROP TABLE t", "ALTER TABLE t RENAME TO w", "ALTER TABLE t ADD COLUMN b",
		"CREATE INDEX i ON t (a)", "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END", "CREATE VIEW v AS SELECT 1",
		"INSERT INTO t VALUES (1)", "VACUUM", "REINDEX", "BEGIN IMMEDIATE; DROP TABLE t",
	} {
		_, err := sqlConn.ExecContext(context.Background(), statement)
		require.ErrorIs(t, err, coopsqlite.ErrFenced, statement)
	}
	requireFenced(t, path, "t", "u")
}

func TestOlderOwnerIsSupersededWhenTheLockFails(t *testing.T) {
	path := newPath(t)
	older := open(t, path+"?_coop_watch=0")
	mustExec(t, older, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
	require.NoError(t, os.Remove(path+".engine.lock"))
	newer := start(t, roleOwner, path)
	require.Empty(t, newer.opened.Err, "the lock kept nobody out")

	for _, statement := range []string{
		"INSERT INTO t VALUES (2)", "CREATE TABLE u (a)", "DROP TABLE t", "DELETE FROM coop_owner", "UPDATE coop_owner SET epoch = 1",
	} {
		_, err := older.Exec(statement)
		require.ErrorIs(t, err, coopsqlite.ErrSuperseded, statement)
		require.ErrorIs(t, err, coopsqlite.ErrFenced, statement)
		require.ErrorContains(t, err, "Coop writer superseded", statement)
	}
	_, err := older.Begin()
	require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
	require.Empty(t, newer.try("INSERT INTO t VALUES (3)"), "the newest owner wins")
	require.Equal(t, []string{"1", "3"}, values(t, older, "SELECT a FROM t"), "the older can still read")
}

func TestOwnerIsSupersededInTheMiddleOfATransaction(t *testing.T) {
	path := newPath(t)
	older := open(t, path+"?_coop_watch=0&_txlock=deferred")
	mustExec(t, older, "CREATE TABLE t (a)")
	tx, err := older.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, os.Remove(path+".engine.lock"))
	require.Empty(t, start(t, roleOwner, path).opened.Err)
	_, err = tx.Exec("INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
	require.Equal(t, "0", value(t, older, "SELECT count(*) FROM t"))
}

// connectorOf tries to own the store once more, and returns how that failed.
func connectorOf(t *testing.T, path string) error {
	connector, err := coopsqlite.NewConnector(path, nil)
	if err == nil {
		connector.Close()
		return errors.New("it could be owned twice")
	}
	return err
}
