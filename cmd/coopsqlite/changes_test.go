package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

func trackedStore(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	own(t, path, "_journal_mode=WAL&_coop_changes=*&_coop_actor=alice",
		"CREATE TABLE stock(sku TEXT PRIMARY KEY, n, note)", "CREATE TABLE log(x)",
		"INSERT INTO stock VALUES('bolt', 5, NULL)", "UPDATE stock SET n=4, note=x'00ff'", "INSERT INTO log VALUES(char(27)||'[31m')", "DELETE FROM stock")
	return path
}

func TestChangesAreToldToPeople(t *testing.T) {
	path := trackedStore(t)
	lines := strings.Split(fine(t, "changes", path), "\n")
	require.Regexp(t, `^1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}  alice  insert stock sku="bolt"$`, lines[0])
	require.Equal(t, []string{`      sku: "bolt"`, `      n: 5`, `      note: NULL`}, lines[1:4])
	require.Regexp(t, `^2  .*  alice  update stock sku="bolt"$`, lines[4])
	require.Equal(t, []string{`      n: 5 -> 4`, `      note: NULL -> x'00ff'`}, lines[5:7])
	require.Regexp(t, `^3  .*  insert log rowid=1$`, lines[7])
	require.Equal(t, `      x: "\x1b[31m"`, lines[8], "nothing reaches the terminal but text")
	require.Regexp(t, `^4  .*  delete stock sku="bolt"$`, lines[9])
	require.Equal(t, []string{`      sku: "bolt"`, `      n: 4`, `      note: x'00ff'`, ""}, lines[10:])
}

func changesJSON(t *testing.T, args ...string) (seqs []int64) {
	t.Helper()
	for line := range strings.Lines(fine(t, append([]string{"changes", "--json"}, args...)...)) {
		var c coopsqlite.Change
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		seqs = append(seqs, c.Seq)
	}
	return seqs
}

func TestChangesAreChosenByTableNumberAndTime(t *testing.T) {
	path := trackedStore(t)
	require.Equal(t, []int64{1, 2, 3, 4}, changesJSON(t, path))
	require.Equal(t, []int64{1, 2, 4}, changesJSON(t, path, "--table", "Stock"))
	require.Equal(t, []int64{3, 4}, changesJSON(t, path, "--since", "2"))
	require.Equal(t, []int64{1, 2, 3, 4}, changesJSON(t, path, "--since", "24h"))
	require.Equal(t, []int64{1, 2, 3, 4}, changesJSON(t, path, "--since", "2001-02-03"))
	require.Empty(t, changesJSON(t, path, "--since", time.Now().Add(time.Hour).Format(time.RFC3339)))
	require.Equal(t, exitUsage, call(t, "changes", path, "--since", "tomorrow").status)
}

func TestFollowedChangesComeAsTheyAreCommittedUntilInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db := own(t, path, "_journal_mode=WAL&_coop_changes=*", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := commandLine("changes", "--follow", "--json", path)
	context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines, seq := bufio.NewScanner(out), int64(1); seq <= 5; seq++ {
		require.True(t, lines.Scan())
		var c coopsqlite.Change
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		require.Equal(t, seq, c.Seq)
		_, err := db.Exec("INSERT INTO t VALUES(?)", seq)
		require.NoError(t, err)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for buf := make([]byte, 1024); ; {
		if _, err := out.Read(buf); err != nil {
			break
		}
	}
	require.NoError(t, cmd.Wait())
}

func TestAStoreWithoutChangesIsAFailureThatSaysWhy(t *testing.T) {
	path := release(t, "", "CREATE TABLE t(a)")
	r := call(t, "changes", path)
	require.Equal(t, exitFinding, r.status)
	require.Contains(t, r.err, "_coop_changes")
}
