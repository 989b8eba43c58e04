package sqlc_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
	"github.com/coopsqlite/coopsqlite/compat/sqlc/db"
)

var errUndo = errors.New("undo")

// Write hands out what sqlc calls DBTX; a function that fails takes back its
// own rows and nobody else's.
func TestGeneratedQueriesInsideWrite(t *testing.T) {
	pool, path := open(t)
	store, err := coopsqlite.StoreOf(pool)
	require.NoError(t, err)

	const writers = 20
	failed := make(chan error, writers)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			err := store.Write(t.Context(), func(tx coopsqlite.DBTX) error {
				q := db.New(tx)
				author, err := q.CreateAuthor(t.Context(), db.CreateAuthorParams{Name: fmt.Sprint("author ", i)})
				if err != nil {
					return err
				}
				if _, err := q.CreateBook(t.Context(), db.CreateBookParams{AuthorID: author.ID, Title: author.Name}); err != nil {
					return err
				}
				books, err := q.ListBooks(t.Context(), author.ID)
				if err != nil {
					return err
				}
				if len(books) != 1 {
					return fmt.Errorf("%d books of %s", len(books), author.Name)
				}
				if i%2 == 1 {
					return errUndo
				}
				return nil
			})
			if i%2 == 1 && errors.Is(err, errUndo) {
				err = nil
			}
			failed <- err
		})
	}
	group.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	var authors, books int
	require.NoError(t, pool.QueryRow("SELECT (SELECT count(*) FROM authors), (SELECT count(*) FROM books)").Scan(&authors, &books))
	require.Equal(t, writers/2, authors)
	require.Equal(t, writers/2, books)
	harness.Guarded(t, pool, path)
}
