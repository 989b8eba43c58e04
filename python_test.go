package coopsqlite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// startPython starts testdata/coop.py, which speaks the protocol of playRole:
// as an "outsider", with the sqlite3 module and nothing else, or as an "owner".
func startPython(t testing.TB, role, path string) *process {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	return startProcess(t, exec.Command(python, filepath.Join("testdata", "coop.py"), role, path))
}

// shareable is the DSN under which a store is shared with Coop engines in
// other languages: they know the first arm of the fence only.
func shareable(path string) string { return path + "?_coop_epoch=off" }

func TestPythonOwnerAndOursExcludeEachOther(t *testing.T) {
	path := newPath(t)
	python := startPython(t, "owner", path)
	require.Empty(t, python.opened.Err)
	require.Empty(t, python.try("CREATE TABLE IF NOT EXISTS todos (id INTEGER PRIMARY KEY, title)"))
	ours := start(t, roleOwner, shareable(path))
	require.True(t, ours.opened.Conflict, ours.opened.Err)
	require.Contains(t, ours.opened.Err, "a holder that did not leave its name")
	python.stop()

	db := open(t, shareable(path))
	python = startPython(t, "owner", path)
	require.Equal(t, "Another Coop writer owns this store", python.opened.Err)
	require.NoError(t, db.Close())
	require.Empty(t, startPython(t, "owner", path).opened.Err)
}

func TestPythonOwnerBeforeOurs(t *testing.T) {
	path := newPath(t)
	python := startPython(t, "owner", path)
	require.Empty(t, python.opened.Err)
	require.Empty(t, python.try("CREATE TABLE todos (id INTEGER PRIMARY KEY, title)"))
	require.Empty(t, python.try("fence todos"))
	require.Empty(t, python.try("INSERT INTO todos VALUES (1, 'python')"))
	outside := start(t, roleOutsider, path)
	require.Equal(t, noPermit, outside.try("INSERT INTO todos VALUES (0, 'outside')"))
	python.stop()

	db := open(t, shareable(path))
	mustExec(t, db, "INSERT INTO todos VALUES (2, 'go')", "UPDATE todos SET title = upper(title)")
	require.Equal(t, []string{"1", "PYTHON", "2", "GO"}, values(t, db, "SELECT * FROM todos"))
	require.Equal(t, noPermit, outside.try("INSERT INTO todos VALUES (0, 'outside')"))
	require.NoError(t, db.Close())
	requireFenced(t, path, "todos")
}

func TestPythonOwnerAfterOurs(t *testing.T) {
	path := newPath(t)
	db := open(t, shareable(path))
	mustExec(t, db, "CREATE TABLE todos (id INTEGER PRIMARY KEY, title)", "INSERT INTO todos VALUES (1, 'go')")
	require.NoError(t, db.Close())

	python := startPython(t, "owner", path)
	require.Empty(t, python.opened.Err)
	require.Empty(t, python.try("fence todos"), "our fences have the names it would give")
	require.Empty(t, python.try("INSERT INTO todos VALUES (2, 'python')"))
	require.Empty(t, python.try("DELETE FROM todos WHERE id = 1"))
	require.Equal(t, noPermit, start(t, roleOutsider, path).try("INSERT INTO todos VALUES (0, 'outside')"))
	require.Equal(t, "Coop writer fenced", python.try("close and INSERT INTO todos VALUES (3, 'late')"))
	python.stop()

	db = open(t, shareable(path))
	require.Equal(t, []string{"2", "python"}, values(t, db, "SELECT * FROM todos"))
	mustExec(t, db, "INSERT INTO todos VALUES (3, 'go')")
	require.EqualValues(t, 2, storeOf(t, db).Epoch(), "Python knows no epochs")
}

// With the second arm, a Python owner is one who has not taken over.
func TestPythonOwnerNeedsEpochOff(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE todos (id INTEGER PRIMARY KEY, title)")
	require.NoError(t, db.Close())
	python := startPython(t, "owner", path)
	require.Empty(t, python.opened.Err)
	require.Equal(t, "Coop writer superseded", python.try("INSERT INTO todos VALUES (1, 'python')"))
	python.stop()
	require.NoError(t, open(t, shareable(path)).Close(), "which takes the second arm away")
	python = startPython(t, "owner", path)
	require.Empty(t, python.try("INSERT INTO todos VALUES (1, 'python')"))
}

func TestPythonScriptIsStandardLibraryOnly(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("testdata", "coop.py"))
	require.NoError(t, err)
	require.Contains(t, string(source), "import fcntl, json, os, sqlite3, sys\n")
	require.NotContains(t, string(source), "from ")
}
