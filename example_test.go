package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/mattn/go-sqlite3" // the outsider's driver

	"github.com/coopsqlite/coopsqlite"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "app.db")

	db, err := sql.Open("coopsqlite", path+"?_journal_mode=WAL")
	if err != nil {
		panic(err) // another owner has the store, say
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE todos (title TEXT); INSERT INTO todos VALUES ('write it down')"); err != nil {
		panic(err)
	}

	// A second owner is kept out.
	_, err = sql.Open("coopsqlite", path)
	fmt.Println(errors.Is(err, coopsqlite.ErrConflict))

	// A forgotten script can read, and not write.
	script, err := sql.Open("sqlite3", path)
	if err != nil {
		panic(err)
	}
	defer script.Close()
	var title string
	fmt.Println(script.QueryRow("SELECT title FROM todos").Scan(&title), title)
	_, err = script.Exec("DELETE FROM todos")
	fmt.Println(err)

	// Output:
	// true
	// <nil> write it down
	// no such function: coop_write_permit
}

func ExampleStoreOf() {
	db, err := sql.Open("coopsqlite", "file:example?mode=memory&cache=shared")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE todos (title TEXT)"); err != nil {
		panic(err)
	}
	store, err := coopsqlite.StoreOf(db)
	if err != nil {
		panic(err)
	}
	coverage, err := store.Verify(context.Background())
	if err != nil {
		panic(err)
	}
	for _, t := range coverage.Tables {
		fmt.Println(t.Name, t.State)
	}
	// Output:
	// todos fenced
	// coop_owner fenced
}

func ExampleWithMetadata() {
	db, err := sql.Open("coopsqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	ctx := coopsqlite.WithMetadata(context.Background(), "actor", "alice")
	var actor string
	if err := db.QueryRowContext(ctx, "SELECT coop_context('actor')").Scan(&actor); err != nil {
		panic(err)
	}
	fmt.Println(actor)
	// Output: alice
}
