// Package sqlx_test: sqlx on the driver coopsqlite.
package sqlx_test

import (
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

// sqlx knows the placeholders of the drivers it has heard of; this is the line
// a program needs.
func init() { sqlx.BindDriver(harness.Driver, sqlx.QUESTION) }

func TestMain(m *testing.M) { harness.Main(m) }

type person struct {
	ID      int64
	First   string    `db:"first_name"`
	Email   *string   `db:"email"`
	Created time.Time `db:"created_at"`
}

func open(t *testing.T) (*sqlx.DB, string) {
	t.Helper()
	path := harness.Path(t)
	db, err := sqlx.Connect(harness.Driver, harness.DSN(path))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	db.MustExec("CREATE TABLE person (id INTEGER PRIMARY KEY, first_name TEXT NOT NULL, email TEXT, created_at DATETIME NOT NULL)")
	return db, path
}

func TestBindTypeIsKnown(t *testing.T) {
	db, path := open(t)
	require.Equal(t, sqlx.QUESTION, sqlx.BindType(harness.Driver))
	require.Equal(t, "SELECT ?, ?", db.Rebind("SELECT ?, ?"))
	harness.Guarded(t, db.DB, path)
}

func TestNamedQueriesAndStructs(t *testing.T) {
	db, path := open(t)
	email := "ada@example.org"
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err := db.NamedExec("INSERT INTO person (first_name, email, created_at) VALUES (:first_name, :email, :created_at)",
		[]person{{First: "Ada", Email: &email, Created: created}, {First: "Bob", Created: created}})
	require.NoError(t, err)

	var all []person
	require.NoError(t, db.Select(&all, "SELECT * FROM person ORDER BY id"))
	require.Len(t, all, 2)
	require.Equal(t, email, *all[0].Email)
	require.Nil(t, all[1].Email)
	require.True(t, created.Equal(all[0].Created))

	rows, err := db.NamedQuery("SELECT * FROM person WHERE first_name = :name", map[string]any{"name": "Bob"})
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	var bob person
	require.NoError(t, rows.StructScan(&bob))
	require.EqualValues(t, 2, bob.ID)
	require.NoError(t, rows.Close())

	query, args, err := sqlx.In("SELECT id FROM person WHERE first_name IN (?) ORDER BY id", []string{"Ada", "Bob"})
	require.NoError(t, err)
	var ids []int64
	require.NoError(t, db.Select(&ids, db.Rebind(query), args...))
	require.Equal(t, []int64{1, 2}, ids)
	harness.Guarded(t, db.DB, path)
}

func TestNamedStatementsInsideATransaction(t *testing.T) {
	db, path := open(t)
	tx, err := db.Beginx()
	require.NoError(t, err)
	defer tx.Rollback()
	insert, err := tx.PrepareNamed("INSERT INTO person (first_name, created_at) VALUES (:first_name, :created_at) RETURNING id")
	require.NoError(t, err)
	defer insert.Close()
	for want := range int64(3) {
		var id int64
		require.NoError(t, insert.Get(&id, person{First: "x"}))
		require.Equal(t, want+1, id)
	}
	var n int
	require.NoError(t, tx.Get(&n, "SELECT count(*) FROM person"))
	require.Equal(t, 3, n)
	require.NoError(t, tx.Commit())
	harness.Guarded(t, db.DB, path)
}

func TestExistingPoolIsWrapped(t *testing.T) {
	path := harness.Path(t)
	db := sqlx.NewDb(harness.Open(t, harness.DSN(path)), harness.Driver)
	db.MustExec("CREATE TABLE foo (id INTEGER PRIMARY KEY, n INT)")
	_, err := db.NamedExec("INSERT INTO foo (n) VALUES (:n)", map[string]any{"n": 7})
	require.NoError(t, err)
	rows, err := db.Queryx("SELECT * FROM foo")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	got := map[string]any{}
	require.NoError(t, rows.MapScan(got))
	require.Equal(t, map[string]any{"id": int64(1), "n": int64(7)}, got)
	require.NoError(t, rows.Close())
	harness.Guarded(t, db.DB, path)
}
