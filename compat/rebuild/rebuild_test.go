// Package rebuild_test: what schema tools make of a changed table, as plain
// SQL. SQLite can alter little, so they build a second table, copy the rows,
// drop the first and rename; whatever hung on the first goes with it.
package rebuild_test

import (
	"context"
	"database/sql"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var before = []string{
	"CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)",
	"CREATE TABLE posts (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE, title TEXT)",
	"CREATE INDEX users_name ON users (name)",
	"CREATE TRIGGER posts_titled AFTER INSERT ON posts WHEN new.title IS NULL BEGIN UPDATE posts SET title = 'untitled; for now' WHERE id = new.id; END",
	"INSERT INTO users VALUES (1, 'ada'), (2, 'bob')",
	"INSERT INTO posts (user_id) VALUES (1), (1), (2)",
}

// scripts all leave users with a column email and the rows it had.
var scripts = map[string][]string{
	"new table takes the old name": {
		"PRAGMA foreign_keys = off",
		"CREATE TABLE `new_users` (`id` integer NULL PRIMARY KEY, `name` text NOT NULL, `email` text NULL)",
		"INSERT INTO `new_users` (`id`, `name`) SELECT `id`, `name` FROM `users`",
		"DROP TABLE `users`",
		"ALTER TABLE `new_users` RENAME TO `users`",
		"CREATE INDEX `users_name` ON `users` (`name`)",
		"PRAGMA foreign_keys = on",
	},
	"old table steps aside first": {
		"PRAGMA foreign_keys = off",
		"PRAGMA legacy_alter_table = on",
		"ALTER TABLE users RENAME TO _users_old",
		"CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT)",
		"INSERT INTO users (id, name) SELECT id, name FROM _users_old",
		"DROP TABLE _users_old",
		"PRAGMA legacy_alter_table = off",
		"PRAGMA foreign_keys = on",
	},
	"old table stays as a backup": {
		"PRAGMA foreign_keys = off",
		"PRAGMA legacy_alter_table = on",
		"ALTER TABLE users RENAME TO users_backup",
		"CREATE TABLE users AS SELECT id, name, NULL AS email FROM users_backup",
		"CREATE UNIQUE INDEX users_id ON users (id)",
		"PRAGMA legacy_alter_table = off",
		"PRAGMA foreign_keys = on",
	},
	"twelve steps in a transaction": {
		"CREATE VIEW authors AS SELECT name FROM users",
		"PRAGMA foreign_keys = off",
		"BEGIN",
		"CREATE TABLE users_new (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT) STRICT",
		"INSERT INTO users_new (id, name) SELECT id, name FROM users",
		"DROP VIEW authors",
		"DROP TABLE users",
		"ALTER TABLE users_new RENAME TO users",
		"CREATE VIEW authors AS SELECT name, email FROM users",
		"PRAGMA foreign_key_check",
		"COMMIT",
		"PRAGMA foreign_keys = on",
	},
	"deferred keys and a savepoint": {
		"BEGIN IMMEDIATE",
		"PRAGMA defer_foreign_keys = on",
		"SAVEPOINT rebuild",
		"CREATE TABLE users_new (id INTEGER PRIMARY KEY, name TEXT)",
		"ROLLBACK TO rebuild",
		"CREATE TABLE users_new (id INTEGER PRIMARY KEY, name TEXT, email TEXT)",
		"INSERT INTO users_new (id, name) SELECT id, name FROM users",
		"CREATE TEMP TABLE kept AS SELECT * FROM posts",
		"DROP TABLE users",
		"ALTER TABLE users_new RENAME TO users",
		"INSERT OR IGNORE INTO posts SELECT * FROM kept",
		"RELEASE rebuild",
		"COMMIT",
	},
	"columns in place": {
		"ALTER TABLE users ADD COLUMN mail TEXT",
		"ALTER TABLE users RENAME COLUMN mail TO email",
		"ALTER TABLE users ADD COLUMN scratch INT",
		"ALTER TABLE users DROP COLUMN scratch",
	},
}

// ways are how tools hand a script to the driver.
var ways = map[string]func(t *testing.T, conn *sql.Conn, script []string){
	"one statement at a time": func(t *testing.T, conn *sql.Conn, script []string) {
		for _, statement := range script {
			_, err := conn.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
	},
	"the whole script": func(t *testing.T, conn *sql.Conn, script []string) {
		all := ""
		for _, statement := range script {
			all += statement + ";\n-- next; step\n"
		}
		_, err := conn.ExecContext(t.Context(), all)
		require.NoError(t, err)
	},
	"prepared": func(t *testing.T, conn *sql.Conn, script []string) {
		for _, statement := range script {
			prepared, err := conn.PrepareContext(t.Context(), statement)
			require.NoError(t, err, statement)
			_, err = prepared.Exec()
			require.NoError(t, err, statement)
			require.NoError(t, prepared.Close())
		}
	},
}

func TestRebuildLeavesEveryTableFencedAndEveryRowInPlace(t *testing.T) {
	for scriptName, script := range scripts {
		for wayName, run := range ways {
			for _, changes := range []string{"off", "*"} {
				t.Run(scriptName+"/"+wayName+"/changes "+changes, func(t *testing.T) {
					path := harness.Path(t)
					db := harness.Open(t, harness.DSN(path, "_coop_changes", changes))
					harness.Exec(t, db, before...)
					conn, err := db.Conn(t.Context())
					require.NoError(t, err)
					run(t, conn, script)
					require.NoError(t, conn.Close())
					requireWhole(t, db)
					harness.Guarded(t, db, path)
				})
			}
		}
	}
}

// requireWhole writes to the rebuilt tables and looks at what is in them.
func requireWhole(t *testing.T, db *sql.DB) {
	t.Helper()
	harness.Exec(t, db,
		"INSERT INTO users (name, email) VALUES ('eve', 'e@example.org')",
		"UPDATE users SET name = 'EVE' WHERE email IS NOT NULL",
		"INSERT INTO posts (user_id) VALUES (2)",
		"DELETE FROM posts WHERE user_id = 2")
	var names, titles string
	require.NoError(t, db.QueryRow("SELECT group_concat(name) FROM (SELECT name FROM users ORDER BY rowid)").Scan(&names))
	require.Equal(t, "ada,bob,EVE", names)
	require.NoError(t, db.QueryRow("SELECT group_concat(title, '|') FROM posts").Scan(&titles))
	require.Equal(t, "untitled; for now|untitled; for now", titles)
}

func TestRebuildThatIsRolledBackLeavesTheOldTableFenced(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	harness.Exec(t, db, before...)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for _, statement := range []string{
		"ALTER TABLE users RENAME TO users_old",
		"CREATE TABLE users (id INTEGER PRIMARY KEY)",
		"INSERT INTO users SELECT id FROM users_old",
	} {
		_, err := tx.Exec(statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, tx.Rollback())
	var n int
	require.NoError(t, db.QueryRow("SELECT count(name) FROM users").Scan(&n))
	require.Equal(t, 2, n)
	harness.Guarded(t, db, path)
}

// Whatever a user renames or drops, the driver's own triggers do not stand in
// the way, with change tracking on neither.
func TestRenamesAndDropsOfAnythingWork(t *testing.T) {
	for _, changes := range []string{"off", "*"} {
		t.Run("changes "+changes, func(t *testing.T) {
			path := harness.Path(t)
			db := harness.Open(t, harness.DSN(path, "_coop_changes", changes))
			harness.Exec(t, db, before...)
			harness.Exec(t, db,
				"CREATE TABLE tags (name TEXT PRIMARY KEY, color TEXT, weight REAL) WITHOUT ROWID",
				"CREATE VIEW titles AS SELECT title FROM posts",
				"INSERT INTO tags VALUES ('go', 'blue', 1)",
				"ALTER TABLE tags RENAME COLUMN name TO label",
				"ALTER TABLE tags DROP COLUMN color",
				"ALTER TABLE tags RENAME TO labels",
				`ALTER TABLE labels RENAME COLUMN label TO "odd ""name; here"`,
				`ALTER TABLE labels RENAME TO "order; by"`,
				`UPDATE "order; by" SET weight = 2`,
				"DROP TRIGGER posts_titled",
				"DROP INDEX users_name",
				"ALTER TABLE posts RENAME COLUMN title TO heading",
				"DROP VIEW titles",
				"PRAGMA foreign_keys = off",
				"DROP TABLE users",
				"ALTER TABLE posts RENAME TO users",
				"INSERT INTO users (user_id, heading) VALUES (7, 'seven')",
				"DELETE FROM users WHERE user_id < 3",
			)
			var heading string
			require.NoError(t, db.QueryRow("SELECT heading FROM users").Scan(&heading))
			require.Equal(t, "seven", heading)
			harness.Guarded(t, db, path)
		})
	}
}

// A dump has its triggers with semicolons inside, and is loaded in one go.
func TestDumpOfAnOrdinaryFileIsLoadedWhole(t *testing.T) {
	shell, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("needs the sqlite3 shell")
	}
	ordinary := harness.Path(t)
	source, err := sql.Open("sqlite3", ordinary)
	require.NoError(t, err)
	defer source.Close()
	harness.Exec(t, source, before...)
	dump, err := exec.CommandContext(t.Context(), shell, ordinary, ".dump").Output()
	require.NoError(t, err)

	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	_, err = db.ExecContext(context.WithoutCancel(t.Context()), string(dump))
	require.NoError(t, err)
	harness.Exec(t, db, "INSERT INTO posts (user_id) VALUES (2)")
	var titles int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM posts WHERE title = 'untitled; for now'").Scan(&titles))
	require.Equal(t, 4, titles)
	harness.Guarded(t, db, path)
}
