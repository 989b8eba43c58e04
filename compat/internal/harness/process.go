package harness

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3" // the outsider's driver
	"github.com/stretchr/testify/require"
)

// A test binary that finds this variable set is not a test but another
// process: "write" is an outsider, "own" holds a store.
const (
	roleVariable = "COMPAT_ROLE"
	roleWrite    = "write"
	roleOwn      = "own"
)

// patience bounds the life of another process; it is only reached by a failure.
const patience = time.Minute

const refusal = "no such function: coop_write_permit"

// Main runs the tests, or the other process that a test has started. Each
// package's TestMain calls it.
func Main(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case roleWrite:
		os.Exit(exitCode(answerOutside()))
	case roleOwn:
		os.Exit(exitCode(own(os.Args[1])))
	}
	os.Exit(m.Run())
}

func exitCode(err error) int {
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func command(ctx context.Context, role, dsn string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], dsn)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

// OutsiderIsRefused lets processes of which none is the owner try to write to
// every table of the store: this test binary with plain mattn/go-sqlite3, and
// the sqlite3 shell where there is one.
func OutsiderIsRefused(t testing.TB, path string) {
	t.Helper()
	ask, err := outsider()
	require.NoError(t, err)
	statements, err := ask(path)
	require.NoError(t, err)

	shell, err := exec.LookPath("sqlite3")
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, statement := range statements {
		if strings.HasPrefix(statement, "INSERT") {
			continue // a shell of an older version may not know a column's default
		}
		cmd := exec.CommandContext(ctx, shell, "-batch", "-cmd", ".timeout 10000", path, statement)
		answer, err := cmd.CombinedOutput()
		require.Error(t, err, "the sqlite3 shell could run %s", statement)
		require.Contains(t, string(answer), refusal, statement)
	}
}

// outsider starts the process that tries to write, one for all tests of a
// binary: with the race detector it takes a second to start. The function it
// returns has the outsider try a store, and returns the statements that were
// refused as they should be.
var outsider = sync.OnceValues(func() (func(path string) ([]string, error), error) {
	cmd := command(context.Background(), roleWrite, "")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil { // it ends with its input, which ends with us
		return nil, err
	}
	answers := bufio.NewScanner(stdout)
	var mu sync.Mutex
	return func(path string) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Fprintln(stdin, path); err != nil {
			return nil, err
		}
		var statements []string
		for answers.Scan() {
			switch kind, text, _ := strings.Cut(answers.Text(), " "); kind {
			case "refused":
				statements = append(statements, text)
			case "failed":
				return nil, errors.New(text)
			case "done":
				return statements, nil
			}
		}
		return nil, fmt.Errorf("the outside process ended: %v", answers.Err())
	}, nil
})

// answerOutside is the outsider's process: it reads paths and answers with the
// statements that were refused, and how it went.
func answerOutside() error {
	paths := bufio.NewScanner(os.Stdin)
	for paths.Scan() {
		if err := tryWrites(paths.Text()); err != nil {
			fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("done")
		}
	}
	return paths.Err()
}

func tryWrites(path string) error {
	db, err := sql.Open("sqlite3", "file:"+path+"?_busy_timeout=10000")
	if err != nil {
		return err
	}
	defer db.Close()
	statements, err := writes(db)
	if err != nil {
		return err
	}
	if len(statements) == 0 {
		return fmt.Errorf("the store %s has no table", path)
	}
	for _, s := range statements {
		if _, err := db.Exec(s); err == nil || err.Error() != refusal {
			return fmt.Errorf("an outside process ran %s: want %q, got %v", s, refusal, err)
		}
		fmt.Println("refused", s)
	}
	return nil
}

// writes returns an INSERT, an UPDATE and a DELETE for each ordinary table.
func writes(db *sql.DB) ([]string, error) {
	rows, err := db.Query(`
		SELECT t.name, (SELECT name FROM pragma_table_info(t.name) ORDER BY cid LIMIT 1)
		FROM pragma_table_list AS t
		WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		table, column = quote(table), quote(column)
		statements = append(statements,
			"INSERT INTO "+table+" DEFAULT VALUES",
			"UPDATE "+table+" SET "+column+" = "+column,
			"DELETE FROM "+table)
	}
	return statements, rows.Err()
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// AnotherOwner starts a process that owns the store until the returned
// function is called, or the test ends.
func AnotherOwner(t testing.TB, dsn string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := command(ctx, roleOwn, dsn)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())

	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			stdin.Close()
			cmd.Wait()
			cancel()
		}
	}
	t.Cleanup(stop)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "owned\n", line)
	return stop
}

// own is the other owner: it says so and then waits for the end of its input.
func own(dsn string) error {
	db, err := sql.Open(Driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Ping(); err != nil {
		return err
	}
	fmt.Println("owned")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
