package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coopsqlite/coopsqlite"
)

// The demo plays every row of the table in the README on a real store, with
// real other processes, and prints what they are told.

// demo is one performance.
type demo struct {
	s      *session
	path   string
	owner  *sql.DB
	broken int // rows that did not come out as promised
}

// demoJSON is one row of demo --json.
type demoJSON struct {
	Who      string `json:"who"`
	Promised string `json:"promised"`
	Got      string `json:"got"`
	OK       bool   `json:"ok"`
}

// Promises that there is no error. All others are how the error begins.
const (
	lands     = "the write lands"
	untouched = "untouched"
)

func runDemo(ctx context.Context, s *session) error {
	flags := s.flags()
	keep := flags.Bool("keep", false, "leave the store behind, to look at it")
	if _, err := s.parse(flags, 0, 0); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "coopsqlite-demo-")
	if err != nil {
		return err
	}
	if !*keep {
		defer os.RemoveAll(dir)
	}
	d := &demo{s: s, path: filepath.Join(dir, "app.db")}
	began := time.Now()
	if err := d.play(ctx); err != nil {
		return err
	}
	if d.broken > 0 {
		s.printf("\n%d rows did not come out as promised.\n", d.broken)
		return errFinding
	}
	s.printf("\nEvery row came out as promised, in %s.\n", time.Since(began).Round(time.Millisecond))
	if *keep {
		s.printf("The store is %s.\n", d.path)
	}
	return nil
}

func (d *demo) play(ctx context.Context) error {
	d.s.printf("The store is %s. The owner is this process, pid %d;\nall others are processes of their own.\n\n", d.path, os.Getpid())
	early, err := d.prepare(ctx)
	if err != nil {
		return err
	}
	defer early.stop()

	d.owner, err = sql.Open("coopsqlite", d.path+"?_coop_app=demo&_coop_watch=0")
	if err != nil {
		return err
	}
	defer func() { d.owner.Close() }()
	if err := d.running(ctx, early); err != nil {
		return err
	}
	if err := d.takenOver(ctx); err != nil {
		return err
	}
	return d.closing(ctx)
}

// prepare makes an ordinary store, and an outsider whose connection is open
// before there is a fence.
func (d *demo) prepare(ctx context.Context) (early *process, err error) {
	plain, err := sql.Open("sqlite3", d.path)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	if _, err := plain.ExecContext(ctx, "CREATE TABLE todos (id INTEGER PRIMARY KEY, title TEXT)"); err != nil {
		return nil, err
	}
	if early, err = d.start(ctx, roleOutsider); err != nil {
		return nil, err
	}
	return early, early.ask("SELECT * FROM todos")
}

// running shows who gets what while the owner runs.
func (d *demo) running(ctx context.Context, early *process) error {
	_, err := d.owner.ExecContext(ctx, "INSERT INTO todos VALUES (1, 'written by the owner')")
	d.row("the owner, running", lands, err)

	second, err := d.start(ctx, roleOwner)
	if err == nil {
		second.stop()
	}
	d.row("a second owner", coopsqlite.ErrConflict.Error(), err)

	const write = "INSERT INTO todos (title) VALUES ('written from outside')"
	d.row("an outside connection that was open before the fence", noPermit, early.ask(write))
	for _, p := range []struct{ who, role, promised string }{
		{"an outside connection opened now", roleOutsider, noPermit},
		{"an outside connection that forges the permit alone", roleForger, noContext},
	} {
		other, err := d.start(ctx, p.role)
		if err != nil {
			return err
		}
		d.row(p.who, p.promised, other.ask(write))
		other.stop()
	}
	for _, tool := range tools(d.path, write) {
		d.row(tool.who, noPermit, tool.run(ctx))
	}
	d.row("anyone reading", untouched, early.ask("SELECT * FROM todos"))
	return d.count(ctx, 1)
}

// takenOver shows the second arm of the fence: the lock fails, as it does when
// somebody deletes its file, and another owner comes in.
func (d *demo) takenOver(ctx context.Context) error {
	if err := os.Remove(d.path + ".engine.lock"); err != nil {
		return err
	}
	newer, err := d.start(ctx, roleOwner)
	if err != nil {
		return err
	}
	defer newer.stop()
	_, err = d.owner.ExecContext(ctx, "INSERT INTO todos (title) VALUES ('written by the older owner')")
	d.row("an owner that was taken over, its lock file having been deleted", coopsqlite.ErrSuperseded.Error(), err)
	_, err = d.owner.ExecContext(ctx, "DROP TABLE todos")
	d.row("the same owner, changing the schema", coopsqlite.ErrSuperseded.Error(), err)
	d.row("the owner that took over", lands, newer.ask("INSERT INTO todos (title) VALUES ('written by the newer owner')"))
	return d.count(ctx, 2)
}

// closing shows what is left to an owner that was closed.
func (d *demo) closing(ctx context.Context) error {
	d.owner.Close()
	connector, err := coopsqlite.NewConnector(d.path+"?_coop_wait=10s", nil)
	if err != nil {
		return err
	}
	d.owner = sql.OpenDB(connector)
	tx, err := d.owner.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	d.owner.Close()
	_, err = tx.ExecContext(ctx, "INSERT INTO todos (title) VALUES ('written after close')")
	d.row("the owner's own connection after close", coopsqlite.ErrFenced.Error(), err)
	_, err = connector.Connect(ctx)
	d.row("a new connection after close", coopsqlite.ErrStopped.Error(), err)
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	if err := d.count(ctx, 2); err != nil {
		return err
	}

	d.s.printf("\nWhat the fence is not: a wall against whoever lies on purpose.\n\n")
	liar, err := d.start(ctx, roleLiar)
	if err != nil {
		return err
	}
	defer liar.stop()
	d.row("an outside connection that forges both functions", lands, liar.ask("INSERT INTO todos (title) VALUES ('a lie')"))
	return nil
}

// row prints one row of the table.
func (d *demo) row(who, promised string, err error) {
	got := promised
	if err != nil {
		got = err.Error()
	} else if promised != lands && promised != untouched {
		got = lands
	}
	ok := strings.HasPrefix(got, promised)
	mark := "ok    "
	if !ok {
		mark = "BROKEN"
		d.broken++
	}
	d.s.printf("%s  %s\n            %s\n", mark, who, got)
	if !ok {
		d.s.printf("            promised: %s\n", promised)
	}
	_ = d.s.printJSON(demoJSON{who, promised, got, ok})
}

// count checks that nothing but what should be written was written.
func (d *demo) count(ctx context.Context, want int) error {
	reader, err := sql.Open("coopsqlite", "file:"+d.path+"?mode=ro")
	if err != nil {
		return err
	}
	defer reader.Close()
	var got int
	if err := reader.QueryRowContext(ctx, "SELECT count(*) FROM todos").Scan(&got); err != nil {
		return err
	}
	if got != want {
		d.row(fmt.Sprintf("the store holds %d rows", got), fmt.Sprintf("%d rows", want), errors.New("something was written that was refused"))
	}
	return nil
}
