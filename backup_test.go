package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// accounts makes a store whose rows always sum up to zero.
const accounts = 200

func openAccounts(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := open(t, dsn)
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, padding)")
	for i := range accounts {
		_, err := tx.Exec("INSERT INTO account VALUES (?, 0, ?)", i, strings.Repeat("x", 3000))
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	return db
}

// keepTransferring moves money between accounts until the function it returns is
// called, which tells how often.
func keepTransferring(t *testing.T, db *sql.DB) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					continue
				}
				_, err = tx.ExecContext(ctx, "UPDATE account SET balance = balance - 1 WHERE id = ?", (i*7+g)%accounts)
				if err == nil {
					_, err = tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1 WHERE id = ?", (i*11+g)%accounts)
				}
				if err == nil && tx.Commit() == nil {
					n.Add(1)
				} else {
					tx.Rollback()
				}
			}
		})
	}
	stop = sync.OnceValue(func() int64 {
		cancel()
		wg.Wait()
		return n.Load()
	})
	t.Cleanup(func() { stop() })
	return stop
}

// requireWhole checks a copy.
func requireWhole(t *testing.T, db *sql.DB) {
	t.Helper()
	require.Equal(t, "ok", value(t, db, "PRAGMA integrity_check"))
	require.Equal(t, fmt.Sprint(accounts), value(t, db, "SELECT count(*) FROM account"))
	require.Equal(t, "0", value(t, db, "SELECT sum(balance) FROM account"), "it is the state of one moment")
}

func TestBackupWhileWritersRun(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s plain=%t", journal, plain), func(t *testing.T) {
				path := newPath(t)
				db := openAccounts(t, path+"?_synchronous=OFF&_journal_mode="+journal)
				stop := keepTransferring(t, db)
				for i := range 3 {
					dest := filepath.Join(t.TempDir(), fmt.Sprint("copy", i, ".db"))
					steps, last, total := 0, 0, 0
					require.NoError(t, storeOf(t, db).Backup(t.Context(), dest, &coopsqlite.BackupOptions{
						Plain: plain, PagesPerStep: 20, Progress: func(done, of int) {
							require.GreaterOrEqual(t, done, last, "it does not start over")
							require.LessOrEqual(t, done, of)
							steps, last, total = steps+1, done, of
						},
					}))
					require.Greater(t, steps, 3)
					require.Equal(t, total, last)
					require.Equal(t, []string{filepath.Base(dest)}, entries(t, filepath.Dir(dest)), "nothing else is left")

					copied := openPlain(t, dest)
					requireWhole(t, copied)
					_, err := copied.Exec("UPDATE account SET balance = balance WHERE id = 1")
					ours := value(t, copied, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'coop%'")
					require.NoError(t, copied.Close())
					if plain {
						require.NoError(t, err)
						require.Equal(t, "0", ours)
					} else {
						require.EqualError(t, err, noPermit)
						requireCovered(t, dest)
					}
					owned := open(t, dest)
					mustExec(t, owned, "UPDATE account SET balance = 5 WHERE id = 1")
					require.NoError(t, owned.Close())
				}
				require.Positive(t, stop())
				requireWhole(t, db)
				requireCovered(t, path)
			})
		}
	}
}

func TestBackupKeepsTheMode(t *testing.T) {
	path := newPath(t)
	db := openAccounts(t, path)
	require.NoError(t, os.Chmod(path, 0o640))
	dest := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, storeOf(t, db).Backup(t.Context(), dest, nil))
	info, err := os.Stat(dest)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}

func TestBackupByAReaderBesideTheOwner(t *testing.T) {
	path := newPath(t)
	openAccounts(t, path+"?_journal_mode=WAL")
	dest := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, storeOf(t, open(t, "file:"+escapePath(path)+"?mode=ro")).Backup(t.Context(), dest, nil))
	requireWhole(t, openPlain(t, dest))
}

func TestBackupTouchesNothingThatIsThere(t *testing.T) {
	db := openAccounts(t, newPath(t))
	dest := filepath.Join(t.TempDir(), "copy.db")
	for name, path := range map[string]string{"the copy": dest, "an unfinished copy": dest + ".partial"} {
		require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		require.ErrorIs(t, storeOf(t, db).Backup(t.Context(), dest, nil), os.ErrExist, name)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, name, string(content))
		require.NoError(t, os.Remove(path))
	}
	require.Error(t, storeOf(t, db).Backup(t.Context(), filepath.Join(dest, "nowhere", "copy.db"), nil))
	require.Empty(t, entries(t, filepath.Dir(dest)))
}

func TestCancelledBackupLeavesNothing(t *testing.T) {
	for _, plain := range []bool{false, true} {
		db := openAccounts(t, newPath(t)+"?_journal_mode=WAL")
		dest := filepath.Join(t.TempDir(), "copy.db")
		ctx, cancel := context.WithCancel(t.Context())
		err := storeOf(t, db).Backup(ctx, dest, &coopsqlite.BackupOptions{Plain: plain, PagesPerStep: 5, Progress: func(done, total int) { cancel() }})
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, entries(t, filepath.Dir(dest)))
		mustExec(t, db, "UPDATE account SET balance = 0")
		require.NoError(t, storeOf(t, db).Backup(t.Context(), dest, nil))
	}
}

// roleBackup copies a store where no file may grow beyond a size: a full disk,
// as far as SQLite can tell.
const roleBackup = "backup"

func playBackup(dsn string) {
	path, dest, _ := strings.Cut(dsn, "#")
	db, err := sql.Open("coopsqlite", path)
	if err == nil {
		defer db.Close()
		signal.Ignore(syscall.SIGXFSZ)
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 200 << 10, Max: 200 << 10})
	}
	if err == nil {
		var store *coopsqlite.Store
		if store, err = coopsqlite.StoreOf(db); err == nil {
			err = store.Backup(context.Background(), dest, nil)
		}
	}
	fmt.Println(err)
}

func TestBackupOntoAFullDiskLeavesNothing(t *testing.T) {
	path := newPath(t)
	db := openAccounts(t, path)
	require.NoError(t, db.Close())
	dest := filepath.Join(t.TempDir(), "copy.db")
	out, err := roleCommand(roleBackup, path+"#"+dest).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "<nil>")
	require.Regexp(t, "full|disk I/O error|file too large", string(out))
	require.Empty(t, entries(t, filepath.Dir(dest)))
	requireWhole(t, open(t, path))
}

// Copies that others make carry the fence with them, as any trigger.
func TestCopiesThatOthersMakeCarryTheFence(t *testing.T) {
	for name, copyTo := range map[string]func(t *testing.T, from, to string){
		"VACUUM INTO": func(t *testing.T, from, to string) {
			_, err := openPlain(t, from).Exec("VACUUM INTO ?", to)
			require.NoError(t, err)
		},
		"VACUUM INTO by the owner": func(t *testing.T, from, to string) {
			_, err := open(t, from).Exec("VACUUM INTO ?", to)
			require.NoError(t, err)
		},
		".backup": func(t *testing.T, from, to string) { shell(t, from, ".backup '"+to+"'") },
		".dump": func(t *testing.T, from, to string) {
			dump := filepath.Join(filepath.Dir(to), "dump.sql")
			shell(t, from, ".output '"+dump+"'", ".dump")
			shell(t, to, ".read '"+dump+"'")
		},
		"cp": func(t *testing.T, from, to string) {
			content, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, content, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := newPath(t), newPath(t)
			db := openAccounts(t, from)
			require.NoError(t, db.Close())
			copyTo(t, from, to)
			copied := openPlain(t, to)
			requireWhole(t, copied)
			_, err := copied.Exec("DELETE FROM account")
			require.EqualError(t, err, noPermit)
			require.NoError(t, copied.Close())
			owner := open(t, to)
			mustExec(t, owner, "UPDATE account SET balance = 7 WHERE id = 1")
			require.Greater(t, storeOf(t, owner).Epoch(), int64(1))
			requireCovered(t, to)
			require.NoError(t, storeOf(t, owner).Unfence(t.Context()))
			require.NoError(t, owner.Close())
			mustExec(t, openPlain(t, to), "DELETE FROM account")
		})
	}
}

// shell runs commands of the sqlite3 shell.
func shell(t *testing.T, path string, commands ...string) {
	t.Helper()
	binary, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("there is no sqlite3 shell here")
	}
	out, err := exec.Command(binary, append([]string{"-batch", path}, commands...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
}
