// Package changes_test: the migration tools on a store that records changes.
// Whatever they do to a table, the feed says which columns there were.
package changes_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	sqlitemigrate "github.com/golang-migrate/migrate/v4/database/sqlite3"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// steps are what each tool does to table items; afterwards it has the columns
// id, title and price.
var steps = []string{
	"CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, junk TEXT)",
	"ALTER TABLE items ADD COLUMN price REAL DEFAULT 1.5",
	"ALTER TABLE items RENAME COLUMN name TO title",
	"ALTER TABLE items DROP COLUMN junk",
}

func open(t *testing.T) (*sql.DB, string) {
	t.Helper()
	path := harness.Path(t)
	return harness.Open(t, harness.DSN(path, "_coop_changes", "*,-items__temp", "_coop_owner", "process")), path
}

// requireRecorded writes to items, and wants the feed to name the columns.
func requireRecorded(t *testing.T, db *sql.DB, path string) {
	t.Helper()
	harness.Exec(t, db, "INSERT INTO items (id, title) VALUES (1, 'x')", "REPLACE INTO items (id, title, price) VALUES (1, 'y', 2)")
	store, err := coopsqlite.StoreOf(db)
	require.NoError(t, err)
	var last []coopsqlite.Change
	for change, err := range store.Changes(t.Context(), 0) {
		require.NoError(t, err)
		if change.Table == "items" {
			last = append(last, change)
		}
	}
	require.GreaterOrEqual(t, len(last), 3)
	last = last[len(last)-3:]
	row := func(title string, price float64) coopsqlite.Row {
		return coopsqlite.Row{{Name: "id", Value: int64(1)}, {Name: "title", Value: title}, {Name: "price", Value: price}}
	}
	require.Equal(t, row("x", 1.5), last[0].New)
	require.Equal(t, row("x", 1.5), last[1].Old)
	require.Equal(t, row("y", 2), last[2].New)
	harness.Guarded(t, db, path)
}

func TestGoose(t *testing.T) {
	db, path := open(t)
	files := fstest.MapFS{}
	for i, step := range steps {
		files["0000"+string(rune('1'+i))+"_step.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + step + ";\n-- +goose Down\nSELECT 1;\n")}
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	require.NoError(t, err)
	_, err = p.Up(t.Context())
	require.NoError(t, err)
	requireRecorded(t, db, path)
}

func TestGolangMigrate(t *testing.T) {
	db, path := open(t)
	files := fstest.MapFS{"1_all.up.sql": {Data: []byte(strings.Join(steps, ";\n"))}}
	src, err := iofs.New(files, ".")
	require.NoError(t, err)
	driver, err := sqlitemigrate.WithInstance(db, &sqlitemigrate.Config{})
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("iofs", src, "sqlite3", driver)
	require.NoError(t, err)
	require.NoError(t, m.Up())
	requireRecorded(t, db, path)
}

// GORM drops a column by rebuilding the table.
func TestGORM(t *testing.T) {
	db, path := open(t)
	g, err := gorm.Open(sqlite.New(sqlite.Config{Conn: db}), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	harness.Exec(t, db, "CREATE TABLE `items` (`id` integer PRIMARY KEY, `name` text, `junk` text)",
		"INSERT INTO items (id, name, junk) VALUES (7, 'kept', 'gone')")
	type Item struct {
		ID    int64 `gorm:"primaryKey"`
		Name  string
		Title string
		Junk  string
		Price float64 `gorm:"default:1.5"`
	}
	require.NoError(t, g.Migrator().AddColumn(&Item{}, "Price"))
	require.NoError(t, g.Migrator().RenameColumn(&Item{}, "name", "title"))
	require.NoError(t, g.Migrator().DropColumn(&Item{}, "Junk"))
	var title string
	require.NoError(t, db.QueryRowContext(context.Background(), "SELECT title FROM items WHERE id = 7").Scan(&title))
	require.Equal(t, "kept", title)
	requireRecorded(t, db, path)
}
