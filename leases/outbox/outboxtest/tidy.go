package outboxtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

var tidying = []promise{
	{"BacklogCountsAndTellsTheAgeOfTheOldest", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		require.Zero(s, s.backlog())
		s.append(of("7", "1"), of("7", "2"), of("", "u"))
		s.clock.Advance(time.Hour)
		s.append(of("8", "3"))
		require.Equal(s, outbox.Backlog{Pending: 4, Oldest: time.Hour}, s.backlog())
		for _, d := range s.claim(r, 2) {
			s.ack(r, d)
		}
		require.Equal(s, outbox.Backlog{Pending: 2, Oldest: time.Hour}, s.backlog())
	}},
	{"PurgeDeletesWhatEndedBeforeAndNothingElse", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		for range 300 { // more than one step
			s.append(of("", "old"))
		}
		s.ack(r, s.claim(r, 300)...)
		s.append(of("", "dead"), of("7", "pending"))
		claimed := s.claim(r, 10)
		require.NoError(s, r.Nack(s.Context(), claimed[0], outbox.Permanent(context.Canceled)))
		s.clock.Advance(time.Hour)
		noon := s.clock.Now()
		s.append(of("", "new"))
		s.ack(r, s.claimOne(r))

		n, err := s.box.Purge(s.Context(), noon)
		require.NoError(s, err)
		require.EqualValues(s, 300, n)
		n, err = s.box.Purge(s.Context(), noon)
		require.NoError(s, err)
		require.Zero(s, n)
		n, err = s.box.Purge(s.Context(), noon.Add(1))
		require.NoError(s, err)
		require.EqualValues(s, 1, n)
		b := s.backlog()
		require.EqualValues(s, 1, b.Pending)
		require.EqualValues(s, 1, b.Dead)
	}},
	{"NumbersAreNotUsedAgainAfterAPurge", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "x"))
		d := s.claimOne(r)
		s.ack(r, d)
		_, err := s.box.Purge(s.Context(), s.clock.Now().Add(time.Hour))
		require.NoError(s, err)
		s.append(of("7", "y"))
		require.Greater(s, s.claimOne(r).ID, d.ID)
	}},
	{"WorkTakesAsLongBehindALongBacklogAsWithout", func(s *store) {
		box := s.realTime()
		r := relayOf(s, box, outbox.RelayOptions{})
		atBest := func() time.Duration {
			s.Helper()
			var took []time.Duration
			for range 25 {
				began := time.Now()
				s.appendTo(box, of("next", "x"))
				d := s.claimOne(r)
				require.NoError(s, r.Extend(s.Context(), d))
				s.ack(r, d)
				took = append(took, time.Since(began))
			}
			return slices.Min(took) // what else the machine does is in the others
		}
		without := atBest()
		// Half of it waits behind a dead event, the other half for its time.
		s.appendTo(box, of("blocked", "dead"))
		require.NoError(s, r.Nack(s.Context(), s.claimOne(r), outbox.Permanent(context.Canceled)))
		s.fill(`INSERT INTO coop_outbox (aggregate_type, aggregate_id, type, payload, created_at) SELECT 'order', 'blocked', 't', '', 1`)
		s.fill(`INSERT INTO coop_outbox (aggregate_type, aggregate_id, type, payload, created_at) SELECT 'waits', CAST(n AS text), 't', '', 1`)
		_, err := s.db.ExecContext(s.Context(), fmt.Sprintf(`INSERT INTO coop_outbox_heads (event_id, aggregate_type, aggregate_id, due_at)
			SELECT id, aggregate_type, aggregate_id, %d FROM coop_outbox WHERE aggregate_type = 'waits'`, time.Now().Add(time.Hour).UnixNano()))
		require.NoError(s, err)
		behind := atBest()
		// To look at every row would take hundreds of times as long.
		require.Less(s, behind, 20*without)
	}},
	{"OpeningAgainFindsWhatIsThere", func(s *store) {
		s.append(of("7", "x"))
		s.box = s.open(s.clock)
		require.Equal(s, "x", string(s.claimOne(s.relay(outbox.RelayOptions{})).Payload))
	}},
	{"OutboxesInOtherTablesAreApart", func(s *store) {
		other, err := outbox.New(s.db, &outbox.Options{Dialect: s.dialect, Table: `other "box"`, Clock: s.clock})
		require.NoError(s, err)
		s.appendTo(other, of("7", "theirs"))
		require.Zero(s, s.backlog())
		r := relayOf(s, other, outbox.RelayOptions{})
		s.ack(r, s.claimOne(r))
	}},
	{"OptionsOutOfBoundsAreErrors", func(s *store) {
		for _, options := range []outbox.RelayOptions{
			{Batch: -1}, {Workers: -1}, {MaxAttempts: -1}, {Lease: -1}, {Margin: -1}, {Timeout: -1}, {Grace: -1}, {Poll: -1},
			{Lease: time.Second, Margin: time.Second},
		} {
			_, err := s.box.Relay(&options)
			require.Error(s, err)
		}
		_, err := outbox.New(nil, nil)
		require.Error(s, err)
		_, err = outbox.New(s.db, &outbox.Options{Dialect: 7})
		require.Error(s, err)
		_, err = outbox.New(s.db, &outbox.Options{Dialect: s.dialect, Table: "a.b.c"})
		require.Error(s, err)
	}},
}

// fill runs an INSERT ... SELECT for each n of a long series.
func (s *store) fill(insert string) {
	s.Helper()
	const rows = 50_000
	series := fmt.Sprintf(` FROM generate_series(1, %d) AS n`, rows)
	if s.dialect == leases.SQLite {
		series = fmt.Sprintf(` FROM (WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < %d) SELECT n FROM series)`, rows)
		insert = strings.Replace(insert, "''", "x''", 1)
	}
	_, err := s.db.ExecContext(s.Context(), insert+series)
	require.NoError(s, err)
}
