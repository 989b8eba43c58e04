package coopsqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// newConnection makes the pool open a file once more, and returns the file.
func newConnection(t *testing.T, db *sql.DB) (file string) {
	t.Helper()
	for range 2 { // one may have been parked
		c, err := db.Conn(context.Background())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.QueryRowContext(context.Background(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file))
	}
	return file
}

func TestEveryConnectionOpensTheFileThatIsOwned(t *testing.T) {
	for name, dsn := range map[string]string{"a name": "app.db", "a URI": "file:app.db?cache=private"} {
		t.Run("the working directory changes/"+name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			t.Chdir(dir)
			db := open(t, dsn)
			mustExec(t, db, "CREATE TABLE t(v)")
			t.Chdir(elsewhere)
			require.Equal(t, filepath.Join(dir, "app.db"), newConnection(t, db))
			require.Empty(t, entries(t, elsewhere))
		})
	}
	t.Run("a link changes", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "what?", "100%#")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		links := t.TempDir()
		link := filepath.Join(links, "current.db")
		require.NoError(t, os.Symlink(filepath.Join(dir, "one.db"), link))
		db := open(t, link)
		mustExec(t, db, "CREATE TABLE t(v)")
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Symlink(filepath.Join(links, "two.db"), link))
		require.Equal(t, filepath.Join(dir, "one.db"), newConnection(t, db))
		require.NoFileExists(t, filepath.Join(links, "two.db"))
	})
}

func TestReaderBehindAPlainNameMakesNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, params := range []string{"?mode=ro", "?immutable=1"} {
		require.Error(t, open(t, filepath.Join(dir, "app.db")+params).Ping(), params)
		require.Empty(t, entries(t, dir))
	}
}
