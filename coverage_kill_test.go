package coopsqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// roleBuilder takes a store over and changes its schema without end: it is
// there to be killed.
const roleBuilder = "builder"

func playBuilder(path string) {
	fmt.Println("starting")
	err := build(path)
	fmt.Println(err)
}

func build(path string) error {
	db, err := sql.Open("coopsqlite", path+"?_coop_watch=1ms")
	if err != nil {
		return err
	}
	store, err := coopsqlite.StoreOf(db)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := 0; ; i++ {
		_, err := db.Exec(fmt.Sprintf("CREATE TABLE made%d (a); ALTER TABLE t0 RENAME TO x; CREATE TABLE t0 (a); DROP TABLE x", i))
		if err == nil {
			err = store.Bulk(ctx, []string{"t1", "t2"}, func(tx coopsqlite.DBTX) error {
				return execAll(ctx, tx, []string{"DELETE FROM t1", "INSERT INTO t2 SELECT 1 FROM t1", "INSERT INTO t1 VALUES (1)", "ALTER TABLE t2 RENAME TO x", "ALTER TABLE x RENAME TO t2"})
			})
		}
		if err == nil {
			_, err = db.Exec(fmt.Sprintf("BEGIN; DROP TABLE made%d; DROP TABLE coop_owner; INSERT INTO t3 VALUES (1); COMMIT", i))
		}
		if err != nil {
			return err
		}
	}
}

// Whenever an owner is killed, the store is as it was before it came or all of
// it is fenced, and the next owner finds nothing broken.
func TestKilledOwnerLeavesTheStoreCoveredOrUntouched(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	random := rand.New(rand.NewPCG(1, 1))
	untouched, covered := 0, 0
	for range rounds {
		path := newPath(t)
		outside := openPlain(t, path)
		tx, err := outside.Begin()
		require.NoError(t, err)
		for i := range 100 {
			mustExec(t, tx, fmt.Sprintf("CREATE TABLE t%d (a)", i))
		}
		if random.IntN(2) == 0 {
			mustExec(t, tx, ownTrigger)
		}
		require.NoError(t, tx.Commit())

		cmd := roleCommand(roleBuilder, path)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(stdout)
		require.True(t, lines.Scan())
		time.Sleep(time.Duration(random.IntN(80)) * time.Millisecond) // any moment will do
		require.NoError(t, cmd.Process.Kill())
		if lines.Scan() {
			require.Fail(t, "the builder has ended", lines.Text())
		}
		cmd.Wait()

		if n := value(t, outside, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'coop%'"); n == "0" {
			untouched++
		} else {
			require.Empty(t, gaps(t, outside))
			covered++
		}
		db := open(t, path)
		require.Empty(t, gaps(t, outside))
		mustExec(t, db, "INSERT INTO t1 VALUES (2)", "CREATE TABLE after_all (a)")
		require.Empty(t, gaps(t, outside))
		require.Equal(t, "ok", value(t, db, "PRAGMA integrity_check"))
		require.NoError(t, db.Close())
	}
	t.Logf("untouched %d, covered %d", untouched, covered)
}
