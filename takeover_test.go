package coopsqlite_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// fences counts the fences on each table of the store, asking plain mattn.
func fences(t *testing.T, path string) map[string]int {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.Query(`
		SELECT t.name, count(f.name) FROM sqlite_schema AS t
		LEFT JOIN sqlite_schema AS f ON f.type = 'trigger' AND f.tbl_name = t.name AND f.name LIKE 'coop!_fence!_%' ESCAPE '!'
		WHERE t.type = 'table' GROUP BY t.name`)
	require.NoError(t, err)
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		counts[name] = n
	}
	require.NoError(t, rows.Err())
	return counts
}

func TestOpeningFencesAStoreThatWasOrdinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	plain, err := sql.Open("sqlite3", path)
	require.NoError(t, err)
	_, err = plain.Exec("CREATE TABLE a (x); CREATE TABLE b (x)")
	require.NoError(t, err)
	require.NoError(t, plain.Close())

	db, err := sql.Open("coopsqlite", path)
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, map[string]int{"a": 3, "b": 3, "coop_owner": 3}, fences(t, path), "before anything is written")
}

func TestOpeningAgainLeavesEveryTableFenced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	for range 3 {
		db, err := sql.Open("coopsqlite", path)
		require.NoError(t, err)
		_, err = db.Exec("CREATE TABLE IF NOT EXISTS a (x); INSERT INTO a VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, db.Close())
		require.Equal(t, map[string]int{"a": 3, "coop_owner": 3}, fences(t, path))
	}
}

// supersede makes another process the owner of a store that has one, by taking
// the lock file away.
func supersede(t *testing.T, path string) *process {
	t.Helper()
	require.NoError(t, os.Remove(path+".engine.lock"))
	newer := start(t, roleOwner, path)
	require.Empty(t, newer.opened.Err, "the lock kept nobody out")
	return newer
}

// Whatever the older owner does first, triggers or not, it is refused.
func TestOlderOwnerIsRefusedWhateverItTriesFirst(t *testing.T) {
	for _, statement := range []string{
		"INSERT INTO t VALUES (2)", "UPDATE t SET a = 2", "DELETE FROM t", "REPLACE INTO t VALUES (2)",
		"CREATE TABLE u (a)", "CREATE TABLE IF NOT EXISTS u (a)", "CREATE TABLE u AS SELECT * FROM t", "DROP TABLE t",
		"ALTER TABLE t RENAME TO u", "ALTER TABLE t ADD COLUMN b", "ALTER TABLE t RENAME COLUMN a TO b",
		"CREATE INDEX i ON t (a)", "DROP INDEX t_a", "CREATE VIEW v AS SELECT 1", "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END",
		"DROP TRIGGER coop_fence_t_insert", "DROP TABLE coop_owner", "DELETE FROM coop_owner", "UPDATE coop_owner SET epoch = 1", "CREATE VIRTUAL TABLE r USING rtree(id, x, y)",
		"ANALYZE", "REINDEX", "VACUUM", "PRAGMA user_version = 7", "PRAGMA application_id = 7", "PRAGMA journal_mode = WAL",
	} {
		t.Run(statement, func(t *testing.T) {
			path := newPath(t)
			outside := openPlain(t, "file:"+escapePath(path)+"?mode=ro")
			state := func() string {
				return strings.Join(values(t, outside, "SELECT *, (SELECT group_concat(name) FROM sqlite_schema), journal_mode, user_version, application_id FROM t, coop_owner, pragma_journal_mode, pragma_user_version, pragma_application_id"), "|")
			}
			for name, run := range map[string]func(db *sql.DB) error{
				"autocommit": func(db *sql.DB) error { _, err := db.Exec(statement); return err },
				"Query":      func(db *sql.DB) error { _, err := queryAll(db, statement); return err },
				"transaction": func(db *sql.DB) error {
					tx, err := db.Begin()
					if err == nil {
						defer tx.Rollback()
						_, err = tx.Exec(statement)
					}
					return err
				},
				"raw transaction": func(db *sql.DB) error { _, err := db.Exec("BEGIN; " + statement + "; COMMIT"); return err },
			} {
				if name == "raw transaction" && (statement == "VACUUM" || strings.HasPrefix(statement, "PRAGMA journal_mode")) {
					continue // SQLite itself refuses them there
				}
				older := open(t, path+"?_coop_watch=0")
				mustExec(t, older, "CREATE TABLE IF NOT EXISTS t (a)", "CREATE INDEX IF NOT EXISTS t_a ON t (a)", "INSERT INTO t VALUES (1)")
				newer := supersede(t, path)
				before := state()
				err := run(older)
				require.ErrorIs(t, err, coopsqlite.ErrSuperseded, name)
				require.ErrorIs(t, err, coopsqlite.ErrFenced, name)
				require.ErrorContains(t, err, "Coop writer superseded", name)
				require.Equal(t, before, state(), name)
				newer.stop()
				require.NoError(t, older.Close())
			}
		})
	}
}

// An owner that stood still while another took over is refused when it goes on.
func TestStoppedOwnerIsSupersededWhenItGoesOn(t *testing.T) {
	for _, watch := range []string{"0", "1ms"} {
		t.Run("watch="+watch, func(t *testing.T) {
			path := newPath(t)
			// In WAL mode what its watcher was reading hinders nobody.
			older := start(t, roleOwner, path+"?_journal_mode=WAL&_coop_watch="+watch)
			require.Empty(t, older.try("CREATE TABLE t (a)"))
			require.Empty(t, older.try("INSERT INTO t VALUES ('acknowledged')"))
			require.NoError(t, older.cmd.Process.Signal(syscall.SIGSTOP))
			newer := supersede(t, path)
			require.Empty(t, newer.try("INSERT INTO t VALUES ('newer')"))
			require.NoError(t, older.cmd.Process.Signal(syscall.SIGCONT))

			for _, statement := range []string{"INSERT INTO t VALUES ('older')", "CREATE TABLE u (a)", "DROP TABLE t"} {
				r := older.ask(statement)
				require.Contains(t, r.Err, "Coop writer superseded", statement)
				require.True(t, r.Fenced)
			}
			require.Empty(t, newer.try("INSERT INTO t VALUES ('newer still')"))
			require.Equal(t, []string{"acknowledged", "newer", "newer still"}, older.ask("SELECT a FROM t").Values)
		})
	}
}

// While the older owner's transaction is open nobody can take over: its commit
// stands.
func TestTakeoverWaitsForAnOpenTransaction(t *testing.T) {
	path := newPath(t)
	older := start(t, roleSession, path)
	require.Empty(t, older.try("CREATE TABLE t (a)"))
	require.Empty(t, older.try("BEGIN IMMEDIATE; INSERT INTO t VALUES ('older')"))
	require.NoError(t, older.cmd.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, os.Remove(path+".engine.lock"))
	require.Contains(t, start(t, roleOwner, path+"?_busy_timeout=50").opened.Err, "database is locked")
	require.NoError(t, older.cmd.Process.Signal(syscall.SIGCONT))
	require.Empty(t, older.try("COMMIT"), "nobody has taken over")

	newer := start(t, roleOwner, path)
	require.Empty(t, newer.opened.Err)
	require.Empty(t, newer.try("INSERT INTO t VALUES ('newer')"))
	require.Contains(t, older.try("INSERT INTO t VALUES ('too late')"), "Coop writer superseded")
	require.Equal(t, []string{"older", "newer"}, newer.ask("SELECT a FROM t").Values)
}

// Owners write as fast as they can while others take the store over from them,
// again and again. What any of them was told is committed is there.
func TestTakeoverLosesNothingThatWasAcknowledged(t *testing.T) {
	path := newPath(t)
	first := start(t, roleOwner, path+"?_journal_mode=WAL&_synchronous=OFF")
	require.Empty(t, first.try("CREATE TABLE t (writer, n)"))
	first.stop()

	const owners = 8
	acknowledged := 0
	last := writeUntilRefused(t, path, 0)
	for i := 1; i <= owners; i++ {
		for range 50 {
			last.acknowledged()
		}
		require.NoError(t, os.Remove(path+".engine.lock"))
		next := writeUntilRefused(t, path, i)
		next.acknowledged()
		acknowledged += last.refused("Coop writer superseded")
		last = next
	}
	last.cmd.Process.Kill()
	acknowledged += last.refused("")
	db := open(t, path)
	for i := range owners + 1 {
		// Each one's rows are numbered without a gap, so counting will do.
		require.Equal(t, value(t, db, "SELECT coalesce(max(n), 0) FROM t WHERE writer = ?", i), value(t, db, "SELECT count(*) FROM t WHERE writer = ?", i))
	}
	rows, err := strconv.Atoi(value(t, db, "SELECT count(*) FROM t"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, rows, acknowledged)
	require.LessOrEqual(t, rows, acknowledged+1, "the one that was killed may have had one under way")
	require.EqualValues(t, owners+3, storeOf(t, db).Epoch())
}

// roleWriter owns a store, inserts rows into t as fast as it can, prints the
// number of each that is committed, and at the end the error.
const roleWriter = "writer"

func playWriter(dsn string) {
	path, name, _ := strings.Cut(dsn, "#")
	db, err := sql.Open("coopsqlite", path+"?_synchronous=OFF&_coop_watch=5ms")
	for n := 1; err == nil; n++ {
		if _, err = db.Exec("INSERT INTO t VALUES (?, ?)", name, n); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Println(err)
}

type writer struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	last  int
}

func writeUntilRefused(t *testing.T, path string, name int) *writer {
	t.Helper()
	cmd := roleCommand(roleWriter, fmt.Sprint(path, "#", name))
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &writer{t, cmd, bufio.NewScanner(stdout), 0}
}

// acknowledged waits for one more row.
func (w *writer) acknowledged() {
	w.t.Helper()
	require.True(w.t, w.lines.Scan(), "the writer ended")
	n, err := strconv.Atoi(w.lines.Text())
	require.NoError(w.t, err)
	require.Equal(w.t, w.last+1, n)
	w.last = n
}

// refused waits for the writer's end and returns how many rows it was told are
// committed.
func (w *writer) refused(why string) int {
	w.t.Helper()
	for w.lines.Scan() {
		n, err := strconv.Atoi(w.lines.Text())
		if err != nil {
			require.Contains(w.t, w.lines.Text(), why)
			break
		}
		w.last = n
	}
	return w.last
}
