package leases_test

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/pgtest"
	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func openPostgres(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(pgtest.Driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS work (n integer)`)
	require.NoError(t, err)
	return db
}

func newManager(t *testing.T, db *sql.DB, o leases.Options) *leases.Manager {
	t.Helper()
	o.Dialect = leases.Postgres
	m, err := leases.New(db, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func countWork(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM work`).Scan(&n))
	return n
}

func insertWork(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES (1)`)
	return err
}

// proxy stands between a client and the server, and can break connections.
type proxy struct {
	dir      string
	listener net.Listener
	server   string
	cut      atomic.Bool // break each connection instead of passing on the answer to its next COMMIT

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgproxy")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &proxy{dir: dir, server: pgtest.Shared(t).Socket()}
	p.listener, err = net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.listener.Close(); p.breakAll() })
	go func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	var cutting atomic.Bool
	go func() {
		_, _ = io.Copy(server, readerFunc(func(b []byte) (int, error) {
			n, err := client.Read(b)
			if p.cut.Load() && bytes.Contains(b[:n], []byte("Q\x00\x00\x00\x0bcommit\x00")) {
				cutting.Store(true)
			}
			return n, err
		}))
		_ = server.Close()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil || cutting.Load() {
			return // the server has answered, but the client never hears of it
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) dsn(direct string) string {
	name := direct[bytes.Index([]byte(direct), []byte("dbname=")):]
	return "host=" + p.dir + " port=5432 user=postgres sslmode=disable " + name
}

func TestLeaseOutlivesBrokenConnections(t *testing.T) {
	direct := pgtest.Database(t)
	p := newProxy(t)
	db := openPostgres(t, p.dsn(direct))
	renewed := make(chan struct{}, 100)
	m := newManager(t, db, leases.Options{OnEvent: func(e leases.Event) {
		if e.Kind == leases.Renewed {
			renewed <- struct{}{}
		}
	}})
	err := m.With(t.Context(), "job", 3*time.Second, 0, func(ctx context.Context, l *leases.Lease) error {
		for range 3 {
			p.breakAll()
			<-renewed
			require.NoError(t, l.Err())
		}
		return l.Tx(ctx, insertWork)
	})
	require.NoError(t, err)
	require.Equal(t, 1, countWork(t, db))
}

func TestCommitWhoseAnswerIsLostHasAnUnknownOutcome(t *testing.T) {
	direct := pgtest.Database(t)
	p := newProxy(t)
	db, straight := openPostgres(t, p.dsn(direct)), openPostgres(t, direct)
	m := newManager(t, db, leases.Options{})
	l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)

	p.cut.Store(true)
	err = l.Tx(t.Context(), insertWork)
	require.ErrorIs(t, err, leases.ErrOutcomeUnknown)
	require.Equal(t, 1, countWork(t, straight), "here it was committed")
	require.NoError(t, l.Err(), "the lease is held all the same")

	err = l.Extend(t.Context(), 2*time.Hour)
	require.ErrorIs(t, err, leases.ErrOutcomeUnknown)
	before := l.Info()
	p.cut.Store(false)
	require.ErrorIs(t, l.Extend(t.Context(), time.Hour), leases.ErrNotExtended)
	require.True(t, l.Info().Expires.After(before.Expires), "the refusal tells what became of it")
}

func TestReleaseWhoseAnswerIsLostIsNotALoss(t *testing.T) {
	direct := pgtest.Database(t)
	p := newProxy(t)
	db := openPostgres(t, p.dsn(direct))
	other := newManager(t, openPostgres(t, direct), leases.Options{})
	m := newManager(t, db, leases.Options{})
	l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
	p.cut.Store(true)
	err = l.Release(t.Context())
	p.cut.Store(false)
	if err != nil {
		require.ErrorIs(t, err, leases.ErrOutcomeUnknown)
		require.NoError(t, l.Release(t.Context()))
	}
	require.ErrorIs(t, l.Err(), leases.ErrReleased)
	_, err = other.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
}

func TestAcquireWhoseAnswerIsLostLeavesNoLeaseBehind(t *testing.T) {
	direct := pgtest.Database(t)
	p := newProxy(t)
	db := openPostgres(t, p.dsn(direct))
	other := newManager(t, openPostgres(t, direct), leases.Options{})
	m := newManager(t, db, leases.Options{})
	_, err := m.Acquire(t.Context(), "other", time.Hour, 0) // so that the row's insert is not what fails
	require.NoError(t, err)
	p.cut.Store(true)
	time.AfterFunc(100*time.Millisecond, func() { p.cut.Store(false) })
	_, err = m.Acquire(t.Context(), "job", time.Hour, 0)
	require.ErrorIs(t, err, leases.ErrOutcomeUnknown)
	_, err = other.Acquire(t.Context(), "job", time.Hour, time.Minute)
	require.NoError(t, err)
}

func TestTransactionOfAVanishedHolderEndsWithItsLease(t *testing.T) {
	db := openPostgres(t, pgtest.Database(t))
	m := newManager(t, db, leases.Options{})
	l, err := m.Acquire(t.Context(), "job", 2*time.Second, 0)
	require.NoError(t, err)
	stuck := make(chan error)
	goOn := make(chan struct{})
	go func() {
		stuck <- l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			// A body that hears nothing: it neither uses ctx nor returns.
			if _, err := tx.Exec(`INSERT INTO work VALUES (1)`); err != nil {
				return err
			}
			<-goOn
			_, err := tx.Exec(`INSERT INTO work VALUES (2)`)
			return err
		})
	}()
	next, err := m.Acquire(t.Context(), "job", time.Hour, time.Minute)
	require.NoError(t, err)
	require.NoError(t, next.Tx(t.Context(), insertWork))
	close(goOn)
	require.ErrorIs(t, <-stuck, leases.ErrLost)
	require.Equal(t, 1, countWork(t, db))
}

func TestNobodyIsGrantedALeaseBetweenTheCheckOfATxAndItsCommit(t *testing.T) {
	dsn := pgtest.Database(t)
	other := openPostgres(t, dsn)
	var armed atomic.Bool
	db, err := leasetest.OpenObserved(pgtest.Driver, dsn, func(call string) {
		if call == "COMMIT" && armed.CompareAndSwap(true, false) {
			// A grant begins by locking the row like this.
			_, err := other.Exec(`SELECT 1 FROM coop_leases WHERE name = 'job' FOR UPDATE NOWAIT`)
			require.ErrorContains(t, err, "could not obtain lock")
		}
	}, nil)
	require.NoError(t, err)
	defer db.Close()
	m := newManager(t, db, leases.Options{})
	l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
	armed.Store(true)
	require.NoError(t, l.Tx(t.Context(), insertWork))
	require.False(t, armed.Load())
	_, err = other.Exec(`SELECT 1 FROM coop_leases WHERE name = 'job' FOR UPDATE NOWAIT`)
	require.NoError(t, err)
}

func TestHolderThatVanishedBeforeItsCommitFreesTheRowWhenItsLeaseEnds(t *testing.T) {
	dsn := pgtest.Database(t)
	next := newManager(t, openPostgres(t, dsn), leases.Options{})
	var armed atomic.Bool
	var granted *leases.Lease
	db, err := leasetest.OpenObserved(pgtest.Driver, dsn, func(call string) {
		if call == "COMMIT" && armed.CompareAndSwap(true, false) {
			var err error
			granted, err = next.Acquire(t.Context(), "job", time.Hour, -1)
			require.NoError(t, err)
		}
	}, nil)
	require.NoError(t, err)
	defer db.Close()
	m := newManager(t, db, leases.Options{})
	l, err := m.Acquire(t.Context(), "job", 6*time.Second, 0)
	require.NoError(t, err)
	armed.Store(true)
	require.Error(t, l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		time.Sleep(4 * time.Second) // a body that has used up much of its time
		return insertWork(ctx, tx)
	}))
	require.False(t, armed.Load())
	require.Zero(t, countWork(t, db))
	late := granted.Info().Acquired.Sub(l.Info().Expires)
	require.GreaterOrEqual(t, late, time.Duration(0))
	require.Less(t, late, 3*time.Second, "it was bound to what remained at the end, not at the beginning")
}

func TestServersClockIsReadAfterTheWaitForTheRow(t *testing.T) {
	db := openPostgres(t, pgtest.Database(t))
	m := newManager(t, db, leases.Options{Margin: -1})
	l, err := m.Acquire(t.Context(), "job", time.Second, 0)
	require.NoError(t, err)
	// Somebody else locks the row until the lease has expired. The renewal,
	// which started in time, must not succeed when it gets the lock.
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec(`SELECT 1 FROM coop_leases WHERE name = 'job' FOR UPDATE`)
	require.NoError(t, err)
	before, _, err := m.Owner(t.Context(), "job")
	require.NoError(t, err)
	extended := make(chan error)
	go func() { extended <- l.Extend(t.Context(), time.Hour) }()
	require.Eventually(t, func() bool {
		var expired bool
		err := db.QueryRow(`SELECT expires < extract(epoch FROM clock_timestamp()) * 1000000000 FROM coop_leases WHERE name = 'job'`).Scan(&expired)
		return err == nil && expired
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, <-extended, leases.ErrLost)
	var expires int64
	require.NoError(t, db.QueryRow(`SELECT expires FROM coop_leases WHERE name = 'job'`).Scan(&expires))
	require.Equal(t, before.Expires.UnixNano(), expires)
}

func TestStoreIsNotWaitedForBeyondOpTimeout(t *testing.T) {
	db := openPostgres(t, pgtest.Database(t))
	m := newManager(t, db, leases.Options{OpTimeout: 2 * time.Second})
	_, err := m.Acquire(t.Context(), "job", 0, 0)
	require.NoError(t, err)
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec(`SELECT 1 FROM coop_leases WHERE name = 'job' FOR UPDATE`)
	require.NoError(t, err)
	_, err = m.Acquire(t.Context(), "job", time.Hour, -1)
	require.Error(t, err)
	require.NotErrorIs(t, err, leases.ErrHeld)
}

func TestManyManagersCreateTheTablesAtOnce(t *testing.T) {
	for range 5 {
		dsn := pgtest.Database(t)
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 16 {
			db := openPostgres(t, dsn) // connected, so that they start together
			all.Go(func() {
				<-start
				if _, err := leases.New(db, &leases.Options{Dialect: leases.Postgres}); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
	}
}

func TestTableMayLieInAnotherSchema(t *testing.T) {
	db := openPostgres(t, pgtest.Database(t))
	_, err := db.Exec(`CREATE SCHEMA "Other One"`)
	require.NoError(t, err)
	m := newManager(t, db, leases.Options{Table: `Other One.my "leases"`})
	l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
	require.NoError(t, err)
	_, err = m.RaiseEpochs(t.Context(), 5)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	var n int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM "Other One"."my ""leases"""`).Scan(&n))
	require.Equal(t, 2, n)
}

func TestLeaseChangesAreDurableWhateverTheSessionSays(t *testing.T) {
	dsn := pgtest.Database(t)
	admin := openPostgres(t, dsn)
	newManager(t, admin, leases.Options{})
	_, err := admin.Exec(`
CREATE TABLE seen (synchronous_commit text, lock_timeout text);
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO seen VALUES (current_setting('synchronous_commit'), current_setting('lock_timeout'));
	RETURN NEW;
END $$;
CREATE TRIGGER look BEFORE UPDATE ON coop_leases FOR EACH ROW EXECUTE FUNCTION look();`)
	require.NoError(t, err)
	for session, want := range map[string]string{"off": "on", "local": "on", "on": "on", "remote_apply": "remote_apply"} {
		_, err = admin.Exec(`DELETE FROM seen`)
		require.NoError(t, err)
		m := newManager(t, openPostgres(t, dsn+" synchronous_commit="+session), leases.Options{OpTimeout: 5 * time.Second})
		l, err := m.Acquire(t.Context(), "job-"+session, time.Hour, 0)
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context(), 2*time.Hour))
		require.NoError(t, l.Release(t.Context()))
		rows, err := admin.Query(`SELECT synchronous_commit, lock_timeout FROM seen`)
		require.NoError(t, err)
		n := 0
		for ; rows.Next(); n++ {
			var commit, timeout string
			require.NoError(t, rows.Scan(&commit, &timeout))
			require.Equal(t, want, commit, session)
			require.NotEqual(t, "0", timeout, "no lock is waited for without limit")
		}
		require.NoError(t, rows.Close())
		require.Equal(t, 3, n)
	}
}
