package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// runMain is the variable under which the test binary is the command itself,
// so that the tests run what users run, with the race detector if it is on.
const runMain = "COOPSQLITE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// result is how a run of the command ended.
type result struct {
	status   int
	out, err string
}

func commandLine(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runMain+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

func call(t *testing.T, args ...string) result { return callWith(t, "", args...) }

func callWith(t *testing.T, input string, args ...string) result {
	t.Helper()
	cmd := commandLine(args...)
	var out, err bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &err
	if e := cmd.Run(); e != nil {
		require.IsType(t, (*exec.ExitError)(nil), e)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), err.String()}
}

// fine runs the command and wants it to succeed.
func fine(t *testing.T, args ...string) string {
	t.Helper()
	r := call(t, args...)
	require.Equal(t, exitFine, r.status, "%+v", r)
	require.Empty(t, r.err)
	return r.out
}

// own makes a store that the test owns until the returned pool is closed.
func own(t *testing.T, path, parameters string, statements ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("coopsqlite", path+"?_coop_app=stockd&"+parameters)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
	return db
}

// release makes a store that nobody owns any more.
func release(t *testing.T, parameters string, statements ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app.db")
	require.NoError(t, own(t, path, parameters, statements...).Close())
	return path
}

// plain runs statements as an outsider does.
func plain(t *testing.T, path string, statements ...string) error {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	require.NoError(t, err)
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			return err
		}
	}
	return nil
}

func TestUsage(t *testing.T) {
	r := call(t)
	require.Equal(t, exitUsage, r.status)
	for _, c := range commands() {
		require.Contains(t, r.err, c.name)
		help := fine(t, c.name, "-h")
		require.Contains(t, help, "Usage: coopsqlite "+c.name)
		require.Contains(t, help, "-json")
	}
	require.Equal(t, r.err, fine(t, "help"))
	require.Equal(t, exitUsage, call(t, "nonsense").status)
	require.Equal(t, exitUsage, call(t, "status").status)
	require.Equal(t, exitUsage, call(t, "status", "a", "b").status)
	require.Equal(t, exitUsage, call(t, "status", "--nonsense", "a").status)
}

func TestDemoComesOutAsPromised(t *testing.T) {
	out := fine(t, "demo")
	for _, said := range []string{"Another Coop writer owns this store", "no such function: coop_write_permit", "no such function: coop_context",
		"Coop writer fenced", "Coop writer superseded", "Coop writer is stopped", "the write lands", "untouched"} {
		require.Contains(t, out, said)
	}
	require.NotContains(t, out, "BROKEN")
	rows := 0
	for line := range strings.Lines(fine(t, "demo", "--json")) {
		var row demoJSON
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		require.True(t, row.OK, line)
		rows++
	}
	require.GreaterOrEqual(t, rows, 12)
}

func TestMissingStoreIsWrongUseAndIsNotMade(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"status", "x"}, {"verify", "x"}, {"fence", "x"}, {"unfence", "x"}, {"exec", "x", "SELECT 1"}, {"backup", "x", "y"}, {"changes", "x"}, {"leases", "x"}, {"outbox", "x"}} {
		args[1] = filepath.Join(dir, args[1])
		r := call(t, args...)
		require.Equal(t, exitUsage, r.status, "%v: %+v", args, r)
		require.Contains(t, r.err, "there is no store")
	}
	require.Equal(t, exitUsage, call(t, "status", dir).status)
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestFileThatIsNoStoreIsAFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("no database ", 100)), 0o600))
	for _, name := range []string{"status", "verify", "fence"} {
		r := call(t, name, path)
		require.Equal(t, exitFinding, r.status, "%+v", r)
		require.Contains(t, r.err, "not a")
	}
}

func TestStatusNamesTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd ?#% name.db")
	require.NoError(t, plain(t, "file:"+strings.NewReplacer("?", "%3f", "#", "%23", "%", "%25").Replace(path), "CREATE TABLE t (a)"))
	out := fine(t, "status", path)
	require.Contains(t, out, "none, ever")

	fine(t, "fence", path)
	require.Contains(t, fine(t, "status", path), "none; the last was coopsqlite fence")

	path = filepath.Join(t.TempDir(), "app.db")
	db := own(t, path, "_journal_mode=WAL", "CREATE TABLE t (a)")
	out = fine(t, "status", path)
	require.Contains(t, out, "owner     stockd, pid ")
	require.Contains(t, out, "tables    2, of which 2 fenced and 0 open")
	var st statusJSON
	require.NoError(t, json.Unmarshal([]byte(fine(t, "status", "--json", path)), &st))
	require.True(t, st.Held)
	require.Equal(t, os.Getpid(), st.Holder.PID)
	require.EqualValues(t, 1, st.Epoch)
	require.Equal(t, "wal", st.JournalMode)
	require.Equal(t, path, st.Path)
	require.NoError(t, db.Close())
	require.NoError(t, json.Unmarshal([]byte(fine(t, "status", path, "--json")), &st))
	require.False(t, st.Held)
}

func TestVerifyFindsOpenTables(t *testing.T) {
	path := release(t, "", "CREATE TABLE t (a)", "CREATE TABLE u (a)")
	require.Contains(t, fine(t, "verify", path), "fenced   t\n")
	require.NoError(t, plain(t, path, "CREATE TABLE open (a)", "DROP TRIGGER coop_fence_t_update"))
	r := call(t, "verify", path)
	require.Equal(t, exitFinding, r.status)
	require.Contains(t, r.out, "OPEN     open: lacks coop_fence_open_insert coop_fence_open_update coop_fence_open_delete")
	require.Contains(t, r.out, "OPEN     t: lacks coop_fence_t_update")
	r = call(t, "verify", "--json", path)
	require.Equal(t, exitFinding, r.status)
	var v verifyJSON
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	require.False(t, v.Complete)
	require.Len(t, v.Tables, 4)
	fine(t, "fence", path)
	fine(t, "verify", path)
}

func TestFenceAndUnfence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	require.NoError(t, plain(t, path, "CREATE TABLE t (a)", "CREATE TABLE u (a)"))
	require.Equal(t, exitFinding, call(t, "verify", path).status, "it was never fenced")
	require.Contains(t, fine(t, "fence", "--tables", "-u", path), "2 of its 3 tables")
	require.ErrorContains(t, plain(t, path, "INSERT INTO t VALUES (1)"), noPermit)
	require.NoError(t, plain(t, path, "INSERT INTO u VALUES (1)"))
	fine(t, "fence", path)
	require.NoError(t, plain(t, path, "INSERT INTO u VALUES (2)"), "the selection of the last owner stays")
	require.Contains(t, fine(t, "unfence", path), "ordinary file")
	require.NoError(t, plain(t, path, "INSERT INTO t VALUES (1)"))
	require.Equal(t, "name\nt\nu\n", fine(t, "exec", path, "SELECT name FROM sqlite_schema ORDER BY 1"))
	r := call(t, "fence", "--tables", "*,u", path)
	require.Equal(t, exitUsage, r.status)
	require.Contains(t, r.err, "_coop_tables")
}

func TestOwnedStoreIsStatusThreeAndNamesTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	own(t, path, "_journal_mode=WAL", "CREATE TABLE t (a)")
	for _, args := range [][]string{{"fence", path}, {"unfence", path}, {"exec", path, "INSERT INTO t VALUES (1)"}} {
		r := call(t, args...)
		require.Equal(t, exitOwned, r.status, "%+v", r)
		require.Contains(t, r.err, "Another Coop writer owns this store")
		require.Contains(t, r.err, "stockd")
	}
}

// notice is what is printed on a terminal; it passes on that a text came by.
type notice struct {
	text string
	seen chan struct{}
}

func (n *notice) Write(p []byte) (int, error) {
	if n.seen != nil && strings.Contains(string(p), n.text) {
		close(n.seen)
		n.seen = nil
	}
	return len(p), nil
}

func TestWaitingCommandGetsTheStoreWhenItsOwnerGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db := own(t, path, "_journal_mode=WAL", "CREATE TABLE t (a)")
	waits := make(chan struct{})
	var out bytes.Buffer
	s := &session{in: strings.NewReader(""), out: &out, err: &notice{"Waiting up to 50s for stockd", waits}, terminal: true}
	status := make(chan int)
	go func() {
		status <- run(context.Background(), s, []string{"exec", path, "INSERT INTO t VALUES (1) RETURNING a", "--wait", "50s"})
	}()
	<-waits
	require.NoError(t, db.Close())
	require.Equal(t, exitFine, <-status)
	require.Equal(t, "a\n1\n", out.String())
}

func TestExecReadsBesideTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	own(t, path, "_journal_mode=WAL", "CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 'x'), (NULL, x'00ff'), (2.5, 'z')")
	require.Equal(t, "a\tb\n1\tx\nNULL\tx'00ff'\n2.5\tz\n", fine(t, "exec", path, "SELECT * FROM t"))
	require.Equal(t, "{\"a\":1,\"b\":\"x\"}\n", fine(t, "exec", "--json", path, "SELECT * FROM t LIMIT 1"))
	r := callWith(t, "SELECT count(*) AS n FROM t;\n-- a comment\n", "exec", path)
	require.Equal(t, result{0, "n\n3\n", ""}, r)
}

func TestExecIsOneTransaction(t *testing.T) {
	path := release(t, "", "CREATE TABLE t (a)")
	r := call(t, "exec", path, "INSERT INTO t VALUES (1)", "INSERT INTO nowhere VALUES (1)")
	require.Equal(t, exitFinding, r.status)
	require.Contains(t, r.err, "no such table: nowhere")
	require.Equal(t, "count(*)\n0\n", fine(t, "exec", path, "SELECT count(*) FROM t"))
	r = call(t, "exec", "--autocommit", path, "INSERT INTO t VALUES (1)", "INSERT INTO nowhere VALUES (1)")
	require.Equal(t, exitFinding, r.status)
	require.Equal(t, "count(*)\n1\n", fine(t, "exec", path, "SELECT count(*) FROM t"))
	fine(t, "exec", "--autocommit", path, "VACUUM")
	require.Equal(t, "actor\nalice\n", fine(t, "exec", "--actor", "alice", path, "INSERT INTO t VALUES (2)", "SELECT coop_context('actor') AS actor"))
	require.Equal(t, exitUsage, call(t, "exec", path, " ").status)
	require.Equal(t, exitUsage, callWith(t, "", "exec", path).status)
	require.Equal(t, "x\n-1\n", fine(t, "exec", path, "--", "SELECT -1 AS x"))
	fine(t, "verify", path)
}

func TestExecKeepsTheSettingsOfTheOwner(t *testing.T) {
	path := release(t, "_coop_epoch=off&_coop_tables=-u&_coop_changes=t", "CREATE TABLE t (a INTEGER PRIMARY KEY)", "CREATE TABLE u (a)")
	before := fine(t, "exec", path, "SELECT name, sql FROM sqlite_schema ORDER BY 1")
	settings := fine(t, "exec", path, "SELECT settings FROM coop_owner")
	fine(t, "exec", path, "INSERT INTO t VALUES (1)", "CREATE TABLE v (a)", "DROP TABLE v")
	require.Equal(t, before, fine(t, "exec", path, "SELECT name, sql FROM sqlite_schema ORDER BY 1"))
	require.Equal(t, settings, fine(t, "exec", path, "SELECT settings FROM coop_owner"))
}

func TestBackupBesideTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	own(t, path, "_journal_mode=WAL", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
	dest := filepath.Join(t.TempDir(), "copy.db")
	require.Contains(t, fine(t, "backup", path, dest), "is a copy of "+path)
	require.ErrorContains(t, plain(t, dest, "INSERT INTO t VALUES (2)"), noPermit)
	require.Equal(t, exitUsage, call(t, "backup", path, dest).status, "it exists")
	dest = filepath.Join(t.TempDir(), "plain.db")
	var b backupJSON
	require.NoError(t, json.Unmarshal([]byte(fine(t, "backup", "--plain", "--json", path, dest)), &b))
	require.True(t, b.Plain)
	require.Positive(t, b.Size)
	require.NoError(t, plain(t, dest, "INSERT INTO t VALUES (2)"))
	require.Equal(t, "count(*)\n2\n", fine(t, "exec", dest, "SELECT count(*) FROM t"))
}

func TestLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db := own(t, path, "_journal_mode=WAL")
	m, err := leases.New(db, &leases.Options{Owner: "worker-a"})
	require.NoError(t, err)
	lease, err := m.Acquire(context.Background(), "job", time.Hour, 0)
	require.NoError(t, err)
	out := fine(t, "leases", path)
	require.Contains(t, out, "job\tby worker-a\tepoch 1\t")
	var l leaseJSON
	require.NoError(t, json.Unmarshal([]byte(fine(t, "leases", path, "--json", "--prefix", "j")), &l))
	require.Equal(t, "worker-a", l.Owner)
	require.WithinDuration(t, lease.Info().Expires, l.Expires, time.Second)
	require.Contains(t, fine(t, "leases", path, "--prefix", "k"), "No lease is held")
	require.Equal(t, exitOwned, call(t, "leases", path, "break", "job", "1").status)
	require.NoError(t, db.Close())

	fine(t, "leases", path, "break", "job", "1")
	require.Contains(t, fine(t, "leases", path, "list"), "No lease is held")
	require.Contains(t, fine(t, "leases", path, "raise-epochs", "1000"), "above 1001")
	for _, args := range [][]string{{"break"}, {"break", "job", "one"}, {"raise-epochs", "0"}, {"nonsense"}, {"--table", "nowhere"}} {
		require.Equal(t, exitUsage, call(t, append([]string{"leases", path}, args...)...).status, args)
	}
}

func TestOutbox(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "app.db")
	db := own(t, path, "_journal_mode=WAL")
	o, err := outbox.New(db, nil)
	require.NoError(t, err)
	tx, err := db.Begin()
	require.NoError(t, err)
	require.NoError(t, o.Append(ctx, tx, outbox.Event{Type: "paid", AggregateType: "order", AggregateID: "1"}, outbox.Event{Type: "sent"}))
	require.NoError(t, tx.Commit())
	require.Contains(t, fine(t, "outbox", path), "2 events pending")
	require.Contains(t, fine(t, "outbox", path, "dead"), "No event is dead")

	relay, err := o.Relay(&outbox.RelayOptions{})
	require.NoError(t, err)
	claimed, err := relay.Claim(ctx, 10)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	for _, d := range claimed {
		require.NoError(t, relay.Nack(ctx, d, outbox.Permanent(context.DeadlineExceeded)))
	}
	r := call(t, "outbox", path, "--json")
	require.Equal(t, exitFinding, r.status, "a dead event is a finding")
	var b backlogJSON
	require.NoError(t, json.Unmarshal([]byte(r.out), &b))
	require.EqualValues(t, 2, b.Dead)
	r = call(t, "outbox", path, "dead")
	require.Equal(t, exitFinding, r.status)
	require.Contains(t, r.out, "1\tpaid\torder 1\tafter 1 attempts: context deadline exceeded")
	require.Equal(t, exitOwned, call(t, "outbox", path, "requeue", "1").status)
	require.NoError(t, db.Close())
	require.Equal(t, "1 requeued\n", fine(t, "outbox", path, "requeue", "1"))
	require.Equal(t, "2 discarded\n", fine(t, "outbox", path, "discard", "2"))
	require.Contains(t, fine(t, "outbox", path), "1 events pending")
	require.Equal(t, exitFinding, call(t, "outbox", path, "discard", "99").status)
	require.Equal(t, exitUsage, call(t, "outbox", path, "requeue", "one").status)
	require.Equal(t, exitUsage, call(t, "outbox", path, "--table", "nowhere").status)
}

func TestLongWorkShowsProgressOnATerminalOnly(t *testing.T) {
	path := release(t, "", "CREATE TABLE t (a)", "INSERT INTO t VALUES (zeroblob(8000000))")
	var out, err bytes.Buffer
	s := &session{in: strings.NewReader(""), out: &out, err: &err, terminal: true}
	require.Equal(t, exitFine, run(context.Background(), s, []string{"backup", path, filepath.Join(t.TempDir(), "copy.db")}))
	require.Contains(t, err.String(), " pages")
	require.True(t, strings.HasSuffix(err.String(), "\r\033[K"), "the line is wiped in the end")

	own(t, path, "")
	err.Reset()
	s = &session{in: strings.NewReader(""), out: &out, err: &err, terminal: true}
	require.Equal(t, exitOwned, run(context.Background(), s, []string{"fence", path, "--wait", "50ms"}))
	require.Contains(t, err.String(), "Waiting up to 50ms for stockd")
}

func TestDemoSaysWhichPromiseWasBroken(t *testing.T) {
	var out bytes.Buffer
	d := &demo{s: &session{out: &out}}
	d.row("kept", lands, nil)
	d.row("kept", noPermit, errors.New(noPermit))
	require.Zero(t, d.broken)
	d.row("refused", lands, errors.New(noPermit))
	d.row("let in", noPermit, nil)
	d.row("refused otherwise", noPermit, errors.New(noContext))
	require.Equal(t, 3, d.broken)
	require.Contains(t, out.String(), "BROKEN  let in\n            the write lands\n            promised: "+noPermit)
}
