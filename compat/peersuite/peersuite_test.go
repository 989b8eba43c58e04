// Package peersuite_test runs the tests of mattn/go-sqlite3 itself, as they
// lie in the module cache, through the driver coopsqlite: what passes there
// has to pass here.
package peersuite_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/coopsqlite/coopsqlite" // a result in the test cache ends with the driver it was for
)

// tags switch on parts of SQLite that have tests of their own.
const tags = "sqlite_fts5 sqlite_math_functions sqlite_vtable sqlite_preupdate_hook sqlite_column_metadata"

// leastTests guards against a suite that shrinks to nothing without a word.
const leastTests = 100

func TestWhatPassesOnMattnPassesHere(t *testing.T) {
	if testing.Short() {
		t.Skip("builds SQLite with other options, which takes a minute")
	}
	binary := build(t, t.TempDir())
	mattn, _ := run(t, binary, "sqlite3")
	ours, output := run(t, binary, "coopsqlite")

	passed := 0
	var differ []string
	for name, result := range mattn {
		if result != "PASS" {
			continue
		}
		passed++
		if ours[name] != "PASS" {
			differ = append(differ, name)
		}
	}
	require.GreaterOrEqual(t, passed, leastTests, "too few of mattn's tests ran")
	slices.Sort(differ)

	reasons := reasons(t)
	for _, name := range differ {
		if _, ok := reasons[name]; !ok {
			t.Errorf("%s passes on mattn/go-sqlite3 and not here (%q)", name, ours[name])
		}
	}
	for name := range reasons {
		if !slices.Contains(differ, name) {
			t.Errorf("%s is listed in peersuite.known but passes", name)
		}
	}
	if t.Failed() {
		t.Logf("%s", output)
	}
	t.Logf("%d tests pass on mattn/go-sqlite3, %d of them here, %d differ for a known reason", passed, passed-len(differ), len(reasons))
}

// reasons reads peersuite.known: a name and, after it, why its result differs.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	known, err := os.ReadFile(filepath.Join("..", "peersuite.known"))
	require.NoError(t, err)
	found := map[string]string{}
	for line := range strings.Lines(string(known)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, _ := strings.Cut(line, " ")
		require.NotEmpty(t, strings.TrimSpace(reason), "%s has no reason", name)
		found[name] = reason
	}
	return found
}

var (
	resultLine = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	startLine  = regexp.MustCompile(`(?m)^=== RUN   ([^/\s]+)$`)
)

// run lets the suite run on the driver of that name and returns the result of
// every test, and what it printed. A test that ends the process counts as
// failed, and the rest of the suite runs without it.
func run(t *testing.T, binary, driver string) (map[string]string, string) {
	t.Helper()
	results := map[string]string{}
	var printed strings.Builder
	var done []string
	for {
		cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.timeout=300s",
			"-test.skip=^("+strings.Join(done, "|")+")$")
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), driverVariable+"="+driver, "TMPDIR="+t.TempDir())
		output, err := cmd.CombinedOutput()
		printed.Write(output)
		var failed *exec.ExitError
		if err != nil {
			require.ErrorAs(t, err, &failed, "%s", output)
		}
		started := len(done)
		for _, m := range startLine.FindAllStringSubmatch(string(output), -1) {
			done = append(done, m[1])
			results[m[1]] = "FAIL"
		}
		for _, m := range resultLine.FindAllStringSubmatch(string(output), -1) {
			results[m[2]] = m[1]
		}
		if !strings.Contains(string(output), "\npanic: ") && !strings.Contains(string(output), "\nfatal error: ") || len(done) == started {
			return results, printed.String()
		}
	}
}

// build compiles mattn's tests into a binary, as a package that lies in a
// folder of this module for the compiler only. What needs unexported names of
// mattn's package does not compile and is left out.
func build(t *testing.T, dir string) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	files := rewriteSuite(t, mattnDir(t))
	binary := filepath.Join(dir, "suite.test")
	for range 20 {
		overlay := writeOverlay(t, dir, filepath.Join(here, "suite"), files)
		cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-gcflags=-e", "-tags", tags, "-overlay", overlay, "-o", binary, "./suite")
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		err := cmd.Run()
		if err == nil {
			return binary
		}
		require.True(t, dropWhatDoesNotCompile(t, files, output.String()), "%s", output.String())
	}
	t.Fatal("mattn's tests do not compile")
	return ""
}

func mattnDir(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/mattn/go-sqlite3").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(dir))
}
