package coopsqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// waysToWrite are all ways in which the driver lets a statement write a row. The
// statement has no parameters.
var waysToWrite = map[string]func(ctx context.Context, db *sql.DB, statement string) error{
	"Exec": func(ctx context.Context, db *sql.DB, statement string) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	},
	"a prepared statement": func(ctx context.Context, db *sql.DB, statement string) error {
		st, err := db.PrepareContext(ctx, statement)
		if err != nil {
			return err
		}
		defer st.Close()
		_, err = st.ExecContext(ctx)
		return err
	},
	"RETURNING": func(ctx context.Context, db *sql.DB, statement string) error {
		return readAll(db.QueryContext(ctx, statement+" RETURNING a"))
	},
	"a prepared RETURNING": func(ctx context.Context, db *sql.DB, statement string) error {
		st, err := db.PrepareContext(ctx, statement+" RETURNING a")
		if err != nil {
			return err
		}
		defer st.Close()
		return readAll(st.QueryContext(ctx))
	},
	"beside open rows": func(ctx context.Context, db *sql.DB, statement string) error {
		return besideRows(ctx, db, func(c *sql.Conn) error {
			_, err := c.ExecContext(ctx, statement)
			return err
		})
	},
	"RETURNING beside open rows": func(ctx context.Context, db *sql.DB, statement string) error {
		return besideRows(ctx, db, func(c *sql.Conn) error { return readAll(c.QueryContext(ctx, statement+" RETURNING a")) })
	},
	"a transaction": func(ctx context.Context, db *sql.DB, statement string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
		return tx.Commit()
	},
	"RETURNING in a transaction": func(ctx context.Context, db *sql.DB, statement string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := readAll(tx.QueryContext(ctx, statement+" RETURNING a")); err != nil {
			return err
		}
		return tx.Commit()
	},
	"BEGIN": func(ctx context.Context, db *sql.DB, statement string) error {
		return onConn(ctx, db, "BEGIN", statement, "COMMIT")
	},
	"BEGIN IMMEDIATE": func(ctx context.Context, db *sql.DB, statement string) error {
		return onConn(ctx, db, "BEGIN IMMEDIATE", statement, "COMMIT")
	},
	"a savepoint": func(ctx context.Context, db *sql.DB, statement string) error {
		return onConn(ctx, db, "SAVEPOINT a", statement, "RELEASE a")
	},
	"a transaction that has read": func(ctx context.Context, db *sql.DB, statement string) error {
		return onConn(ctx, db, "BEGIN", "SELECT count(*) FROM t", statement, "COMMIT")
	},
	"Write": func(ctx context.Context, db *sql.DB, statement string) error {
		store, err := coopsqlite.StoreOf(db)
		if err != nil {
			return err
		}
		return store.Write(ctx, func(tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
	},
	"Bulk": func(ctx context.Context, db *sql.DB, statement string) error {
		store, err := coopsqlite.StoreOf(db)
		if err != nil {
			return err
		}
		return store.Bulk(ctx, []string{"t"}, func(tx coopsqlite.DBTX) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
	},
	"one text of several statements": func(ctx context.Context, db *sql.DB, statement string) error {
		_, err := db.ExecContext(ctx, "SELECT 1; "+statement+"; SELECT 2")
		return err
	},
}

func readAll(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// besideRows runs fn between two rows that are read on the same connection.
func besideRows(ctx context.Context, db *sql.DB, fn func(*sql.Conn) error) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	rows, err := c.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2")
	if err != nil {
		return err
	}
	defer rows.Close()
	rows.Next()
	if err := fn(c); err != nil {
		return err
	}
	if !rows.Next() {
		return errors.Join(errors.New("the rows have ended"), rows.Err())
	}
	return nil
}

// onConn runs the statements on one connection, which then is fit for others.
func onConn(ctx context.Context, db *sql.DB, statements ...string) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, s := range statements {
		if _, err := c.ExecContext(ctx, s); err != nil {
			_, _ = c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return err
		}
	}
	return nil
}

const (
	loggedInsert = "INSERT INTO t (b) VALUES ('x')"
	logTrigger   = "CREATE TRIGGER mine AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.b); END"
)

// plainStore has no triggers but the fences, and a connection or two that know.
func plainStore(t *testing.T) (*sql.DB, string) {
	t.Helper()
	path := newPath(t)
	db := open(t, path+"?_journal_mode=WAL&_synchronous=OFF&_coop_watch=0")
	mustExec(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)", "CREATE TABLE log (b)", "CREATE VIEW v AS SELECT b FROM t")
	for _, write := range waysToWrite {
		require.NoError(t, write(t.Context(), db, loggedInsert))
	}
	mustExec(t, db, "DELETE FROM t")
	require.NotContains(t, program(t, db, loggedInsert), "Program", "as if there were no triggers")
	return db, path
}

func TestATriggerOfTheUsersFiresHoweverItCameAndHoweverIsWritten(t *testing.T) {
	comes := map[string]func(t *testing.T, db *sql.DB, path string){
		"through the pool": func(t *testing.T, db *sql.DB, path string) { mustExec(t, db, logTrigger) },
		"in a script":      func(t *testing.T, db *sql.DB, path string) { mustExec(t, db, "SELECT 1; "+logTrigger+"; SELECT 1") },
		"from outside":     func(t *testing.T, db *sql.DB, path string) { mustExec(t, openPlain(t, path), logTrigger) },
		"in a transaction": func(t *testing.T, db *sql.DB, path string) { inTransaction(t, db, logTrigger) },
		"before a write there": func(t *testing.T, db *sql.DB, path string) {
			inTransaction(t, db, loggedInsert, logTrigger, loggedInsert)
			require.Equal(t, "1", value(t, db, "SELECT count(*) FROM log"), "the second")
			mustExec(t, db, "DELETE FROM log", "DELETE FROM t")
		},
		"back, by a rollback": func(t *testing.T, db *sql.DB, path string) {
			mustExec(t, db, logTrigger)
			inTransaction(t, db, "SAVEPOINT s", "DROP TRIGGER mine", loggedInsert, "ROLLBACK TO s", loggedInsert)
			require.Equal(t, "1", value(t, db, "SELECT count(*) FROM log"), "the second")
			tx, err := db.Begin()
			require.NoError(t, err)
			mustExec(t, tx, "DROP TRIGGER mine", loggedInsert)
			require.NoError(t, tx.Rollback())
			mustExec(t, db, "DELETE FROM log", "DELETE FROM t")
		},
		"through Write": func(t *testing.T, db *sql.DB, path string) {
			require.NoError(t, storeOf(t, db).Write(t.Context(), func(tx coopsqlite.DBTX) error {
				_, err := tx.ExecContext(t.Context(), logTrigger)
				return err
			}))
		},
		"through Bulk": func(t *testing.T, db *sql.DB, path string) {
			require.NoError(t, storeOf(t, db).Bulk(t.Context(), []string{"t"}, func(tx coopsqlite.DBTX) error {
				_, err := tx.ExecContext(t.Context(), logTrigger)
				return err
			}))
		},
		"by way of SQLiteConn": func(t *testing.T, db *sql.DB, path string) {
			c := grab(t, db)
			require.NoError(t, c.Raw(func(driverConn any) error {
				inner, ok := coopsqlite.SQLiteConn(driverConn)
				require.True(t, ok)
				_, err := inner.Exec(logTrigger, nil)
				return err
			}))
			require.NoError(t, c.Close())
		},
		"for a moment in temp": func(t *testing.T, db *sql.DB, path string) {
			c := grab(t, db)
			_, err := c.ExecContext(t.Context(), "CREATE TEMP TRIGGER there AFTER INSERT ON main.t BEGIN INSERT INTO log VALUES (new.b); END")
			require.NoError(t, err)
			for range 2 {
				_, err = c.ExecContext(t.Context(), loggedInsert)
				require.NoError(t, err)
			}
			_, err = c.ExecContext(t.Context(), "DROP TRIGGER temp.there")
			require.NoError(t, err)
			require.NoError(t, c.Close())
			require.Equal(t, "2", value(t, db, "SELECT count(*) FROM log"))
			mustExec(t, db, "DELETE FROM log", "DELETE FROM t", logTrigger)
		},
	}
	for how, come := range comes {
		for way, write := range waysToWrite {
			t.Run(how+", "+way, func(t *testing.T) {
				t.Parallel()
				db, path := plainStore(t)
				come(t, db, path)
				if strings.Contains(way, "open rows") {
					// Rows that were open first would not survive its being noticed.
					if err := write(t.Context(), db, loggedInsert); err != nil {
						require.ErrorContains(t, err, "close them")
					} else {
						mustExec(t, db, "DELETE FROM t", "DELETE FROM log")
					}
				}
				for range 2 {
					require.NoError(t, write(t.Context(), db, loggedInsert))
				}
				require.Equal(t, "2", value(t, db, "SELECT count(*) FROM t"))
				require.Equal(t, "2", value(t, db, "SELECT count(*) FROM log"))
				mustExec(t, db, "DROP TRIGGER IF EXISTS mine")
				require.NoError(t, write(t.Context(), db, loggedInsert))
				require.Equal(t, "2", value(t, db, "SELECT count(*) FROM log"), "and does not once it is dropped")
				requireCovered(t, path)
			})
		}
	}
}

func inTransaction(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, statements...)
	require.NoError(t, tx.Commit())
}

// Without triggers of its own to ask for it, the driver must ask.
func TestAnOwnerThatWasTakenOverWritesInNoWay(t *testing.T) {
	for way, write := range waysToWrite {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			db, path := plainStore(t)
			mustExec(t, openPlain(t, path), "BEGIN; DROP TRIGGER coop_fence_coop_owner_update; UPDATE coop_owner SET epoch = 7, fence = 77, app = 'newer'; COMMIT")
			for range 2 {
				err := write(t.Context(), db, loggedInsert)
				require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
				require.ErrorIs(t, err, coopsqlite.ErrFenced)
				require.ErrorContains(t, err, path)
				require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t"))
			}
		})
	}
}

func TestAStoreThatLostItsOwnerTableIsWrittenInEveryWay(t *testing.T) {
	for way, write := range waysToWrite {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			db, path := plainStore(t)
			mustExec(t, openPlain(t, path), "DROP TABLE coop_owner")
			require.NoError(t, write(t.Context(), db, loggedInsert))
			require.NoError(t, write(t.Context(), db, loggedInsert))
			require.Equal(t, "2", value(t, db, "SELECT count(*) FROM t"))
			requireCovered(t, path)
		})
	}
}

// An attached database may be a store with triggers that count.
func TestTriggersOfAnAttachedDatabaseFire(t *testing.T) {
	db, _ := plainStore(t)
	other := newPath(t)
	mustExec(t, openPlain(t, other), "CREATE TABLE t (a INTEGER PRIMARY KEY, b)", "CREATE TABLE log (b)", logTrigger)
	c := grab(t, db)
	defer c.Close()
	for _, s := range []string{loggedInsert, "ATTACH '" + other + "' AS other", "INSERT INTO other.t (b) VALUES ('y')", loggedInsert, "INSERT INTO other.t (b) VALUES ('z')"} {
		_, err := c.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
	require.NoError(t, readAll(c.QueryContext(t.Context(), "INSERT INTO other.t (b) VALUES ('zz') RETURNING a")))
	require.Equal(t, "y\nz\nzz", strings.Join(values(t, openPlain(t, other), "SELECT b FROM log ORDER BY b"), "\n"))
}

// A connection that others may write on asks row by row.
func TestAConnectionThatWasHandedOutKeepsItsTriggers(t *testing.T) {
	var hooked *sqlite3.SQLiteConn
	path := newPath(t)
	connector, err := coopsqlite.NewConnector(path+"?_coop_watch=0", &coopsqlite.Options{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		hooked = c
		return nil
	}})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	mustExec(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)", loggedInsert)
	mustExec(t, openPlain(t, path), "BEGIN; DROP TRIGGER coop_fence_coop_owner_update; UPDATE coop_owner SET epoch = 7, fence = 77; COMMIT")
	_, err = hooked.Exec(loggedInsert, nil)
	require.ErrorContains(t, err, "Coop writer superseded")

	for _, writesBetween := range []bool{false, true} {
		db, path = plainStore(t)
		c := grab(t, db)
		require.ErrorContains(t, c.Raw(func(driverConn any) error {
			kept, _ := coopsqlite.SQLiteConn(driverConn)
			if writesBetween {
				_, err := kept.Exec(loggedInsert, nil)
				require.NoError(t, err)
				_, err = driverConn.(driver.ExecerContext).ExecContext(t.Context(), loggedInsert, nil)
				require.NoError(t, err)
			}
			mustExec(t, openPlain(t, path), "BEGIN; DROP TRIGGER coop_fence_coop_owner_update; UPDATE coop_owner SET epoch = 7, fence = 77; COMMIT")
			_, err = kept.Exec(loggedInsert, nil)
			return err
		}), "Coop writer superseded")
		require.NoError(t, c.Close())
	}
}

// What RETURNING had written before it was found that it may not is undone, and
// other rows that are open go on.
func TestReturningThatMayNotWriteLeavesNothingBehind(t *testing.T) {
	db, path := plainStore(t)
	c := grab(t, db)
	defer c.Close()
	mustExec(t, db, loggedInsert, loggedInsert, loggedInsert)
	rows, err := c.QueryContext(t.Context(), "SELECT a FROM t ORDER BY a")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	mustExec(t, openPlain(t, path), "BEGIN; DROP TRIGGER coop_fence_coop_owner_update; UPDATE coop_owner SET epoch = 7, fence = 77; COMMIT")
	_, err = db.QueryContext(t.Context(), "UPDATE t SET b = 'y' RETURNING a")
	require.ErrorIs(t, err, coopsqlite.ErrSuperseded)
	require.True(t, rows.Next())
	require.True(t, rows.Next())
	require.NoError(t, rows.Close())
	require.Equal(t, "0", value(t, openPlain(t, path), "SELECT count(*) FROM t WHERE b = 'y'"))
}
