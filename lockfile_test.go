package coopsqlite_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

const lockSuffix = ".engine.lock"

func stat(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t)
}

func TestLockFileSaysWhoHoldsItInOneLineOfJSON(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_app=stockd")
	mustExec(t, db, "CREATE TABLE t (a)")
	require.NoError(t, db.Close())
	db = open(t, path+"?_coop_app=stockd")

	content, err := os.ReadFile(path + lockSuffix)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(content, []byte("\n")))
	require.True(t, bytes.HasSuffix(content, []byte("\n")))
	var holder struct {
		PID   int
		Host  string
		App   string
		Since time.Time
		Epoch int64
	}
	require.NoError(t, json.Unmarshal(content, &holder))
	host, _ := os.Hostname()
	require.Equal(t, os.Getpid(), holder.PID)
	require.Equal(t, host, holder.Host)
	require.Equal(t, "stockd", holder.App)
	require.EqualValues(t, 2, holder.Epoch)
	require.WithinDuration(t, time.Now(), holder.Since, patience)
}

func TestLockFileIsEmptiedAndNeverUnlinked(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	before := stat(t, path+lockSuffix)
	require.NoError(t, db.Close())
	after := stat(t, path+lockSuffix)
	require.Equal(t, before.Ino, after.Ino)
	require.Zero(t, after.Size)
	require.NoError(t, open(t, path).Close())
	require.Equal(t, before.Ino, stat(t, path+lockSuffix).Ino)
}

func TestLockFileModeFollowsWhoMayWriteTheStore(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	for _, c := range []struct{ store, lock fs.FileMode }{
		{0o600, 0o600}, {0o640, 0o600}, {0o644, 0o600}, {0o660, 0o660}, {0o664, 0o660}, {0o666, 0o666}, {0o602, 0o606},
	} {
		path := newPath(t)
		require.NoError(t, os.WriteFile(path, nil, c.store))
		require.NoError(t, open(t, path).Close())
		require.Equal(t, c.lock, fs.FileMode(stat(t, path+lockSuffix).Mode&0o777), "store %o", c.store)
	}
	path := newPath(t)
	require.NoError(t, open(t, path).Close())
	require.Equal(t, fs.FileMode(0o600), fs.FileMode(stat(t, path+lockSuffix).Mode&0o777), "a new store")
}

// One run by root must not lock the service's own user out for ever.
func TestLockFileMadeByRootBelongsToTheStoresOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(openDir(t), "app.db")
	service := startProcess(t, asOrdinaryUser(roleCommand(roleOwner, path)))
	require.Empty(t, service.opened.Err)
	require.Empty(t, service.try("CREATE TABLE t (a)"))
	service.stop()
	require.NoError(t, os.Remove(path+lockSuffix))

	db := open(t, path)
	mustExec(t, db, "INSERT INTO t VALUES (1)")
	require.NoError(t, db.Close())
	require.EqualValues(t, ordinaryUser, stat(t, path+lockSuffix).Uid)
	require.EqualValues(t, ordinaryUser, stat(t, path+lockSuffix).Gid)

	service = startProcess(t, asOrdinaryUser(roleCommand(roleOwner, path)))
	require.Empty(t, service.opened.Err)
	require.Empty(t, service.try("INSERT INTO t VALUES (2)"))
	service.stop()

	require.NoError(t, os.Chown(path+lockSuffix, 0, 0))
	require.NoError(t, open(t, path).Close(), "a lock file that an older run by root has left is given back too")
	require.EqualValues(t, ordinaryUser, stat(t, path+lockSuffix).Uid)
}

func TestLockPathThatIsALinkIsRefusedAndItsTargetUntouched(t *testing.T) {
	for name, link := range map[string]func(target, path string) error{"symbolic": os.Symlink, "hard": os.Link} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			target := filepath.Join(filepath.Dir(path), "somebody else's")
			require.NoError(t, os.WriteFile(target, []byte("precious"), 0o640))
			require.NoError(t, os.Chmod(target, 0o640))
			require.NoError(t, link(target, path+lockSuffix))
			before := stat(t, target)
			_, err := sql.Open("coopsqlite", path)
			require.ErrorContains(t, err, "not a regular file")
			require.ErrorContains(t, err, "not touched")
			require.NotErrorIs(t, err, coopsqlite.ErrConflict)
			after := stat(t, target)
			content, err := os.ReadFile(target)
			require.NoError(t, err)
			require.Equal(t, "precious", string(content))
			require.Equal(t, before.Mode, after.Mode)
			require.Equal(t, before.Uid, after.Uid)
			require.ElementsMatch(t, []string{"app.db" + lockSuffix, "somebody else's"}, entries(t, filepath.Dir(path)))
		})
	}
	t.Run("to nothing", func(t *testing.T) {
		path := newPath(t)
		require.NoError(t, os.Symlink(filepath.Join(filepath.Dir(path), "nothing"), path+lockSuffix))
		_, err := sql.Open("coopsqlite", path)
		require.ErrorContains(t, err, "not a regular file")
		require.Equal(t, []string{"app.db" + lockSuffix}, entries(t, filepath.Dir(path)))
	})
	for name, make := range map[string]func(string) error{
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"pipe":      func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			require.NoError(t, make(path+lockSuffix))
			_, err := sql.Open("coopsqlite", path)
			require.ErrorContains(t, err, "not a regular file")
			require.Equal(t, []string{"app.db" + lockSuffix}, entries(t, filepath.Dir(path)))
		})
	}
}

// A child that the owner starts inherits none of the lock's descriptors: it may
// outlive the owner for days.
func TestChildOfTheOwnerDoesNotHoldTheLock(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t (a)")
	child := exec.Command("sleep", "60")
	require.NoError(t, child.Start())
	defer func() {
		child.Process.Kill()
		child.Wait()
	}()
	require.NoError(t, db.Close())
	db = open(t, path)
	mustExec(t, db, "INSERT INTO t VALUES (1)")

	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", child.Process.Pid))
	if err != nil {
		return // not Linux: the open above was the test
	}
	for _, fd := range fds {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", child.Process.Pid, fd.Name()))
		require.False(t, strings.HasPrefix(target, path), target)
	}
}

// The lock file is replaced between an owner's open and its flock, which strace
// holds up: the owner must notice that it has locked a file that is not at the
// path any more, or the next one would own the store as well.
func TestLockOnAFileThatWasReplacedDoesNotCount(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil || exec.Command(strace, "-qq", "-o", os.DevNull, "true").Run() != nil {
		t.Skip("strace cannot be used here")
	}
	var path string
	var content []byte
	for late := 0; ; late++ { // on a busy machine the replacement may come too late
		require.Less(t, late, 10, "the lock file was never replaced in time")
		path = newPath(t)
		lock := path + lockSuffix
		require.NoError(t, os.WriteFile(lock, nil, 0o600))
		log := filepath.Join(t.TempDir(), "log")
		role := roleCommand(roleOwner, path)
		cmd := exec.Command(strace, "-qq", "-f", "-o", log, "-e", "trace=openat,flock", "-e", "inject=flock:delay_enter=2000000:when=1", os.Args[0], path)
		cmd.Env = role.Env
		replaced := make(chan time.Time, 1)
		go func() { // while the first flock is held up
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if content, _ := os.ReadFile(log); bytes.Contains(content, []byte(lock)) {
					break
				}
			}
			_ = os.WriteFile(lock+".new", nil, 0o600)
			_ = os.Rename(lock+".new", lock)
			replaced <- time.Now()
		}()
		first := startProcess(t, cmd)
		opened := time.Now()
		require.Empty(t, first.opened.Err)
		content, err = os.ReadFile(log)
		require.NoError(t, err)
		if opened.Sub(<-replaced) > time.Second {
			break
		}
	}
	require.Equal(t, 2, bytes.Count(content, []byte("flock(")), "it has started over:\n%s", content)
	require.True(t, start(t, roleOwner, path).opened.Conflict)
	require.ErrorIs(t, connectorOf(t, path), coopsqlite.ErrConflict)
}

// SQLite's POSIX locks fall when any descriptor of the file is closed in the
// process, so nothing here may open and close the store beside SQLite.
func TestOpeningAgainDoesNotDropSQLitesLocks(t *testing.T) {
	path := newPath(t)
	db := open(t, path+"?_coop_owner=process")
	mustExec(t, db, "CREATE TABLE t (a)")
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	mustExec(t, tx, "INSERT INTO t VALUES (1)")

	outside := start(t, roleForger2, path+"?_busy_timeout=1")
	require.Contains(t, outside.try("BEGIN IMMEDIATE"), "database is locked")
	_, err = sql.Open("coopsqlite", path) // refused
	require.Error(t, err)
	second := open(t, path+"?_coop_owner=process")
	storeOf(t, second)
	require.NoError(t, second.Close())
	require.Contains(t, outside.try("BEGIN IMMEDIATE"), "database is locked", "the lock of the open transaction still stands")
}

func TestStoreIsFoundByItsRealPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "data", "app.db")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(t, os.Symlink("data", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join("data", "app.db"), filepath.Join(dir, "app")))
	require.NoError(t, os.Symlink("app", filepath.Join(dir, "app2")))
	t.Chdir(dir)
	names := []string{
		path, "data/app.db", "./data/../data/app.db", "link/app.db", "app", "app2", "link/../app",
		"file:data/app.db", "file:" + path, "file://" + path, "file://localhost" + path, "file:data%2Fapp.db", "file:d%61ta/app.db",
		"file:data/app.db?mode=rwc", "file:data/app.db?cache=private#fragment",
	}
	// A link may lead to a store that does not exist yet.
	db := open(t, "app2")
	mustExec(t, db, "CREATE TABLE t (a)")
	require.FileExists(t, path)
	for _, name := range names {
		_, err := sql.Open("coopsqlite", name)
		var conflict *coopsqlite.ConflictError
		require.ErrorAs(t, err, &conflict, name)
		require.Equal(t, path, conflict.Path, name)
	}
	require.NoError(t, db.Close())
	for _, name := range names {
		db, err := sql.Open("coopsqlite", name)
		require.NoError(t, err, name)
		require.Equal(t, path, storeOf(t, db).Path(), name)
		mustExec(t, db, "INSERT INTO t VALUES (1)")
		require.NoError(t, db.Close())
	}
	require.ElementsMatch(t, []string{"data", "link", "app", "app2"}, entries(t, dir))
	require.ElementsMatch(t, []string{"app.db", "app.db" + lockSuffix}, entries(t, filepath.Dir(path)))
}

// A file name is any bytes but NUL and the slash. A plain name ends at the
// first question mark, as in mattn's driver; a URI can say all of them.
func TestOddFileNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"with space", "what?", "#1", "100%", "%41", "a&b=c", "quote'\"", "ünïcode", "new\nline", "semi;colon", "-dash", "file:x", "trailing.",
	} {
		path := filepath.Join(dir, name)
		dsn := "file:" + escapePath(path) + "?_journal_mode=WAL"
		db, err := sql.Open("coopsqlite", dsn)
		require.NoError(t, err, name)
		mustExec(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
		require.Equal(t, path, storeOf(t, db).Path())
		require.FileExists(t, path)
		require.FileExists(t, path+lockSuffix)
		require.ErrorIs(t, connectorOf(t, dsn), coopsqlite.ErrConflict, name)
		require.NoError(t, db.Close())
		if !strings.Contains(name, "?") {
			plain, err := sql.Open("coopsqlite", path)
			require.NoError(t, err, name)
			require.Equal(t, path, storeOf(t, plain).Path())
			require.Equal(t, "1", value(t, plain, "SELECT count(*) FROM t"), name)
			require.NoError(t, plain.Close())
		}
	}
}
