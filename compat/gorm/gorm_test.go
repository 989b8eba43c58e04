// Package gorm_test: GORM with its own SQLite dialector on the driver
// coopsqlite.
package gorm_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

type author struct {
	ID      uint
	Name    string `gorm:"not null;uniqueIndex"`
	Slug    string
	Books   []book
	Profile *profile
	Awards  []award `gorm:"many2many:author_awards"`
	Joined  time.Time
	Deleted gorm.DeletedAt
}

// BeforeCreate is a hook that changes the row, AfterCreate one that writes
// another row in the same transaction.
func (a *author) BeforeCreate(*gorm.DB) error {
	a.Slug = strings.ToLower(strings.ReplaceAll(a.Name, " ", "-"))
	return nil
}

func (a *author) AfterCreate(tx *gorm.DB) error {
	if a.Name == "Nobody" {
		return errRefusedByHook
	}
	return tx.Create(&audit{What: "created " + a.Slug}).Error
}

var errRefusedByHook = errors.New("refused by the hook")

type book struct {
	ID       uint
	AuthorID uint
	Title    string
	Subtitle string
	Pages    int `gorm:"check:pages_positive,pages > 0"`
}

type profile struct {
	ID       uint
	AuthorID uint
	Photo    []byte
}

type award struct {
	ID   uint
	Name string
}

type audit struct {
	ID   uint
	What string
}

func open(t *testing.T) (*gorm.DB, string) {
	t.Helper()
	path := harness.Path(t)
	db, err := gorm.Open(sqlite.Dialector{DriverName: harness.Driver, DSN: harness.DSN(path)},
		&gorm.Config{TranslateError: true, Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { pool.Close() })
	return db, path
}

func migrate(t *testing.T, db *gorm.DB) {
	t.Helper()
	require.NoError(t, db.AutoMigrate(&author{}, &book{}, &profile{}, &award{}, &audit{}))
}

func guarded(t *testing.T, db *gorm.DB, path string) {
	t.Helper()
	pool, err := db.DB()
	require.NoError(t, err)
	harness.Guarded(t, pool, path)
}

func TestAutoMigrateTwiceLeavesEveryTableFenced(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	migrate(t, db)
	guarded(t, db, path)
}

func TestAssociationsAreSavedAndLoaded(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	joined := time.Date(1843, 3, 1, 12, 0, 0, 0, time.UTC)
	ada := author{
		Name:    "Ada Lovelace",
		Books:   []book{{Title: "Notes", Pages: 66}, {Title: "Letters", Pages: 400}},
		Profile: &profile{Photo: []byte{0, 1, 2}},
		Awards:  []award{{Name: "First"}},
		Joined:  joined,
	}
	require.NoError(t, db.Create(&ada).Error)
	require.NoError(t, db.Model(&ada).Association("Awards").Append(&award{Name: "Second"}))

	var got author
	require.NoError(t, db.Preload("Books").Preload("Profile").Preload("Awards").First(&got, "slug = ?", "ada-lovelace").Error)
	require.Len(t, got.Books, 2)
	require.Len(t, got.Awards, 2)
	require.Equal(t, []byte{0, 1, 2}, got.Profile.Photo)
	require.True(t, joined.Equal(got.Joined), "%s", got.Joined)

	require.NoError(t, db.Model(&got.Books[0]).Updates(map[string]any{"pages": gorm.Expr("pages + ?", 1)}).Error)
	require.NoError(t, db.Delete(&got).Error)
	require.ErrorIs(t, db.First(&author{}, got.ID).Error, gorm.ErrRecordNotFound)
	require.NoError(t, db.Unscoped().First(&author{}, got.ID).Error, "a soft delete keeps the row")
	guarded(t, db, path)
}

func TestHookErrorRollsTheCreationBack(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	require.ErrorIs(t, db.Create(&author{Name: "Nobody"}).Error, errRefusedByHook)
	require.NoError(t, db.Create(&author{Name: "Somebody"}).Error)
	var audits []audit
	require.NoError(t, db.Find(&audits).Error)
	require.Len(t, audits, 1)
	require.Equal(t, "created somebody", audits[0].What)
	guarded(t, db, path)
}

func TestConstraintErrorsAreTranslated(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	require.NoError(t, db.Create(&author{Name: "Ada"}).Error)
	require.ErrorIs(t, db.Create(&author{Name: "Ada"}).Error, gorm.ErrDuplicatedKey)
	require.ErrorIs(t, db.Create(&author{ID: 1, Name: "Eve"}).Error, gorm.ErrDuplicatedKey)
	require.ErrorIs(t, db.Create(&book{AuthorID: 99, Title: "Orphan", Pages: 1}).Error, gorm.ErrForeignKeyViolated)
	guarded(t, db, path)
}

func TestNestedTransactionsUseSavepoints(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&award{Name: "kept"}).Error; err != nil {
			return err
		}
		inner := tx.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&award{Name: "undone"}).Error; err != nil {
				return err
			}
			return errRefusedByHook
		})
		require.ErrorIs(t, inner, errRefusedByHook)
		return nil
	}))
	var names []string
	require.NoError(t, db.Model(&award{}).Pluck("name", &names).Error)
	require.Equal(t, []string{"kept"}, names)
	guarded(t, db, path)
}

func TestUpsertAndBatches(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	books := make([]award, 250)
	for i := range books {
		books[i].ID = uint(i + 1)
		books[i].Name = "award"
	}
	require.NoError(t, db.CreateInBatches(books, 100).Error)
	require.NoError(t, db.Save(&award{ID: 7, Name: "changed"}).Error)
	var n int64
	require.NoError(t, db.Model(&award{}).Where("name = ?", "award").Count(&n).Error)
	require.EqualValues(t, 249, n)
	guarded(t, db, path)
}

// GORM changes a column's type by building a second table, copying the rows,
// dropping the first and renaming the second: the fences of the first go with
// it.
func TestColumnChangeThatRebuildsTheTableLeavesItFenced(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	require.NoError(t, db.Create(&author{Name: "Ada", Books: []book{{Title: "Notes", Pages: 66}}}).Error)

	type book struct {
		ID       uint
		AuthorID uint
		Title    string `gorm:"size:80;not null;default:untitled"`
		Pages    string
	}
	require.NoError(t, db.AutoMigrate(&book{}))
	require.NoError(t, db.Migrator().AlterColumn(&book{}, "Pages"))
	require.NoError(t, db.Migrator().DropColumn(&book{}, "subtitle"))

	var got book
	require.NoError(t, db.Select("id", "title", "pages").First(&got).Error)
	require.Equal(t, "66", got.Pages)
	types, err := db.Migrator().ColumnTypes(&book{})
	require.NoError(t, err)
	names := map[string]string{}
	for _, c := range types {
		names[c.Name()] = strings.ToLower(c.DatabaseTypeName())
	}
	require.NotContains(t, names, "subtitle")
	require.Equal(t, "text", names["pages"])
	guarded(t, db, path)
}

func TestRenamesAndDropsLeaveTheRestFenced(t *testing.T) {
	db, path := open(t)
	migrate(t, db)
	require.NoError(t, db.Migrator().RenameTable("awards", "prizes"))
	require.NoError(t, db.Migrator().RenameColumn(&book{}, "title", "heading"))
	require.NoError(t, db.Migrator().DropTable("audits"))
	require.NoError(t, db.Migrator().CreateTable(&award{}))
	guarded(t, db, path)
}

func TestExistingPoolIsUsedThroughConn(t *testing.T) {
	path := harness.Path(t)
	pool := harness.Open(t, harness.DSN(path))
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{TranslateError: true, Logger: logger.Discard})
	require.NoError(t, err)
	migrate(t, db)
	require.NoError(t, db.Create(&award{ID: 1, Name: "a"}).Error)
	require.ErrorIs(t, db.Create(&award{ID: 1, Name: "b"}).Error, gorm.ErrDuplicatedKey)
	guarded(t, db, path)
}

func TestPreparedStatementModeSurvivesAMigration(t *testing.T) {
	path := harness.Path(t)
	pool := harness.Open(t, harness.DSN(path))
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{PrepareStmt: true, Logger: logger.Discard})
	require.NoError(t, err)
	require.NoError(t, db.AutoMigrate(&award{}))
	require.NoError(t, db.Create(&award{Name: "a"}).Error)

	type award struct {
		ID   uint
		Name string
		Year int
	}
	require.NoError(t, db.AutoMigrate(&award{}))
	require.NoError(t, db.Create(&award{Name: "b", Year: 1999}).Error)
	var all []award
	require.NoError(t, db.Find(&all).Error)
	require.Len(t, all, 2)
	guarded(t, db, path)
}

// One connection is what many programs give SQLite.
func TestPoolOfOneConnectionIsEnough(t *testing.T) {
	path := harness.Path(t)
	pool := harness.Open(t, harness.DSN(path))
	pool.SetMaxOpenConns(1)
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	migrate(t, db)
	migrate(t, db)
	require.NoError(t, db.Migrator().AlterColumn(&book{}, "Title"))
	require.NoError(t, db.Create(&author{Name: "Ada", Books: []book{{Title: "Notes", Pages: 1}}}).Error)
	var got author
	require.NoError(t, db.Preload("Books").First(&got).Error)
	require.Len(t, got.Books, 1)
	guarded(t, db, path)
}
