package coopsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coopsqlite/coopsqlite"
)

// A mistake is found in the feed and undone: all that its transaction did, in
// the opposite order.
func ExampleStore_Changes_undo() {
	db, err := sql.Open("coopsqlite", "file:undo?mode=memory&cache=shared&_coop_changes=*")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	ctx := context.Background()
	exec := func(actor, statement string) {
		if _, err := db.ExecContext(coopsqlite.WithMetadata(ctx, "actor", actor), statement); err != nil {
			panic(err)
		}
	}
	exec("setup", "CREATE TABLE stock (sku TEXT PRIMARY KEY, n INTEGER, photo BLOB, low AS (n < 3))")
	exec("alice", "INSERT INTO stock (sku, n, photo) VALUES ('bolt', 5, x'00ff'), ('nut', 9, NULL)")
	exec("mallory", "REPLACE INTO stock (sku, n) VALUES ('bolt', 0), ('washer', 1)")

	store, err := coopsqlite.StoreOf(db)
	if err != nil {
		panic(err)
	}
	var mistakes []coopsqlite.Change
	for change, err := range store.Changes(ctx, 0) {
		if err != nil {
			panic(err)
		}
		if change.Actor == "mallory" {
			fmt.Println(change.Op, change.Key)
			mistakes = append(mistakes, change)
		}
	}
	err = store.Write(coopsqlite.WithMetadata(ctx, "actor", "alice", "reason", "undo"), func(tx coopsqlite.DBTX) error {
		for _, change := range slices.Backward(mistakes) {
			if err := undo(ctx, tx, change); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println("undone:", err)
	rows, err := db.Query("SELECT sku, n, hex(photo), low FROM stock ORDER BY sku")
	if err != nil {
		panic(err)
	}
	defer rows.Close()
	for rows.Next() {
		var sku, photo string
		var n int
		var low bool
		if err := rows.Scan(&sku, &n, &photo, &low); err != nil {
			panic(err)
		}
		fmt.Println(sku, n, photo, low)
	}

	// Output:
	// delete [{sku bolt}]
	// insert [{sku bolt}]
	// insert [{sku washer}]
	// undone: <nil>
	// bolt 5 00FF false
	// nut 9  false
}

// undo takes one change back. It refuses if the row is not as the change left
// it: somebody has changed it since, and that would be lost.
func undo(ctx context.Context, tx coopsqlite.DBTX, c coopsqlite.Change) error {
	var statement string
	var args []any
	where := func() string {
		// As the change left the row: where its key is now, with these values.
		var conditions []string
		for _, column := range slices.Concat(keyNow(c), c.New) {
			conditions = append(conditions, identifier(column.Name)+" IS ?")
			args = append(args, column.Value)
		}
		return " WHERE " + strings.Join(conditions, " AND ")
	}
	switch c.Op {
	case coopsqlite.OpInsert:
		statement = "DELETE FROM " + identifier(c.Table) + where()
	case coopsqlite.OpUpdate, coopsqlite.OpDelete:
		columns, err := writable(ctx, tx, c)
		if err != nil {
			return err
		}
		var names, marks []string
		for _, column := range columns {
			names, marks, args = append(names, identifier(column.Name)), append(marks, "?"), append(args, column.Value)
		}
		if c.Op == coopsqlite.OpDelete {
			statement = "INSERT INTO " + identifier(c.Table) + "(" + strings.Join(names, ",") + ") VALUES(" + strings.Join(marks, ",") + ")"
		} else {
			statement = "UPDATE " + identifier(c.Table) + " SET " + strings.Join(names, "=?,") + "=?" + where()
		}
	}
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("undo change %d: %w", c.Seq, err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("undo change %d: the row was changed since", c.Seq))
	}
	return nil
}

// keyNow is the key of the row after the change.
func keyNow(c coopsqlite.Change) coopsqlite.Row {
	key := slices.Clone(c.Key)
	for i := range key {
		if v, ok := c.New.Get(key[i].Name); ok {
			key[i].Value = v
		}
	}
	return key
}

// writable are the old values that can be set: all but generated columns, and
// the rowid where that is the key.
func writable(ctx context.Context, tx coopsqlite.DBTX, c coopsqlite.Change) (coopsqlite.Row, error) {
	rows, err := tx.QueryContext(ctx, "SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (2, 3)", c.Table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var generated []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		generated = append(generated, name)
	}
	columns := slices.DeleteFunc(slices.Clone(c.Old), func(column coopsqlite.Column) bool { return slices.Contains(generated, column.Name) })
	for _, column := range c.Key {
		if _, ok := c.Old.Get(column.Name); !ok {
			columns = append(columns, column)
		}
	}
	return columns, rows.Err()
}

func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
