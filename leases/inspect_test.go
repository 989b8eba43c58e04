package leases_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func TestAllListsWhatIsHeldInOrderAndInPages(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sql.DB) {
		db.SetMaxOpenConns(1) // All holds no connection while it yields
		m := manager(t, db, leases.Options{})
		var want []string
		for i := range 600 {
			name := fmt.Sprintf("a/%04d", i)
			l, err := m.Acquire(t.Context(), name, time.Hour, 0)
			require.NoError(t, err)
			if i%3 == 0 {
				require.NoError(t, l.Release(t.Context()))
			} else {
				want = append(want, name)
			}
		}
		_, err := m.Acquire(t.Context(), "b", time.Hour, 0)
		require.NoError(t, err)
		var got []string
		for info, err := range m.All(t.Context(), "a/") {
			require.NoError(t, err)
			got = append(got, info.Name)
			_, held, err := m.Owner(t.Context(), info.Name)
			require.NoError(t, err)
			require.True(t, held)
		}
		require.Equal(t, want, got)
	})
}

func TestRaisedEpochsExceedAllThatWereGranted(t *testing.T) {
	m := manager(t, open(t, plain(t)), leases.Options{})
	held, err := m.Acquire(t.Context(), "held", time.Hour, 0)
	require.NoError(t, err)
	for range 3 {
		_, err := m.Acquire(t.Context(), "busy", 0, 0)
		require.NoError(t, err)
	}
	floor, err := m.RaiseEpochs(t.Context(), 1000)
	require.NoError(t, err)
	require.EqualValues(t, 1003, floor)
	for i, name := range []string{"busy", "never seen", "never seen"} {
		l, err := m.Acquire(t.Context(), name, 0, 0)
		require.NoError(t, err)
		require.EqualValues(t, floor+1+int64(i/2), l.Info().Epoch, name)
	}
	require.NoError(t, held.Extend(t.Context(), 2*time.Hour), "leases that are held stay held")
	again, err := m.RaiseEpochs(t.Context(), 1)
	require.NoError(t, err)
	require.Greater(t, again, floor)
	_, err = m.RaiseEpochs(t.Context(), 0)
	require.ErrorIs(t, err, leases.ErrBounds)
}

func TestEventsTellTheLifeOfALease(t *testing.T) {
	var events []leases.Event
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	m := manager(t, open(t, plain(t)), leases.Options{
		Clock: clock, Margin: -1, OnEvent: func(e leases.Event) { events = append(events, e) },
	})
	l, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	clock.Advance(time.Second)
	require.NoError(t, l.Extend(t.Context(), 10*time.Second))
	require.NoError(t, l.Release(t.Context()))
	l, err = m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	require.NoError(t, m.Break(t.Context(), "job", l.Info().Epoch))
	clock.Advance(10 * time.Second)
	require.Error(t, l.Err())
	require.Error(t, l.Err())
	var kinds []string
	for _, e := range events {
		require.Equal(t, "job", e.Info.Name)
		kinds = append(kinds, e.Kind.String())
	}
	require.Equal(t, []string{"granted", "renewed", "released", "granted", "broken", "lost"}, kinds)
	require.ErrorIs(t, events[5].Err, leases.ErrLost)
}

func TestLoggerHearsOfLossesAndFailedRenewals(t *testing.T) {
	var failing atomic.Bool
	db := observed(t, plain(t), nil, func(string) error {
		if failing.Load() {
			return errors.New("no answer")
		}
		return nil
	})
	var heard bytes.Buffer
	clock := leasetest.NewClock(time.Unix(1_000_000, 0))
	m := manager(t, db, leases.Options{Clock: clock, Margin: -1, Logger: slog.New(slog.NewTextHandler(&heard, nil))})
	l, err := m.Acquire(t.Context(), "job", 10*time.Second, 0)
	require.NoError(t, err)
	require.Empty(t, heard.String(), "what goes well is not worth a line")
	failing.Store(true)
	clock.Advance(5 * time.Second)
	require.Error(t, l.Extend(t.Context(), 10*time.Second))
	clock.Advance(5 * time.Second)
	require.Error(t, l.Err())
	lines := strings.Split(strings.TrimSpace(heard.String()), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `level=WARN msg="lease not renewed" name=job epoch=1`)
	require.Contains(t, lines[1], `level=ERROR msg="lease lost" name=job epoch=1`)
}

func TestTableMayHaveAnyName(t *testing.T) {
	db := open(t, plain(t))
	for _, table := range []string{`my "leases"`, "select", "Über leases", "side.leases"} {
		t.Run(table, func(t *testing.T) {
			if strings.HasPrefix(table, "side.") {
				db.SetMaxOpenConns(1) // a database is attached to one connection
				_, err := db.Exec(`ATTACH ? AS side`, filepath.Join(t.TempDir(), "side.db"))
				require.NoError(t, err)
			}
			m := manager(t, db, leases.Options{Table: table})
			l, err := m.Acquire(t.Context(), "job", time.Hour, 0)
			require.NoError(t, err)
			require.NoError(t, l.Extend(t.Context(), 2*time.Hour))
			_, err = m.RaiseEpochs(t.Context(), 5)
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
			manager(t, db, leases.Options{Table: table}) // it finds its table again
		})
	}
	for _, table := range []string{".", "a.b.c", "a\x00b"} {
		_, err := leases.New(db, &leases.Options{Table: table})
		require.Error(t, err)
	}
}

func TestSchemaIsWhatNewWouldCreate(t *testing.T) {
	db := open(t, plain(t))
	_, err := db.Exec(leases.Schema(leases.SQLite))
	require.NoError(t, err)
	var before, after int
	require.NoError(t, db.QueryRow(`PRAGMA schema_version`).Scan(&before))
	manager(t, db, leases.Options{})
	require.NoError(t, db.QueryRow(`PRAGMA schema_version`).Scan(&after))
	require.Equal(t, before, after, "no DDL runs where the tables are there")
}

func TestOptionsOutOfBoundsAreRefused(t *testing.T) {
	db := open(t, plain(t))
	for _, o := range []leases.Options{
		{Owner: strings.Repeat("x", 256)}, {Owner: "a\x00b"}, {Owner: "\xff"}, {MaxTTL: -1}, {MaxLifetime: -1}, {OpTimeout: -1},
	} {
		_, err := leases.New(db, &o)
		require.ErrorIs(t, err, leases.ErrBounds, "%+v", o)
	}
	_, err := leases.New(db, &leases.Options{Dialect: 7})
	require.Error(t, err)
	_, err = leases.New(nil, nil)
	require.Error(t, err)
}
