// Package bun_test: bun and its migrator on the driver coopsqlite.
package bun_test

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/migrate"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

//go:embed migrations/*.sql
var embedded embed.FS

type author struct {
	ID        int64 `bun:",pk,autoincrement"`
	Name      string
	Meta      map[string]string
	CreatedAt time.Time
	Books     []*book `bun:"rel:has-many,join:id=author_id"`
}

type book struct {
	ID       int64 `bun:",pk,autoincrement"`
	AuthorID int64
	Title    string
	Pages    int
	Author   *author `bun:"rel:belongs-to,join:author_id=id"`
}

func open(t *testing.T) (*bun.DB, *migrate.Migrator, string) {
	t.Helper()
	path := harness.Path(t)
	db := bun.NewDB(harness.Open(t, harness.DSN(path)), sqlitedialect.New())
	migrations := migrate.NewMigrations()
	require.NoError(t, migrations.Discover(embedded))
	migrations.Add(migrate.Migration{
		Name: "20260103000000",
		Up: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error {
			_, err := m.DB().NewCreateTable().Model((*shelf)(nil)).Exec(ctx)
			return err
		},
		Down: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error {
			_, err := m.DB().NewDropTable().Model((*shelf)(nil)).Exec(ctx)
			return err
		},
	})
	migrator := migrate.NewMigrator(db, migrations)
	require.NoError(t, migrator.Init(t.Context()))
	return db, migrator, path
}

type shelf struct {
	ID   int64 `bun:",pk,autoincrement"`
	Name string
}

func TestMigrateRollbackAndMigrateAgain(t *testing.T) {
	db, migrator, path := open(t)
	db.SetMaxOpenConns(1) // is enough
	for range 2 {
		require.NoError(t, migrator.Lock(t.Context()))
		require.Error(t, migrator.Lock(t.Context()), "the migrator's own lock is a row")
		group, err := migrator.Migrate(t.Context())
		require.NoError(t, err)
		require.Len(t, group.Migrations, 3)
		require.NoError(t, migrator.Unlock(t.Context()))
		harness.Guarded(t, db.DB, path)

		_, err = migrator.Rollback(t.Context())
		require.NoError(t, err)
		harness.Guarded(t, db.DB, path)
	}
}

func TestRelationsAreLoaded(t *testing.T) {
	db, migrator, path := open(t)
	_, err := migrator.Migrate(t.Context())
	require.NoError(t, err)

	created := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	authors := []*author{{Name: "ada", Meta: map[string]string{"k": "v"}, CreatedAt: created}, {Name: "bob", CreatedAt: created}}
	_, err = db.NewInsert().Model(&authors).Exec(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, authors[1].ID, "RETURNING filled it in")
	books := []book{{AuthorID: 1, Title: "one", Pages: 1}, {AuthorID: 1, Title: "two", Pages: 2}, {AuthorID: 2, Title: "three"}}
	_, err = db.NewInsert().Model(&books).Exec(t.Context())
	require.NoError(t, err)

	var ada author
	require.NoError(t, db.NewSelect().Model(&ada).Relation("Books").Where("name = ?", "ada").Scan(t.Context()))
	require.Len(t, ada.Books, 2)
	require.Equal(t, map[string]string{"k": "v"}, ada.Meta)
	require.True(t, created.Equal(ada.CreatedAt))
	var three book
	require.NoError(t, db.NewSelect().Model(&three).Relation("Author").Where("title = ?", "three").Scan(t.Context()))
	require.Equal(t, "bob", three.Author.Name)

	_, err = db.NewInsert().Model(&author{ID: 9, Name: "ada", CreatedAt: created}).
		On("CONFLICT (name) DO UPDATE").Set("meta = EXCLUDED.meta").Exec(t.Context())
	require.NoError(t, err)
	_, err = db.NewInsert().Model(&author{}).Exec(t.Context())
	require.ErrorContains(t, err, "no name; refused")
	harness.Guarded(t, db.DB, path)
}

func TestTransactionsAndSavepoints(t *testing.T) {
	db, migrator, path := open(t)
	_, err := migrator.Migrate(t.Context())
	require.NoError(t, err)
	undo := errors.New("undo")
	require.NoError(t, db.RunInTx(t.Context(), &sql.TxOptions{}, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&shelf{Name: "kept"}).Exec(ctx); err != nil {
			return err
		}
		inner := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&shelf{Name: "undone"}).Exec(ctx); err != nil {
				return err
			}
			return undo
		})
		require.ErrorIs(t, inner, undo)
		return nil
	}))
	var names []string
	require.NoError(t, db.NewSelect().Model((*shelf)(nil)).Column("name").Scan(t.Context(), &names))
	require.Equal(t, []string{"kept"}, names)
	harness.Guarded(t, db.DB, path)
}
