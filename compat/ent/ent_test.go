package ent_test

import (
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/ent/gen"
	"github.com/coopsqlite/coopsqlite/compat/ent/gen/migrate"
	"github.com/coopsqlite/coopsqlite/compat/ent/gen/user"
	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func open(t *testing.T) (*gen.Client, *sql.DB, string) {
	t.Helper()
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	client := gen.NewClient(gen.Driver(entsql.OpenDB(dialect.SQLite, db)))
	require.NoError(t, client.Schema.Create(t.Context()))
	return client, db, path
}

func TestSchemaIsMigratedTwice(t *testing.T) {
	client, db, path := open(t)
	require.NoError(t, client.Schema.Create(t.Context(), migrate.WithDropColumn(true), migrate.WithDropIndex(true)))
	harness.Guarded(t, db, path)
}

func TestEdgesAreSavedAndLoaded(t *testing.T) {
	client, db, path := open(t)
	ctx := t.Context()
	beetle := client.Car.Create().SetModel("Beetle").SaveX(ctx)
	mini := client.Car.Create().SetModel("Mini").SaveX(ctx)
	ada := client.User.Create().SetName("ada").SetAge(36).SetTags([]string{"a", "b"}).AddCars(beetle, mini).SaveX(ctx)
	client.User.MapCreateBulk([]string{"bob", "eve"}, func(c *gen.UserCreate, i int) {
		c.SetName([]string{"bob", "eve"}[i]).SetAge(20 + i).AddFriends(ada)
	}).ExecX(ctx)

	got := client.User.Query().Where(user.Name("ada")).WithCars().WithFriends().OnlyX(ctx)
	require.Len(t, got.Edges.Cars, 2)
	require.Len(t, got.Edges.Friends, 2, "an edge to the same type goes both ways")
	require.Equal(t, []string{"a", "b"}, got.Tags)
	require.Equal(t, 2, client.User.Query().Where(user.HasFriendsWith(user.Name("ada"))).CountX(ctx))
	require.Equal(t, "ada", beetle.QueryOwner().OnlyX(ctx).Name)

	client.User.Update().Where(user.AgeLT(30)).AddAge(1).ExecX(ctx)
	require.Equal(t, 43, client.User.Query().Where(user.NameNEQ("ada")).Aggregate(gen.Sum(user.FieldAge)).IntX(ctx))
	client.User.DeleteOneID(got.ID).ExecX(ctx)
	require.False(t, beetle.QueryOwner().ExistX(ctx))
	harness.Guarded(t, db, path)
}

func TestConstraintErrorsAreRecognised(t *testing.T) {
	client, db, path := open(t)
	client.User.Create().SetName("ada").SetAge(36).SaveX(t.Context())
	_, err := client.User.Create().SetName("ada").SetAge(1).Save(t.Context())
	require.True(t, gen.IsConstraintError(err), "%v", err)
	_, err = client.User.Create().SetName("bob").SetAge(0).Save(t.Context())
	require.True(t, gen.IsValidationError(err), "%v", err)
	harness.Guarded(t, db, path)
}

func TestTransactionsCommitAndRollBack(t *testing.T) {
	client, db, path := open(t)
	ctx := t.Context()
	tx, err := client.Tx(ctx)
	require.NoError(t, err)
	tx.User.Create().SetName("undone").SetAge(1).SaveX(ctx)
	require.NoError(t, tx.Rollback())

	tx, err = client.BeginTx(ctx, &entsql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	tx.User.Create().SetName("kept").SetAge(1).SaveX(ctx)
	require.NoError(t, tx.Commit())
	require.Equal(t, "kept", client.User.Query().OnlyX(ctx).Name)

	reader, err := client.BeginTx(ctx, &entsql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = reader.User.Create().SetName("refused").SetAge(1).Save(ctx)
	require.ErrorContains(t, err, "readonly")
	require.NoError(t, reader.Rollback())
	harness.Guarded(t, db, path)
}

// A column that is no longer NULL-able makes ent's migration build the table
// anew.
func TestColumnChangeThatRebuildsTheTableLeavesItFenced(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	create := func(nullable bool) {
		t.Helper()
		columns := []*schema.Column{
			{Name: "id", Type: field.TypeInt, Increment: true},
			{Name: "name", Type: field.TypeString, Nullable: nullable, Default: "nobody"},
		}
		pets := &schema.Table{Name: "pets", Columns: columns, PrimaryKey: columns[:1]}
		toys := []*schema.Column{
			{Name: "id", Type: field.TypeInt, Increment: true},
			{Name: "pet_id", Type: field.TypeInt, Nullable: true},
		}
		migration, err := schema.NewMigrate(entsql.OpenDB(dialect.SQLite, db), schema.WithForeignKeys(true))
		require.NoError(t, err)
		require.NoError(t, migration.Create(context.WithoutCancel(t.Context()), pets, &schema.Table{
			Name: "toys", Columns: toys, PrimaryKey: toys[:1],
			ForeignKeys: []*schema.ForeignKey{{Symbol: "toys_pet", Columns: toys[1:], RefTable: pets, RefColumns: columns[:1], OnDelete: schema.Cascade}},
		}))
	}
	create(true)
	harness.Exec(t, db, "INSERT INTO pets (name) VALUES ('rex'), (NULL)", "INSERT INTO toys (pet_id) VALUES (1), (2)")
	harness.Guarded(t, db, path)
	create(false)

	var required, toys int
	require.NoError(t, db.QueryRow(`SELECT "notnull" FROM pragma_table_info('pets') WHERE name = 'name'`).Scan(&required))
	require.Equal(t, 1, required)
	require.NoError(t, db.QueryRow("SELECT count(*) FROM toys JOIN pets ON pets.id = pet_id").Scan(&toys))
	require.Equal(t, 2, toys)
	harness.Guarded(t, db, path)
}

// One connection is what many programs give SQLite.
func TestPoolOfOneConnectionIsEnough(t *testing.T) {
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	db.SetMaxOpenConns(1)
	client := gen.NewClient(gen.Driver(entsql.OpenDB(dialect.SQLite, db)))
	require.NoError(t, client.Schema.Create(t.Context()))
	require.NoError(t, client.Schema.Create(t.Context(), migrate.WithDropColumn(true)))
	ada := client.User.Create().SetName("ada").SetAge(36).AddCars(client.Car.Create().SetModel("Mini").SaveX(t.Context())).SaveX(t.Context())
	require.Equal(t, "Mini", ada.QueryCars().OnlyX(t.Context()).Model)
	harness.Guarded(t, db, path)
}
