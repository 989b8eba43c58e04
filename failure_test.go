package coopsqlite_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// requireClearFailure checks the error of an open that failed for a reason of
// its own: it names what is wrong, is no conflict, and left nothing behind.
func requireClearFailure(t *testing.T, err error, dir string, before []string, want ...string) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, coopsqlite.ErrConflict)
	for _, part := range want {
		require.Contains(t, err.Error(), part)
	}
	require.Equal(t, before, entries(t, dir), "what was not there before is not there now")
}

func TestStoreThatIsNoDatabase(t *testing.T) {
	for name, content := range map[string]string{
		"text":  strings.Repeat("this is not a database\n", 100),
		"short": "hello",
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			_, err := sql.Open("coopsqlite", path)
			requireClearFailure(t, err, filepath.Dir(path), []string{"app.db"}, path, "not an SQLite database")
			var sqliteErr sqlite3.Error
			require.ErrorAs(t, err, &sqliteErr)
			require.Equal(t, sqlite3.ErrNotADB, sqliteErr.Code)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, string(after))
		})
	}
}

func TestStoreThatIsADirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	require.NoError(t, os.Mkdir(path, 0o700))
	for _, name := range []string{path, path + "/", path + "/."} {
		_, err := sql.Open("coopsqlite", name)
		requireClearFailure(t, err, dir, []string{"app.db"}, path, "is a directory")
		require.ErrorIs(t, err, syscall.EISDIR, name)
	}
	require.Empty(t, entries(t, path))
}

func TestStoreInADirectoryThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "missing", "app.db")
	_, err := sql.Open("coopsqlite", path)
	requireClearFailure(t, err, dir, nil, path, "no such file or directory")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestStoreBelowAFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	path := filepath.Join(dir, "file", "app.db")
	_, err := sql.Open("coopsqlite", path)
	requireClearFailure(t, err, dir, []string{"file"}, path, "not a directory")
	require.ErrorIs(t, err, syscall.ENOTDIR)
}

func TestStoreThatIsADevice(t *testing.T) {
	_, err := sql.Open("coopsqlite", os.DevNull)
	require.ErrorContains(t, err, "not a regular file")
}

func TestStoreThatIsALinkToItself(t *testing.T) {
	path := newPath(t)
	require.NoError(t, os.Symlink(path, path))
	_, err := sql.Open("coopsqlite", path)
	requireClearFailure(t, err, filepath.Dir(path), []string{"app.db"}, "too many levels of symbolic links")
}

// The openings below run as a user whom permissions bind.

func TestDirectoryWithoutWritePermission(t *testing.T) {
	dir := openDir(t)
	require.NoError(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	p := startProcess(t, asOrdinaryUser(roleCommand(roleOwner, filepath.Join(dir, "app.db"))))
	requireClearFailure(t, errors.New(p.opened.Err), dir, nil, "app.db.engine.lock", "permission denied", "mode=ro")
	require.False(t, p.opened.Conflict)
}

func TestLockFileOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's file")
	}
	dir := openDir(t)
	path := filepath.Join(dir, "app.db")
	require.NoError(t, os.WriteFile(path+lockSuffix, nil, 0o600))
	p := startProcess(t, asOrdinaryUser(roleCommand(roleOwner, path)))
	requireClearFailure(t, errors.New(p.opened.Err), dir, []string{"app.db.engine.lock"}, "app.db.engine.lock", "permission denied")
	require.False(t, p.opened.Conflict)
}

func TestStoreThatThisUserMayNotWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's file")
	}
	dir := openDir(t)
	path := filepath.Join(dir, "app.db")
	mustExec(t, openPlain(t, path), "CREATE TABLE t (a)")
	require.NoError(t, os.Chmod(path, 0o644))
	p := startProcess(t, asOrdinaryUser(roleCommand(roleOwner, path)))
	requireClearFailure(t, errors.New(p.opened.Err), dir, []string{"app.db"}, path, "readonly database", "mode=ro")

	reader := startProcess(t, asOrdinaryUser(roleCommand(roleOwner, "file:"+path+"?mode=ro")))
	require.Empty(t, reader.opened.Err)
	require.Equal(t, []string{"0"}, reader.ask("SELECT count(*) FROM t").Values)
}

func TestStoreThatThisUserMayNotRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's file")
	}
	dir := openDir(t)
	path := filepath.Join(dir, "app.db")
	mustExec(t, openPlain(t, path), "CREATE TABLE t (a)")
	require.NoError(t, os.Chmod(path, 0o600))
	p := startProcess(t, asOrdinaryUser(roleCommand(roleOwner, path)))
	requireClearFailure(t, errors.New(p.opened.Err), dir, []string{"app.db"}, path, "unable to open database file")
}

func TestReadOnlyFileSystem(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err != nil || exec.Command(unshare, "--mount", "true").Run() != nil {
		t.Skip("mounting is not allowed here")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	mustExec(t, openPlain(t, path), "CREATE TABLE t (a)")
	mounted := func(dsn string) *process {
		role := roleCommand(roleOwner, dsn)
		cmd := exec.Command(unshare, "--mount", "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"`,
			dir, os.Args[0], dsn)
		cmd.Env = role.Env
		return startProcess(t, cmd)
	}
	p := mounted(path)
	requireClearFailure(t, errors.New(p.opened.Err), dir, []string{"app.db"}, "app.db.engine.lock", "read-only file system", "mode=ro")
	require.False(t, p.opened.Conflict)
	reader := mounted("file:" + path + "?mode=ro")
	require.Empty(t, reader.opened.Err)
	require.Equal(t, []string{"0"}, reader.ask("SELECT count(*) FROM t").Values)
}

// What flock answers on file systems without locks, brought about by strace
// where there is one.
func TestFileSystemWithoutLocks(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil || exec.Command(strace, "-qq", "-o", os.DevNull, "true").Run() != nil {
		t.Skip("strace cannot be used here")
	}
	for _, errno := range []string{"ENOLCK", "EOPNOTSUPP", "ENOSYS", "EIO"} {
		t.Run(errno, func(t *testing.T) {
			path := newPath(t)
			role := roleCommand(roleOwner, path)
			cmd := exec.Command(strace, "-qq", "-f", "-o", os.DevNull, "-e", "trace=flock", "-e", "inject=flock:error="+errno, os.Args[0], path)
			cmd.Env = role.Env
			p := startProcess(t, cmd)
			require.False(t, p.opened.Conflict, p.opened.Err)
			want := "no flock"
			if errno == "EIO" {
				want = "input/output error"
			}
			requireClearFailure(t, errors.New(p.opened.Err), filepath.Dir(path), nil, "app.db.engine.lock", want)
		})
	}
}

func TestFailedOpenLeavesAnExistingStoreAlone(t *testing.T) {
	path := newPath(t)
	mustExec(t, openPlain(t, path), "CREATE TABLE t (a)")
	before := stat(t, path)
	for _, dsn := range []string{
		path + "?_coop_owner=nobody", path + "?_coop_unknown=1", path + "?_txlock=nonsense", path + "?_journal_mode=nonsense", path + "?_foreign_keys=maybe",
	} {
		_, err := sql.Open("coopsqlite", dsn)
		requireClearFailure(t, err, filepath.Dir(path), []string{"app.db"})
	}
	require.Equal(t, before.Mtim, stat(t, path).Mtim)
	fresh := newPath(t)
	for _, dsn := range []string{fresh + "?_txlock=nonsense", fresh + "?_journal_mode=nonsense"} {
		_, err := sql.Open("coopsqlite", dsn)
		requireClearFailure(t, err, filepath.Dir(fresh), nil)
	}
}
