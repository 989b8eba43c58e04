package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
)

// programEnv makes this test binary the program itself.
const programEnv = "SEATRACE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process is a run of the program that is under way.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out interface{ Bytes() []byte }
	err interface{ String() string }
}

func start(t *testing.T, args ...string) process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1", "GORACE=atexit_sleep_ms=0") // the race detector would let every process sleep a second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	return process{t, cmd, &out, &errs}
}

// status waits for the process to end well, and returns what it said.
func (p process) status() status {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Wait(), p.err.String())
	var s status
	require.NoError(p.t, json.Unmarshal(p.out.Bytes(), &s))
	return s
}

// exitCode waits for the process to end and returns its code.
func (p process) exitCode() int {
	p.t.Helper()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func seatrace(t *testing.T, args ...string) string {
	t.Helper()
	return start(t, args...).status().Status
}

// initialized is the path of a store with seats.
func initialized(t *testing.T, seats ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stock 50% off?.sqlite")
	require.Equal(t, "ready", seatrace(t, append([]string{"init", path}, seats...)...))
	return path
}

// outsider is a connection that knows nothing of this driver.
func outsider(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+url.PathEscape(path)+"?_busy_timeout=10000")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// holds wants, seen from outside, so many seats, reservations and events.
func holds(t *testing.T, path string, seats, reservations, events int) {
	t.Helper()
	db := outsider(t, path)
	for query, want := range map[string]int{
		`SELECT available FROM stock`:       seats,
		`SELECT COUNT(*) FROM reservations`: reservations,
		`SELECT COUNT(*) FROM outbox`:       events,
	} {
		var got int
		require.NoError(t, db.QueryRow(query).Scan(&got))
		require.Equal(t, want, got, query)
	}
}

func TestOfTwoProcessesThatWantTwoOfThreeSeatsOneGetsThem(t *testing.T) {
	for range 10 {
		path := initialized(t)
		a, b := start(t, "reserve", path, "client-1", "2"), start(t, "reserve", path, "client-2", "2")
		require.ElementsMatch(t, []string{"accepted", "insufficient"}, []string{a.status().Status, b.status().Status})
		holds(t, path, 1, 1, 1)
	}
}

func TestOfFourSeatsBothProcessesGetTheirs(t *testing.T) {
	path := initialized(t, "4")
	a, b := start(t, "reserve", path, "client-1", "2"), start(t, "reserve", path, "client-2", "2")
	require.Equal(t, []string{"accepted", "accepted"}, []string{a.status().Status, b.status().Status})
	holds(t, path, 0, 2, 2)
}

func TestRetryInAnotherProcessAfterACrashBehindTheCommitIsReplayed(t *testing.T) {
	path := initialized(t)
	require.Equal(t, crashCode, start(t, "reserve", path, "checkout-7", "2", afterCommit).exitCode())
	holds(t, path, 1, 1, 1)
	require.Equal(t, "replayed", seatrace(t, "reserve", path, "checkout-7", "2"))
	holds(t, path, 1, 1, 1)
}

func TestCrashBeforeTheCommitLeavesNothing(t *testing.T) {
	path := initialized(t)
	require.Equal(t, crashCode, start(t, "reserve", path, "checkout-7", "2", beforeCommit).exitCode())
	holds(t, path, 3, 0, 0)
	require.Equal(t, "accepted", seatrace(t, "reserve", path, "checkout-7", "2"))
	holds(t, path, 1, 1, 1)
}

func TestThirdProcessWithTheSameKeyAndAnotherQuantityIsAConflict(t *testing.T) {
	path := initialized(t)
	require.Equal(t, "accepted", seatrace(t, "reserve", path, "checkout-7", "2"))
	for _, quantity := range []string{"1", "3", "4"} {
		require.Equal(t, "conflict", seatrace(t, "reserve", path, "checkout-7", quantity))
	}
	holds(t, path, 1, 1, 1)
}

func TestRefusedRequestMaySucceedAfterARestock(t *testing.T) {
	path := initialized(t)
	require.Equal(t, "insufficient", seatrace(t, "reserve", path, "late", "4"))
	holds(t, path, 3, 0, 0)
	require.Equal(t, "restocked", seatrace(t, "restock", path, "1"))
	require.Equal(t, "accepted", seatrace(t, "reserve", path, "late", "4"))
	holds(t, path, 0, 1, 1)
}

func TestSameRequestFromManyProcessesIsAcceptedOnce(t *testing.T) {
	path := initialized(t)
	var all []process
	for range 8 {
		all = append(all, start(t, "reserve", path, "checkout-7", "2"))
	}
	count := map[string]int{}
	for _, p := range all {
		count[p.status().Status]++
	}
	require.Equal(t, map[string]int{"accepted": 1, "replayed": 7}, count)
	holds(t, path, 1, 1, 1)
}

func TestOutsiderCannotWriteWhileProcessesShareTheStoreNorAfterwards(t *testing.T) {
	path := initialized(t, "100")
	out := outsider(t, path)
	refused := func() {
		t.Helper()
		for _, write := range []string{`UPDATE stock SET available = 1000`, `DELETE FROM reservations`, `DELETE FROM outbox`} {
			_, err := out.Exec(write)
			require.ErrorContains(t, err, "no such function: coop_write_permit", write)
		}
	}
	var all []process
	for n := range 8 {
		all = append(all, start(t, "reserve", path, fmt.Sprint("client-", n), "2"))
		refused()
	}
	for _, p := range all {
		require.Equal(t, "accepted", p.status().Status)
	}
	refused()
	holds(t, path, 84, 8, 8)
}

func TestContentionIsDecidedByTheStockAndEverybodyGetsAnAnswer(t *testing.T) {
	const rounds, processes, seats = 5, 8, 10
	var waits []float64
	for range rounds {
		path := initialized(t, fmt.Sprint(seats))
		var all []process
		for n := range processes {
			all = append(all, start(t, "reserve", path, fmt.Sprint("client-", n), "3"))
		}
		count := map[string]int{}
		for _, p := range all {
			s := p.status()
			count[s.Status]++
			waits = append(waits, s.Seconds)
		}
		require.Equal(t, map[string]int{"accepted": seats / 3, "insufficient": processes - seats/3}, count)
		holds(t, path, seats%3, seats/3, seats/3)
	}
	slices.Sort(waits)
	t.Logf("a reservation among %d processes took %.1f ms at the median, %.1f ms at most",
		processes, waits[len(waits)/2]*1000, waits[len(waits)-1]*1000)
}

func TestWrongUseIsToldFromFailure(t *testing.T) {
	path := initialized(t)
	for _, args := range [][]string{{}, {"reserve"}, {"reserve", path, "key"}, {"reserve", path, "key", "two"}, {"buy", path}} {
		require.Equal(t, 2, start(t, args...).exitCode(), "%q", args)
	}
	require.Equal(t, 1, start(t, "init", path).exitCode(), "it is there already")
	missing := filepath.Join(t.TempDir(), "missing.sqlite")
	require.Equal(t, 1, start(t, "reserve", missing, "key", "1").exitCode())
	require.NoFileExists(t, missing)
	holds(t, path, 3, 0, 0)
}
