package coopsqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// schemaModel is what a schema should hold: tables, and how many rows each has.
type schemaModel map[string]int

func (m schemaModel) clone() schemaModel {
	c := schemaModel{}
	for name, rows := range m {
		c[name] = rows
	}
	return c
}

func (m schemaModel) names() []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// schemaWalk changes a store at random, as its owner and from outside, and
// knows what must come of it.
type schemaWalk struct {
	*rand.Rand
	t       *testing.T
	path    string
	db      *sql.DB
	outside *sql.DB
	model   schemaModel
	done    []string
}

func (w *schemaWalk) some(m schemaModel) string {
	names := m.names()
	return names[w.IntN(len(names))]
}

// ownName is one that may be taken already.
func (w *schemaWalk) anyName() string { return []string{"a", "b", "c", `d "e"`, "F"}[w.IntN(5)] }

// change returns a random change of the schema or its rows, and applies it to
// the model if it will succeed. It says whether it will.
func (w *schemaWalk) change(m schemaModel) (statements []string, ok bool) {
	name := w.anyName()
	rows, exists := m[name]
	q := quote(name)
	switch w.IntN(12) {
	case 0, 1, 2:
		if !exists {
			m[name] = 0
		}
		return []string{"CREATE TABLE " + q + " (x, y)"}, !exists
	case 3:
		if !exists {
			m[name] = 1
		}
		return []string{"CREATE TABLE " + q + " AS SELECT 1 AS x, 2 AS y"}, !exists
	case 4:
		delete(m, name)
		return []string{"DROP TABLE IF EXISTS " + q}, true
	case 5, 6:
		if exists {
			m[name]++
		}
		return []string{"INSERT INTO " + q + " (x) VALUES (1)"}, exists
	case 7:
		if exists {
			m[name] = 0
		}
		return []string{"DELETE FROM " + q}, exists
	case 8:
		to := w.anyName()
		_, taken := m[to]
		ok := exists && !taken
		if ok {
			delete(m, name)
			m[to] = rows
		}
		return []string{"ALTER TABLE " + q + " RENAME TO " + quote(to)}, ok
	case 9: // rename and recreate
		if !exists || m["old"] != 0 {
			return nil, true
		}
		delete(m, "old")
		m["old"], m[name] = rows, 0
		return []string{"DROP TABLE IF EXISTS old", "ALTER TABLE " + q + " RENAME TO old", "CREATE TABLE " + q + " (x, y)"}, true
	case 10: // the twelve steps
		if !exists {
			return nil, true
		}
		return []string{"CREATE TABLE new_one (x, y, z)", "INSERT INTO new_one (x) SELECT x FROM " + q, "DROP TABLE " + q, "ALTER TABLE new_one RENAME TO " + q}, true
	default:
		return []string{[]string{"DROP TABLE IF EXISTS coop_owner", "DELETE FROM coop_owner", "VACUUM", "ANALYZE", "PRAGMA user_version = 3", "REINDEX",
			"CREATE TEMP TABLE IF NOT EXISTS a (x)", "DROP TABLE IF EXISTS temp.a"}[w.IntN(8)]}, true
	}
}

// run runs statements in one of the ways there are. In a transaction, what
// fails changes nothing by itself; the walk goes on.
func (w *schemaWalk) run() {
	m := w.model.clone()
	ctx := w.t.Context()
	type step struct {
		statement string
		ok        bool
	}
	var steps []step
	for range 1 + w.IntN(4) {
		before := m.clone()
		statements, ok := w.change(m)
		if !ok && len(statements) > 1 {
			m = before
			continue
		}
		for _, s := range statements {
			steps = append(steps, step{s, ok})
		}
	}
	exec := func(run func(string) error, inTx bool) {
		for _, s := range steps {
			if inTx && s.statement == "VACUUM" || strings.Contains(s.statement, "TEMP") || strings.Contains(s.statement, "temp.") {
				continue
			}
			err := run(s.statement)
			if strings.Contains(s.statement, "FROM coop_owner") {
				continue // which is there once a table has been committed
			}
			require.Equal(w.t, s.ok, err == nil, "%s: %v\n%s", s.statement, err, strings.Join(w.done, "\n"))
		}
	}
	way := []string{"autocommit", "commit", "rollback", "raw commit", "raw rollback", "savepoint commit", "savepoint rollback", "Write", "Write rollback", "Bulk", "Bulk rollback", "reopen"}[w.IntN(12)]
	var what []string
	for _, s := range steps {
		what = append(what, s.statement)
	}
	w.done = append(w.done, way+": "+strings.Join(what, "; "))
	keep := !strings.HasSuffix(way, "rollback")
	switch {
	case way == "reopen":
		require.NoError(w.t, w.db.Close())
		w.open()
		return
	case way == "autocommit":
		exec(func(s string) error { _, err := w.db.Exec(s); return err }, false)
	case way == "commit" || way == "rollback":
		tx, err := w.db.Begin()
		require.NoError(w.t, err)
		exec(func(s string) error { _, err := tx.Exec(s); return err }, true)
		if keep {
			require.NoError(w.t, tx.Commit())
		} else {
			require.NoError(w.t, tx.Rollback())
		}
	case strings.HasPrefix(way, "raw") || strings.HasPrefix(way, "savepoint"):
		conn, err := w.db.Conn(ctx)
		require.NoError(w.t, err)
		defer conn.Close()
		run := func(s string) error { _, err := conn.ExecContext(ctx, s); return err }
		begin, commit, rollback := "BEGIN", "COMMIT", "ROLLBACK"
		if strings.HasPrefix(way, "savepoint") {
			begin, commit, rollback = "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s; RELEASE s"
		}
		require.NoError(w.t, run(begin))
		exec(run, true)
		if keep {
			require.NoError(w.t, run(commit))
		} else {
			require.NoError(w.t, run(rollback))
		}
	default:
		fn := func(tx coopsqlite.DBTX) error {
			exec(func(s string) error { _, err := tx.ExecContext(ctx, s); return err }, true)
			if !keep {
				return errNo
			}
			return nil
		}
		store := storeOf(w.t, w.db)
		var err error
		if strings.HasPrefix(way, "Write") {
			err = store.Write(ctx, fn)
		} else {
			err = store.Bulk(ctx, w.model.names()[:w.IntN(len(w.model)+1)], fn)
		}
		require.True(w.t, keep && err == nil || !keep && errors.Is(err, errNo), "%v", err)
	}
	if keep {
		w.model = m
	}
}

// intrude changes the schema from outside. The owner notices with the next
// commit of a transaction.
func (w *schemaWalk) intrude() {
	if len(w.model) == 0 {
		return
	}
	name := w.some(w.model)
	var statement string
	switch w.IntN(4) {
	case 0:
		statement = "DROP TRIGGER IF EXISTS " + quote("coop_fence_"+name+"_insert")
	case 1:
		if _, exists := w.model["outsider"]; exists {
			return
		}
		statement = "CREATE TABLE outsider (x, y)"
		w.model["outsider"] = 0
	case 2:
		statement = "DROP TABLE IF EXISTS coop_owner"
	case 3:
		statement = "DROP TABLE " + quote(name)
		delete(w.model, name)
	}
	w.done = append(w.done, "outside: "+statement)
	mustExec(w.t, w.outside, statement)
	tx, err := w.db.Begin()
	require.NoError(w.t, err, strings.Join(w.done, "\n"))
	mustExec(w.t, tx, "CREATE TABLE IF NOT EXISTS marker (x)", "DELETE FROM marker")
	require.NoError(w.t, tx.Commit())
	w.model["marker"] = 0
}

func (w *schemaWalk) open() {
	w.db = open(w.t, w.path+"?_synchronous=OFF&_coop_watch=0")
}

// check compares the store with the model, from outside.
func (w *schemaWalk) check() {
	log := strings.Join(w.done, "\n")
	require.Empty(w.t, gaps(w.t, w.outside), log)
	for name, rows := range w.model {
		var n int
		require.NoError(w.t, w.outside.QueryRow("SELECT count(*) FROM "+quote(name)).Scan(&n), log)
		require.Equal(w.t, rows, n, "%s\n%s", name, log)
		_, err := w.outside.Exec("INSERT INTO " + quote(name) + " (x) VALUES ('outside')")
		require.EqualError(w.t, err, noPermit, log)
	}
	require.Equal(w.t, fmt.Sprint(len(w.model)), value(w.t, w.outside, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'coop\_%' ESCAPE '\' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`), log)
}

func TestFencesMatchTheModelAfterRandomChanges(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { walkSchema(t, seed) })
	}
}

func FuzzFencesMatchTheModel(f *testing.F) {
	f.Add(uint64(1 << 40))
	f.Fuzz(walkSchema)
}

func walkSchema(t *testing.T, seed uint64) {
	w := &schemaWalk{Rand: rand.New(rand.NewPCG(seed, 7)), t: t, path: newPath(t), model: schemaModel{}}
	w.open()
	w.outside = openPlain(t, "file:"+escapePath(w.path)+"?mode=rw")
	if seed%2 == 0 {
		mustExec(t, w.db, ownTrigger)
	}
	for range 25 {
		if w.IntN(5) == 0 {
			w.intrude()
		} else {
			w.run()
		}
		w.check()
	}
}
