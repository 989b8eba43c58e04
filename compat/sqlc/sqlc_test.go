// Package sqlc_test: code that sqlc generated, run on the driver coopsqlite.
// The package db beside it is what `sqlc generate` makes of schema.sql and
// queries.sql.
package sqlc_test

import (
	"database/sql"
	_ "embed"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
	"github.com/coopsqlite/coopsqlite/compat/sqlc/db"
)

func TestMain(m *testing.M) { harness.Main(m) }

//go:embed schema.sql
var schema string

func open(t *testing.T) (*sql.DB, string) {
	t.Helper()
	path := harness.Path(t)
	pool := harness.Open(t, harness.DSN(path))
	harness.Exec(t, pool, schema)
	return pool, path
}

func TestGeneratedQueriesRun(t *testing.T) {
	pool, path := open(t)
	q := db.New(pool)
	ada, err := q.CreateAuthor(t.Context(), db.CreateAuthorParams{Name: "ada", Bio: sql.NullString{String: "wrote", Valid: true}})
	require.NoError(t, err)
	require.EqualValues(t, 1, ada.ID)
	published := time.Date(1843, 9, 1, 0, 0, 0, 0, time.UTC)
	for want := int64(1); want <= 3; want++ {
		id, err := q.CreateBook(t.Context(), db.CreateBookParams{AuthorID: ada.ID, Title: "note", Published: published})
		require.NoError(t, err)
		require.Equal(t, want, id)
	}
	books, err := q.ListBooks(t.Context(), ada.ID)
	require.NoError(t, err)
	require.Len(t, books, 3)
	require.True(t, published.Equal(books[0].Published))
	titles, err := q.SearchBooks(t.Context(), []int64{1, 3})
	require.NoError(t, err)
	require.Equal(t, []string{"note", "note"}, titles)
	n, err := q.RenameAuthor(t.Context(), db.RenameAuthorParams{ID: ada.ID, Name: "Ada"})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.NoError(t, q.DeleteAuthor(t.Context(), ada.ID))
	_, err = q.GetAuthor(t.Context(), ada.ID)
	require.ErrorIs(t, err, sql.ErrNoRows)
	books, err = q.ListBooks(t.Context(), ada.ID)
	require.NoError(t, err)
	require.Empty(t, books, "the foreign key cascaded")
	harness.Guarded(t, pool, path)
}

func TestGeneratedQueriesInsideATransaction(t *testing.T) {
	pool, path := open(t)
	tx, err := pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = db.New(pool).WithTx(tx).CreateAuthor(t.Context(), db.CreateAuthorParams{Name: "ada"})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	_, err = db.New(pool).GetAuthor(t.Context(), 1)
	require.ErrorIs(t, err, sql.ErrNoRows)
	harness.Guarded(t, pool, path)
}
