package coopsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// follow sends the changes that come after a number to a channel, which it
// closes when they end, and puts the error into *err before that.
func follow(ctx context.Context, store *coopsqlite.Store, after int64, err *error) <-chan coopsqlite.Change {
	changes := make(chan coopsqlite.Change)
	go func() {
		defer close(changes)
		for change, e := range store.Follow(ctx, after) {
			if e != nil {
				*err = e
				return
			}
			select {
			case changes <- change:
			case <-ctx.Done():
				*err = ctx.Err()
				return
			}
		}
	}()
	return changes
}

// receive waits for a change.
func receive(t testing.TB, changes <-chan coopsqlite.Change) coopsqlite.Change {
	t.Helper()
	select {
	case c, ok := <-changes:
		require.True(t, ok, "the feed has ended")
		return c
	case <-time.After(patience):
		require.Fail(t, "no change has come")
		return coopsqlite.Change{}
	}
}

// feedError is the error with which the feed after a number ends.
func feedError(t testing.TB, db *sql.DB, after int64) (last error) {
	t.Helper()
	for _, err := range storeOf(t, db).Changes(t.Context(), after) {
		last = err
	}
	return last
}

func TestFollowYieldsWhatIsThereAndThenWhatComes(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)", "INSERT INTO t VALUES(2)")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var err error
	changes := follow(ctx, storeOf(t, db), 1, &err)
	require.Equal(t, int64(2), receive(t, changes).Seq)
	for seq := int64(3); seq < 20; seq++ {
		mustExec(t, db, "INSERT INTO t VALUES(3)")
		require.Equal(t, seq, receive(t, changes).Seq)
	}
	cancel()
	for range changes {
	}
	require.ErrorIs(t, err, context.Canceled)
}

func TestFollowAsksNothingWhileNothingIsCommitted(t *testing.T) {
	db := openTracked(t, "&_coop_watch=0", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	store := storeOf(t, db)
	var err error
	changes := follow(t.Context(), store, 0, &err)
	receive(t, changes)
	asked := func() int64 { s := store.Stats(); return s.StmtHits + s.StmtMisses }
	require.Eventually(t, func() bool {
		before := asked()
		time.Sleep(200 * time.Millisecond) // four times the interval of a poll
		return asked() == before
	}, patience, time.Millisecond)
	mustExec(t, db, "INSERT INTO t VALUES(2)")
	receive(t, changes)
}

func TestFollowEndsWhenThePoolIsClosed(t *testing.T) {
	for name, parameters := range map[string]string{"the owner's": "", "a reader's": "?mode=ro", "one of two": "?_coop_owner=process&_coop_changes=*"} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			db := open(t, path+"?_journal_mode=WAL&_coop_owner=process&_coop_changes=*")
			mustExec(t, db, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
			if parameters != "" {
				db = open(t, "file:"+path+parameters)
			}
			var err error
			changes := follow(t.Context(), storeOf(t, db), 0, &err)
			receive(t, changes)
			require.NoError(t, db.Close())
			for range changes {
			}
			require.ErrorIs(t, err, coopsqlite.ErrStopped)
		})
	}
}

func TestFollowIsWokenByWritesOnMattnsConnectionToo(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	var err error
	changes := follow(t.Context(), storeOf(t, db), 0, &err)
	receive(t, changes)
	for seq := int64(2); seq < 5; seq++ {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.Raw(func(dc any) error {
			source, ok := coopsqlite.SQLiteConn(dc)
			require.True(t, ok)
			_, err := source.Exec("INSERT INTO t VALUES(2)", nil)
			return err
		}))
		require.NoError(t, conn.Close())
		require.Equal(t, seq, receive(t, changes).Tx)
	}
}

func TestFollowEndsWithTheLoop(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1),(2),(3)")
	for change, err := range storeOf(t, db).Follow(t.Context(), 0) {
		require.NoError(t, err)
		if change.Seq == 2 {
			break
		}
	}
	for change, err := range storeOf(t, db).Changes(t.Context(), 0) {
		require.NoError(t, err)
		if change.Seq == 2 {
			break
		}
	}
}

func TestTheLoopsBodyMayWrite(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1),(2),(3)")
	db.SetMaxOpenConns(1)
	n := 0
	for change, err := range storeOf(t, db).Changes(t.Context(), 0) {
		require.NoError(t, err)
		if change.Seq <= 3 {
			mustExec(t, db, "INSERT INTO t VALUES(4)")
		}
		n++
	}
	require.Equal(t, 6, n)
}

func TestAReaderFollowsTheOwnerInAnotherProcess(t *testing.T) {
	path := newPath(t)
	owner := start(t, roleOwner, path+"?_journal_mode=WAL&_coop_changes=*&_coop_actor=other")
	require.Empty(t, owner.opened.Err)
	require.Empty(t, owner.try("CREATE TABLE t(a)"))
	db := open(t, "file:"+path+"?mode=ro")
	var err error
	changes := follow(t.Context(), storeOf(t, db), 0, &err)
	for seq := int64(1); seq < 10; seq++ {
		require.Empty(t, owner.try("INSERT INTO t VALUES(1)"))
		c := receive(t, changes)
		require.Equal(t, seq, c.Seq)
		require.Equal(t, "other", c.Actor)
	}
}

func TestAMemberOfASharedGroupFollowsTheOthers(t *testing.T) {
	dsn := newPath(t) + "?_journal_mode=WAL&_coop_changes=*&_coop_owner=shared"
	db := open(t, dsn)
	mustExec(t, db, "CREATE TABLE t(a)")
	other := start(t, roleOwner, dsn)
	require.Empty(t, other.opened.Err)
	var err error
	changes := follow(t.Context(), storeOf(t, db), 0, &err)
	for seq := int64(1); seq < 10; seq += 2 {
		require.Empty(t, other.try("INSERT INTO t VALUES(1)"))
		require.Equal(t, seq, receive(t, changes).Tx)
		mustExec(t, db, "INSERT INTO t VALUES(2)")
		require.Equal(t, seq+1, receive(t, changes).Tx)
	}
}

func TestAStoreWithoutChangesSaysSo(t *testing.T) {
	path := newPath(t)
	db := open(t, path)
	mustExec(t, db, "CREATE TABLE t(a)")
	reader := open(t, "file:"+path+"?mode=ro")
	for _, db := range []*sql.DB{db, reader} {
		store := storeOf(t, db)
		for _, feed := range []func(context.Context, int64) func(func(coopsqlite.Change, error) bool){
			func(ctx context.Context, after int64) func(func(coopsqlite.Change, error) bool) {
				return store.Changes(ctx, after)
			},
			func(ctx context.Context, after int64) func(func(coopsqlite.Change, error) bool) {
				return store.Follow(ctx, after)
			},
		} {
			n := 0
			for _, err := range feed(t.Context(), 0) {
				require.ErrorIs(t, err, coopsqlite.ErrNoChanges)
				n++
			}
			require.Equal(t, 1, n)
		}
		_, err := store.SeqAt(t.Context(), time.Now())
		require.ErrorIs(t, err, coopsqlite.ErrNoChanges)
	}
	_, err := storeOf(t, db).PruneChanges(t.Context(), 1)
	require.ErrorIs(t, err, coopsqlite.ErrNoChanges)
	_, err = storeOf(t, reader).PruneChanges(t.Context(), 1)
	require.ErrorContains(t, err, "readonly")
}

func TestPrunedChangesAreMissedAloud(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1),(2),(3),(4),(5)")
	store := storeOf(t, db)
	n, err := store.PruneChanges(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, int64(3), n)
	require.Len(t, feedOf(t, db, 0), 2, "from the oldest that is there")
	require.Len(t, feedOf(t, db, 3), 2)
	require.Len(t, feedOf(t, db, 4), 1)
	for _, after := range []int64{1, 2, 6} {
		require.ErrorIs(t, feedError(t, db, after), coopsqlite.ErrChangesMissing, after)
	}
	// Also if they go while somebody reads.
	mustExec(t, db, "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<1000) INSERT INTO t SELECT x FROM n")
	var last error
	for change, err := range store.Changes(t.Context(), 0) {
		if last = err; err == nil && change.Seq == 10 {
			_, err = store.PruneChanges(t.Context(), 900)
			require.NoError(t, err)
		}
	}
	require.ErrorIs(t, last, coopsqlite.ErrChangesMissing)
}

func TestTheNewestChangeIsNeverDeleted(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1),(2),(3)")
	n, err := storeOf(t, db).PruneChanges(t.Context(), 1000)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	n, err = storeOf(t, db).PruneChanges(t.Context(), 1000)
	require.NoError(t, err)
	require.Zero(t, n)
	mustExec(t, db, "DELETE FROM coop_changes", "INSERT INTO t VALUES(4)")
	require.Equal(t, int64(4), feedOf(t, db, 3)[0].Seq)
}

func TestPruningLetsWritersThrough(t *testing.T) {
	db := openTracked(t, "&_synchronous=off", "CREATE TABLE t(a)",
		"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<60000) INSERT INTO t SELECT x FROM n")
	done := make(chan error, 1)
	go func() {
		_, err := storeOf(t, db).PruneChanges(t.Context(), 60000)
		done <- err
	}()
	for written := 0; ; written++ {
		select {
		case err := <-done:
			require.NoError(t, err)
			require.Greater(t, written, 3)
			return
		default:
			mustExec(t, db, "INSERT INTO t VALUES(0)")
		}
	}
}

func TestPruningEndsWithItsContext(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)", "INSERT INTO t VALUES(1),(2)")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := storeOf(t, db).PruneChanges(ctx, 2)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, feedOf(t, db, 0), 2)
}

func TestSeqAtIsTheLastChangeBeforeATime(t *testing.T) {
	db := openTracked(t, "", "CREATE TABLE t(a)")
	store := storeOf(t, db)
	at := func(when time.Time) int64 {
		seq, err := store.SeqAt(t.Context(), when)
		require.NoError(t, err)
		return seq
	}
	require.Zero(t, at(time.Now()))
	for range 40 {
		mustExec(t, db, "INSERT INTO t VALUES(1)")
	}
	// The clock is the machine's: spread the changes over forty seconds.
	mustExec(t, db, "UPDATE coop_changes SET time = 1000000 * seq")
	second := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for n := 1; n <= 40; n++ {
		require.Equal(t, int64(n-1), at(second(n)))
		require.Equal(t, int64(n), at(second(n).Add(time.Microsecond)))
	}
	_, err := store.PruneChanges(t.Context(), at(second(30))+1)
	require.NoError(t, err)
	require.Equal(t, int64(30), feedOf(t, db, 0)[0].Seq)
	require.Equal(t, int64(29), at(second(1)))
	require.Equal(t, int64(40), at(time.Now()))
}

// roleWriters writes to a store until it is killed.
const (
	roleWriters = "writers"
	writers     = 16
)

// writeForEver has writers change table t in transactions of all kinds. What
// it rolls back has a negative n.
func writeForEver(dsn string) {
	db, err := sql.Open("coopsqlite", dsn)
	if err == nil {
		_, err = db.Exec("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, w, n UNIQUE)")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for {
				ctx := coopsqlite.WithMetadata(context.Background(), "actor", fmt.Sprint(w))
				if err := writeOnce(ctx, db, w); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		})
	}
	fmt.Println("{}")
	all.Wait()
}

func writeOnce(ctx context.Context, db *sql.DB, w int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	abandon := rand.IntN(3) == 0
	for range 1 + rand.IntN(4) {
		n := rand.IntN(200)
		statement := []string{
			"INSERT INTO t(w,n) VALUES(?,?) ON CONFLICT DO UPDATE SET w=excluded.w", "REPLACE INTO t(w,n) VALUES(?,?)", "DELETE FROM t WHERE w=? OR n=?",
			"UPDATE OR REPLACE t SET w=?, n=? WHERE n % 7 = 0",
		}[rand.IntN(4)]
		if abandon {
			n = -1
		}
		if _, err := tx.Exec(statement, w, n); err != nil {
			return err
		}
	}
	if abandon {
		return nil
	}
	return tx.Commit()
}

func TestAConsumerSeesEveryCommittedChangeOnceAcrossCrashes(t *testing.T) {
	path := newPath(t)
	dsn := path + "?_journal_mode=WAL&_synchronous=NORMAL&_coop_changes=*&_coop_wait=30s"
	copied := replica{}
	var last int64
	actors := map[string]bool{}
	consume := func(c coopsqlite.Change) {
		require.Equal(t, last+1, c.Seq)
		last = c.Seq
		n, _ := c.New.Get("n")
		require.NotEqual(t, int64(-1), n, "rolled back: %s", said(c))
		require.NoError(t, copied.apply(c, []string{"id"}))
		actors[c.Actor] = true
	}
	const crashes, between = 4, 400
	for range crashes {
		owner := start(t, roleWriters, dsn)
		reader := open(t, "file:"+path+"?mode=ro")
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		changes := follow(ctx, storeOf(t, reader), last, &err)
		for range between {
			consume(receive(t, changes))
		}
		owner.kill()
		// The consumer ends as well, with changes on their way to it.
		cancel()
		for range changes {
		}
		require.NoError(t, reader.Close())
	}
	db := open(t, dsn)
	for _, c := range feedOf(t, db, last) {
		consume(c)
	}
	require.Equal(t, read(t, db, "t", []string{"id"}, []string{"id", "w", "n"}), copied["t"])
	require.Len(t, actors, writers)
	require.Equal(t, []string{"ok"}, values(t, db, "PRAGMA integrity_check"))
	require.Equal(t, fmt.Sprint(last), value(t, db, "SELECT max(seq) FROM coop_changes"))
}
