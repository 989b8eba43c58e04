package coopsqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// The tests talk to real other processes. A test binary that finds roleVariable
// set is not a test but one of them: it opens the DSN it is given and runs the
// statements that come in on stdin, one a line, until there are no more.
const (
	roleVariable = "COOPSQLITE_TEST_ROLE"
	roleOwner    = "owner"    // opens with this driver
	roleOutsider = "outsider" // opens with mattn's, and knows of nothing
	roleForger   = "forger"   // defines coop_write_permit for itself
	roleForger2  = "forger2"  // defines coop_context as well
)

// patience bounds the life of another process; only a failure reaches it.
const patience = time.Minute

// What the tests expect of a refused write, word for word.
const (
	noPermit  = "no such function: coop_write_permit"
	noContext = "no such function: coop_context"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if play := roles[role]; play != nil {
			play(os.Args[1])
		} else {
			playRole(role, os.Args[1])
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// reply is a process's answer to one statement, and, first of all, to the open.
type reply struct {
	Err      string   `json:"err,omitempty"`
	Conflict bool     `json:"conflict,omitempty"` // errors.Is ErrConflict
	Self     bool     `json:"self,omitempty"`
	Fenced   bool     `json:"fenced,omitempty"` // errors.Is ErrFenced
	Values   []string `json:"values,omitempty"`
}

func replyTo(err error, values []string) reply {
	r := reply{Values: values}
	if err != nil {
		r.Err = err.Error()
		var conflict *coopsqlite.ConflictError
		r.Conflict = errors.Is(err, coopsqlite.ErrConflict)
		r.Self = errors.As(err, &conflict) && conflict.Self
		r.Fenced = errors.Is(err, coopsqlite.ErrFenced)
	}
	return r
}

// playRole is the other process.
func playRole(role, dsn string) {
	if role == roleWriters {
		writeForEver(dsn)
	}
	answers := json.NewEncoder(os.Stdout)
	driverName := map[string]string{roleOwner: "coopsqlite", roleOutsider: "sqlite3"}[role]
	if driverName == "" {
		driverName = role
		sql.Register(role, &sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
			err := c.RegisterFunc("coop_write_permit", func() int { return 1 }, false)
			if role == roleForger2 {
				// It knows the number, too: anybody can read it.
				err = errors.Join(err, c.RegisterFunc("coop_context", func(string) (any, error) { return forgedFence(dsn) }, false))
			}
			return err
		}})
	}
	db, err := sql.Open(driverName, dsn)
	if err == nil {
		defer db.Close()
		db.SetMaxOpenConns(1)
		err = db.Ping()
	}
	answers.Encode(replyTo(err, nil))
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var statement string
		if err := json.Unmarshal(lines.Bytes(), &statement); err != nil {
			answers.Encode(replyTo(err, nil))
			continue
		}
		values, err := queryAll(db, statement)
		answers.Encode(replyTo(err, values))
	}
}

func forgedFence(dsn string) (int64, error) {
	db, err := sql.Open("sqlite3", dsn)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var fence int64
	err = db.QueryRow("SELECT fence FROM coop_owner").Scan(&fence)
	return fence, err
}

// queryAll runs a statement and returns the values of all its rows as text.
func queryAll(db *sql.DB, query string, args ...any) ([]string, error) {
	rows, err := db.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var values []string
	for rows.Next() {
		row := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		for _, v := range row {
			if !v.Valid {
				v.String = "NULL"
			}
			values = append(values, v.String)
		}
	}
	return values, errors.Join(rows.Err(), rows.Close())
}

// process is another process that runs statements for a test.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr strings.Builder
	cancel context.CancelFunc
	opened reply
}

// startProcess starts cmd, which speaks the protocol of playRole.
func startProcess(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &process{t: t, cmd: cmd, cancel: cancel}
	context.AfterFunc(ctx, func() {
		if cmd.Process != nil {
			cmd.Process.Kill()
		}
	})
	var err error
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewScanner(stdout)
	cmd.Stderr = &p.stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(p.stop)
	p.opened = p.read()
	return p
}

// start runs this test binary in another role.
func start(t testing.TB, role, dsn string) *process {
	t.Helper()
	return startProcess(t, roleCommand(role, dsn))
}

// roleCommand is the command behind start, to be changed before it runs.
// /proc/self/exe can be executed by another user too, who may not search the
// directory that go test has put the binary in.
func roleCommand(role, dsn string) *exec.Cmd {
	binary := "/proc/self/exe"
	if _, err := os.Stat(binary); err != nil {
		binary = os.Args[0]
	}
	cmd := exec.Command(binary, dsn)
	// Under the race detector a process would wait a second before it ends.
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func (p *process) read() (r reply) {
	p.t.Helper()
	require.True(p.t, p.stdout.Scan(), "the other process ended: %v\n%s", p.stdout.Err(), p.stderr.String())
	require.NoError(p.t, json.Unmarshal(p.stdout.Bytes(), &r), "%s", p.stdout.Text())
	return r
}

// ask runs a statement in the process.
func (p *process) ask(statement string) reply {
	p.t.Helper()
	line, err := json.Marshal(statement)
	require.NoError(p.t, err)
	_, err = p.stdin.Write(append(line, '\n'))
	require.NoError(p.t, err)
	return p.read()
}

// try runs a statement and returns the error's text, empty if there was none.
func (p *process) try(statement string) string {
	p.t.Helper()
	return p.ask(statement).Err
}

// stop lets the process close its database and end.
func (p *process) stop() {
	if p.cmd.ProcessState == nil {
		p.stdin.Close()
		p.cmd.Wait()
		p.cancel()
	}
}

// kill ends the process without any chance to tidy up.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.stop()
}

// ordinaryUser is whom the tests about permissions run as when they are run by
// root, to whom permissions do not apply.
const ordinaryUser = 65534

// asOrdinaryUser makes cmd run without root's privileges.
func asOrdinaryUser(cmd *exec.Cmd) *exec.Cmd {
	if os.Geteuid() == 0 {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	}
	return cmd
}

// openDir is a directory that an ordinary user can reach and write.
func openDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

// newPath is the path of a store that does not exist yet.
func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "app.db")
}

// open opens a pool that is closed at the end of the test.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("coopsqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// openPlain opens a pool of mattn's driver.
func openPlain(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// mustExec runs statements of which each must succeed.
// ownTrigger gives a store a trigger that does nothing, so that its owner's
// connections run with all triggers, the fences among them.
const ownTrigger = "CREATE VIEW own_view AS SELECT 1 AS x; CREATE TRIGGER own_trigger INSTEAD OF INSERT ON own_view BEGIN SELECT 1; END"

func mustExec(t testing.TB, db interface {
	Exec(string, ...any) (sql.Result, error)
}, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
}

// values are all values of a query's rows, as text.
func values(t testing.TB, db *sql.DB, query string, args ...any) []string {
	t.Helper()
	v, err := queryAll(db, query, args...)
	require.NoError(t, err, query)
	return v
}

// value is the only value of a query.
func value(t testing.TB, db *sql.DB, query string, args ...any) string {
	t.Helper()
	v := values(t, db, query, args...)
	require.Len(t, v, 1, query)
	return v[0]
}

// storeOf is the store behind the pool.
func storeOf(t testing.TB, db *sql.DB) *coopsqlite.Store {
	t.Helper()
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	return store
}

// entries are the names in a directory.
func entries(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// quote makes an SQL identifier of any name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// requireFenced checks that exactly these tables, and coop_owner, carry three
// fences each, and that each refuses a plain connection.
func requireFenced(t testing.TB, path string, tables ...string) {
	t.Helper()
	db := openPlain(t, "file:"+escapePath(path)+"?mode=rw")
	defer db.Close()
	fences := map[string]int{}
	found := values(t, db, "SELECT tbl_name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'coop\\_fence\\_%' ESCAPE '\\'")
	for _, table := range found {
		fences[table]++
	}
	want := map[string]int{"coop_owner": 3}
	for _, table := range tables {
		want[table] = 3
	}
	require.Equal(t, want, fences)
	for table := range want {
		for _, statement := range []string{
			"INSERT INTO " + quote(table) + " DEFAULT VALUES",
			"UPDATE " + quote(table) + " SET " + quote(value(t, db, "SELECT name FROM pragma_table_info(?) LIMIT 1", table)) + " = 0",
			"DELETE FROM " + quote(table),
		} {
			_, err := db.Exec(statement)
			require.EqualError(t, err, noPermit, statement)
		}
	}
}

// escapePath writes a path into a file: URI.
func escapePath(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if c := path[i]; c == '%' || c == '?' || c == '#' || c < ' ' || c > '~' {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
