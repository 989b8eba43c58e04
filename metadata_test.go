package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// contextOf asks what coop_context answers for some keys.
func contextOf(t testing.TB, ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) string {
	t.Helper()
	var answer string
	require.NoError(t, db.QueryRowContext(ctx, "SELECT concat_ws(' ', 'actor=' || coop_context('actor'), 'request=' || coop_context('request'))").Scan(&answer))
	return answer
}

func with(pairs ...string) context.Context {
	return coopsqlite.WithMetadata(context.Background(), pairs[0], pairs[1], pairs[2:]...)
}

func TestAKeyComesFromTheStatementThenTheTransactionThenTheDSN(t *testing.T) {
	db := open(t, newPath(t)+"?_coop_actor=service")
	bare := context.Background()
	require.Equal(t, "actor=service", contextOf(t, bare, db))
	require.Equal(t, "actor=service request=r", contextOf(t, with("request", "r"), db))
	require.Equal(t, "actor=alice", contextOf(t, with("actor", "alice"), db))
	for _, options := range []*sql.TxOptions{nil, {ReadOnly: true}} {
		tx, err := db.BeginTx(with("actor", "bob", "request", "of the transaction"), options)
		require.NoError(t, err)
		require.Equal(t, "actor=bob request=of the transaction", contextOf(t, bare, tx))
		require.Equal(t, "actor=carol request=of the transaction", contextOf(t, with("actor", "carol"), tx))
		require.Equal(t, "actor=bob request=own", contextOf(t, with("request", "own"), tx))
		require.Equal(t, "actor= request=of the transaction", contextOf(t, with("actor", ""), tx))
		require.NoError(t, tx.Rollback())
		require.Equal(t, "actor=service", contextOf(t, bare, db))
	}
}

func TestAContextAddsToTheOneBefore(t *testing.T) {
	db := open(t, newPath(t))
	parent := with("actor", "alice", "request", "1")
	child := coopsqlite.WithMetadata(parent, "request", "2")
	require.Equal(t, "actor=alice request=2", contextOf(t, child, db))
	require.Equal(t, "actor=alice request=1", contextOf(t, parent, db), "and leaves it as it is")
}

func TestValuesOfMetadataAreTakenAsTheyAre(t *testing.T) {
	db := open(t, newPath(t))
	for _, v := range []string{"", "a\x00b", "'; DROP TABLE t; --", "ünï 𝄞", "fence", "\xff"} {
		var got string
		require.NoError(t, db.QueryRowContext(with("k\x00", v), "SELECT coop_context(?)", "k\x00").Scan(&got))
		require.Equal(t, v, got)
		require.NoError(t, db.QueryRowContext(with("", v), "SELECT coop_context('')").Scan(&got))
		require.Equal(t, v, got)
	}
}

func TestMetadataNeverReachesTheNextUserOfAConnection(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL")
	db.SetMaxOpenConns(1)
	mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, actor DEFAULT (coop_context('actor')))")
	bare := context.Background()
	for name, use := range map[string]func(ctx context.Context) error{
		"a statement": func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "INSERT INTO t DEFAULT VALUES")
			return err
		},
		"one that fails": func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "INSERT INTO t(id) VALUES(NULL),('no number')")
			require.Error(t, err)
			return nil
		},
		"a transaction": func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO t DEFAULT VALUES")
			return tx.Commit()
		},
		"one that is abandoned": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			cancel()
			_ = tx.Rollback()
			return nil
		},
		"a raw transaction": func(ctx context.Context) error {
			conn, err := db.Conn(bare)
			require.NoError(t, err)
			_, err = conn.ExecContext(ctx, "BEGIN; INSERT INTO t DEFAULT VALUES")
			require.NoError(t, err)
			return conn.Close()
		},
		"rows": func(ctx context.Context) error {
			rows, err := db.QueryContext(ctx, "INSERT INTO t DEFAULT VALUES RETURNING id")
			require.NoError(t, err)
			return rows.Close()
		},
		"a prepared statement": func(ctx context.Context) error {
			stmt, err := db.PrepareContext(ctx, "INSERT INTO t DEFAULT VALUES")
			require.NoError(t, err)
			_, err = stmt.ExecContext(ctx)
			require.NoError(t, err)
			return stmt.Close()
		},
		"Write": func(ctx context.Context) error {
			return storeOf(t, db).Write(ctx, func(tx coopsqlite.DBTX) error {
				_, err := tx.ExecContext(bare, "INSERT INTO t DEFAULT VALUES")
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, use(with("actor", "alice")))
			require.Empty(t, contextOf(t, bare, db))
			mustExec(t, db, "INSERT INTO t DEFAULT VALUES")
			require.Equal(t, "NULL", value(t, db, "SELECT actor FROM t ORDER BY id DESC LIMIT 1"))
		})
	}
}

func TestManyUsersOfAPoolKeepTheirMetadataApart(t *testing.T) {
	db := open(t, newPath(t)+"?_journal_mode=WAL&_synchronous=off")
	mustExec(t, db, "CREATE TABLE t(want, got DEFAULT (coop_context('actor')))")
	var all sync.WaitGroup
	for user := range 16 {
		all.Go(func() {
			want := fmt.Sprint(user)
			ctx := context.Background()
			if user%4 != 0 { // a quarter has none
				ctx = with("actor", want)
			} else {
				want = "nobody"
			}
			for range 20 {
				_, err := db.ExecContext(ctx, "INSERT INTO t(want) VALUES(?)", want)
				require.NoError(t, err)
				var actor string
				require.NoError(t, db.QueryRowContext(ctx, "SELECT ifnull(coop_context('actor'), 'nobody')").Scan(&actor))
				require.Equal(t, want, actor)
			}
		})
	}
	all.Wait()
	require.Equal(t, "0", value(t, db, "SELECT count(*) FROM t WHERE want != ifnull(got, 'nobody')"))
}

func TestTheUsersOwnTriggersDefaultsAndViewsMayAskForMetadata(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "PRAGMA trusted_schema=OFF",
		"CREATE TABLE t(a, by TEXT DEFAULT (coop_context('actor')))", "CREATE TABLE log(a, by)",
		"CREATE TRIGGER tl AFTER INSERT ON t BEGIN INSERT INTO log VALUES(NEW.a, coop_context('actor')); END",
		"CREATE VIEW mine AS SELECT a FROM t WHERE by = coop_context('actor')")
	for _, actor := range []string{"alice", "bob"} {
		_, err := db.ExecContext(with("actor", actor), "INSERT INTO t(a) VALUES(?)", "of "+actor)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"of alice", "alice", "of bob", "bob"}, values(t, db, "SELECT * FROM log"))
	reader := open(t, "file:"+path+"?mode=ro&_coop_actor=bob")
	for actor, pool := range map[string]*sql.DB{"alice": db, "bob": reader} {
		var mine string
		require.NoError(t, pool.QueryRowContext(with("actor", actor), "SELECT a FROM mine").Scan(&mine))
		require.Equal(t, "of "+actor, mine)
	}
	require.Equal(t, "of bob", value(t, reader, "SELECT a FROM mine"), "a reader has an actor too")
}

func TestRowsKeepTheMetadataOfTheirOwnStatement(t *testing.T) {
	db := open(t, newPath(t))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	rows, err := conn.QueryContext(with("actor", "alice"), "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<5) SELECT coop_context('actor') FROM n")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var actor string
		require.NoError(t, rows.Scan(&actor))
		require.Equal(t, "alice", actor)
		require.Equal(t, "actor=bob", contextOf(t, with("actor", "bob"), conn))
	}
	require.NoError(t, rows.Err())
}

func TestTheFenceIsNoMetadata(t *testing.T) {
	db := open(t, newPath(t))
	var fence any
	require.NoError(t, db.QueryRowContext(with("fence", "forged"), "SELECT coop_context('fence')").Scan(&fence))
	require.IsType(t, int64(0), fence)
}
