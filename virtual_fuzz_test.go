package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
)

// roleVirtual does what an owner can do to virtual tables, at random: a fence
// in the wrong place ends the process.
const roleVirtual = "virtual"

// virtualKinds are the virtual tables of the fuzz. Those of FTS5 are left out
// where it is not compiled in.
var virtualKinds = []string{
	"fts5(a, b)", "fts5(a, b, columnsize=0)", "fts5(a, b, detail=none)", "fts5(a, b, prefix='1 2', detail=column)",
	"fts5(a, b, content='')", "fts5(a, b, content='', columnsize=0)", "fts5(a, b, content='', contentless_delete=1)",
	"fts5(a, b, content='docs', content_rowid='id')", "fts5(a, b UNINDEXED, tokenize='trigram')",
	"fts4(a, b)", "fts4(a, b, matchinfo='fts3')", "fts4(a, b, content='')", "fts4(a, b, content='docs')", "fts4(a, b, prefix='1')", "fts3(a, b)",
	"rtree(id, x0, x1)", "rtree(id, x0, x1, y0, y1, +a)", "rtree_i32(id, x0, x1)",
}

const (
	virtualTables = 4  // at a time
	virtualRows   = 12 // in each, at most
)

// walker makes random statements. It knows what is in the tables only as far
// as the modules would else be misled.
type walker struct {
	*rand.Rand
	conn  *sql.Conn
	fts5  bool
	kinds map[string]string // of the tables that are there
}

func (w *walker) pick(choices ...string) string { return choices[w.IntN(len(choices))] }

// content is what a row always holds: contentless tables must be told again
// what is deleted.
func content(id int) (a, b string) {
	return fmt.Sprintf("word%d common", id), strings.Repeat(fmt.Sprintf("text%d ", id%3), id*40)
}

// run runs a statement. An error of the fence's own, or of a module that met
// one, is a failure; others are part of the walk.
func (w *walker) run(query string, args ...any) error {
	fmt.Printf("%s; -- %.40q\n", query, fmt.Sprint(args...)) // before it runs, in case it is the last
	_, err := w.conn.ExecContext(context.Background(), query, args...)
	if err == nil {
		return nil
	}
	var e sqlite3.Error
	for _, bad := range []string{"malformed", "SQL logic error", "coop_", "Coop", "corrupt"} {
		if strings.Contains(err.Error(), bad) {
			return err
		}
	}
	if !errors.As(err, &e) {
		return err
	}
	return nil
}

// kindOf tells the module and its peculiarities.
func (w *walker) kindOf(table string) (module string, contentless, external bool) {
	kind := w.kinds[table]
	module, _, _ = strings.Cut(kind, "(")
	return module, strings.Contains(kind, "content=''"), strings.Contains(kind, "content='docs'")
}

func (w *walker) row(table string) error {
	module, contentless, external := w.kindOf(table)
	id := 1 + w.IntN(virtualRows)
	a, b := content(id)
	switch {
	case strings.HasPrefix(module, "rtree"):
		switch w.IntN(4) {
		case 0:
			return w.run("DELETE FROM "+table+" WHERE id = ?", id)
		case 1:
			return w.run("UPDATE "+table+" SET x1 = x1 + 1 WHERE id >= ?", id)
		default:
			columns := strings.Count(w.kinds[table], ",")
			if strings.Contains(w.kinds[table], "+a") {
				columns--
			}
			return w.run(fmt.Sprintf("%s INTO %s (id, x0, x1%s) VALUES (?, ?, ?%s)", w.pick("INSERT", "REPLACE", "INSERT OR IGNORE"), table,
				map[bool]string{true: ", y0, y1"}[columns == 4], map[bool]string{true: ", 1, 2"}[columns == 4]), id, id, id+w.IntN(9))
		}
	case external: // through the triggers of docs
		if w.IntN(3) == 0 {
			return w.run("DELETE FROM docs WHERE id = ?", id)
		}
		if err := w.run("DELETE FROM docs WHERE id = ?", id); err != nil { // REPLACE would not fire the trigger
			return err
		}
		return w.run("INSERT INTO docs VALUES (?, ?, ?)", id, a, b)
	case strings.Contains(w.kinds[table], "contentless_delete") && w.IntN(3) == 0:
		return w.run("DELETE FROM " + table + " WHERE rowid < 500000000")
	case contentless:
		return w.run("INSERT INTO "+table+"(rowid, a, b) VALUES (?, ?, ?)", w.IntN(1<<30), a, b)
	}
	switch w.IntN(5) {
	case 0:
		return w.run("DELETE FROM "+table+" WHERE rowid = ?", id)
	case 1:
		return w.run("UPDATE "+table+" SET a = ? WHERE rowid = ?", a, id)
	case 2:
		return w.run("INSERT INTO " + table + " SELECT a, b FROM docs")
	case 3:
		return w.run("DELETE FROM " + table)
	default:
		return w.run("INSERT OR REPLACE INTO "+table+"(rowid, a, b) VALUES (?, ?, ?)", id, a, b)
	}
}

// command is one of the modules' own.
func (w *walker) command(table string) error {
	module, contentless, external := w.kindOf(table)
	insert := "INSERT INTO " + table + "(" + table
	switch {
	case module == "fts5":
		if contentless && w.IntN(2) == 0 {
			return w.run(insert + ") VALUES ('delete-all')")
		}
		return w.run(insert + w.pick(
			") VALUES ('optimize')", ") VALUES ('rebuild')", ") VALUES ('integrity-check')", ", rank) VALUES ('automerge', 2)",
			", rank) VALUES ('merge', 16)", ", rank) VALUES ('merge', -16)", ", rank) VALUES ('crisismerge', 2)", ", rank) VALUES ('usermerge', 2)",
			", rank) VALUES ('pgsz', 64)", ", rank) VALUES ('rank', 'bm25(10.0, 5.0)')", ", rank) VALUES ('secure-delete', 1)",
			", rank) VALUES ('hashsize', 1024)"))
	case strings.HasPrefix(module, "fts"):
		if external || contentless {
			return w.run(insert + w.pick(") VALUES ('optimize')", ") VALUES ('merge=8,2')"))
		}
		return w.run(insert + w.pick(") VALUES ('optimize')", ") VALUES ('rebuild')", ") VALUES ('integrity-check')", ") VALUES ('merge=8,2')", ") VALUES ('automerge=2')"))
	}
	return w.run("SELECT rtreecheck(?)", table)
}

func (w *walker) create() error {
	table := fmt.Sprint("v", w.IntN(virtualTables))
	kind := virtualKinds[w.IntN(len(virtualKinds))]
	if w.kinds[table] != "" || strings.HasPrefix(kind, "fts5") && !w.fts5 {
		return nil
	}
	_, external, _ := strings.Cut(kind, "'docs'")
	if err := w.run("CREATE VIRTUAL TABLE " + table + " USING " + kind); err != nil {
		return err
	}
	w.kinds[table] = kind
	if external == "" {
		return nil
	}
	del := "DELETE FROM " + table + " WHERE docid = old.id;"
	if strings.HasPrefix(kind, "fts5") {
		del = "INSERT INTO " + table + "(" + table + ", rowid, a, b) VALUES ('delete', old.id, old.a, old.b);"
	}
	id := map[bool]string{true: "rowid", false: "docid"}[strings.HasPrefix(kind, "fts5")]
	for _, s := range []string{
		"DELETE FROM docs",
		"CREATE TRIGGER " + table + "_bd BEFORE DELETE ON docs BEGIN " + del + " END",
		"CREATE TRIGGER " + table + "_ai AFTER INSERT ON docs BEGIN INSERT INTO " + table + "(" + id + ", a, b) VALUES (new.id, new.a, new.b); END",
	} {
		if err := w.run(s); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) drop(table string) error {
	_, _, external := w.kindOf(table)
	if external {
		for _, s := range []string{"DROP TRIGGER " + table + "_bd", "DROP TRIGGER " + table + "_ai"} {
			if err := w.run(s); err != nil {
				return err
			}
		}
	}
	return w.run("DROP TABLE " + table)
}

// renameAndBack renames a table; with external content the triggers would lose
// it, so it comes back at once.
func (w *walker) renameAndBack(table string) error {
	if err := w.run("ALTER TABLE " + table + " RENAME TO other"); err != nil {
		return err
	}
	return w.run("ALTER TABLE other RENAME TO " + table)
}

// refresh asks what is there, since a rollback may have changed it.
func (w *walker) refresh() error {
	rows, err := w.conn.QueryContext(context.Background(), "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND rootpage = 0")
	if err != nil {
		return err
	}
	defer rows.Close()
	w.kinds = map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		_, kind, _ := strings.Cut(text, " USING ")
		w.kinds[name] = kind
	}
	return rows.Err()
}

func (w *walker) step() error {
	if w.IntN(6) == 0 || len(w.kinds) == 0 {
		return w.create()
	}
	tables := make([]string, 0, len(w.kinds))
	for i := range virtualTables {
		if name := fmt.Sprint("v", i); w.kinds[name] != "" {
			tables = append(tables, name)
		}
	}
	if len(tables) == 0 {
		return nil
	}
	table := tables[w.IntN(len(tables))]
	switch n := w.IntN(100); {
	case n < 40:
		return w.row(table)
	case n < 55:
		return w.command(table)
	case n < 60:
		return w.run("INSERT INTO plain (a) VALUES (1)")
	case n < 63:
		return w.run(w.pick("CREATE TABLE IF NOT EXISTS extra (a)", "DROP TABLE IF EXISTS extra", "ALTER TABLE plain ADD COLUMN c"+fmt.Sprint(w.IntN(1000))))
	case n < 66:
		return w.drop(table)
	case n < 69:
		return w.renameAndBack(table)
	case n < 72:
		return w.run("SELECT count(*) FROM "+table+" WHERE "+table+" MATCH ?", "common")
	case n < 80:
		return w.run(w.pick("BEGIN", "BEGIN IMMEDIATE"))
	case n < 88:
		return w.run("SAVEPOINT s" + strconv.Itoa(w.IntN(3)))
	case n < 92:
		return w.run("RELEASE s" + strconv.Itoa(w.IntN(3)))
	case n < 94:
		return w.run("ROLLBACK TO s" + strconv.Itoa(w.IntN(3)))
	case n < 96:
		return w.run("ROLLBACK")
	default:
		return w.run("COMMIT")
	}
}

// playVirtual walks and then checks that all is whole.
func playVirtual(dsn string) {
	at := strings.LastIndexByte(dsn, '#')
	seed, err := strconv.ParseUint(dsn[at+1:], 10, 64)
	if err == nil {
		err = walkVirtual(dsn[:at], seed)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func walkVirtual(path string, seed uint64) error {
	db, err := sql.Open("coopsqlite", path+"?_coop_virtual=on&_synchronous=OFF&_coop_watch=0")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE plain (a); CREATE TABLE docs (id INTEGER PRIMARY KEY, a, b)"); err != nil {
		return err
	}
	if seed%4 != 0 { // the fences run for the owner too
		if _, err := db.Exec(ownTrigger); err != nil {
			return err
		}
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	w := &walker{Rand: rand.New(rand.NewPCG(seed, 1)), conn: conn, kinds: map[string]string{}}
	_, err = conn.ExecContext(context.Background(), "CREATE VIRTUAL TABLE probe USING fts5(a)")
	w.fts5 = err == nil
	if _, err := conn.ExecContext(context.Background(), "DROP TABLE IF EXISTS probe"); err != nil {
		return err
	}
	for range 150 {
		if err := w.step(); err != nil {
			return err
		}
		if err := w.refresh(); err != nil {
			return err
		}
	}
	if err := w.run("COMMIT"); err != nil {
		return err
	}
	var result string
	if err := conn.QueryRowContext(context.Background(), "PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		return errors.Join(err, errors.New(result))
	}
	return nil
}

func TestVirtualTablesUnderTheFenceNeverCrash(t *testing.T) {
	walks := 25
	if testing.Short() {
		walks = 5
	}
	for seed := range walks {
		walkInProcess(t, uint64(seed))
	}
}

func FuzzVirtualTables(f *testing.F) {
	f.Add(uint64(1000))
	f.Fuzz(func(t *testing.T, seed uint64) { walkInProcess(t, seed) })
}

// walkInProcess runs one walk in a process of its own.
func walkInProcess(t *testing.T, seed uint64) {
	t.Helper()
	cmd := roleCommand(roleVirtual, fmt.Sprint(newPath(t), "#", seed))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "seed %d: %s", seed, out)
}
