package outboxtest

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

var appending = []promise{
	{"EventIsThereOnceItsTransactionCommits", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		event := outbox.Event{AggregateType: "order", AggregateID: "7", Type: "order.paid", Payload: []byte{0, 1, 0xff}}
		s.append(event)
		d := s.claimOne(r)
		require.Equal(s, event, d.Event)
		require.Equal(s, 1, d.Attempt)
		require.True(s, d.Created.Equal(s.clock.Now()))
		require.True(s, d.Expires.After(s.clock.Now()))
	}},
	{"EventOfARolledBackTransactionIsNeverDelivered", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		for _, order := range []string{"7", ""} {
			tx, err := s.db.BeginTx(s.Context(), nil)
			require.NoError(s, err)
			require.NoError(s, s.box.Append(s.Context(), tx, of(order, "never")))
			require.NoError(s, tx.Rollback())
		}
		require.Empty(s, s.claim(r, 10))
		require.Empty(s, s.dump())
	}},
	{"AppendRefusesWhatIsNoTransaction", func(s *store) {
		conn, err := s.db.Conn(s.Context())
		require.NoError(s, err)
		require.ErrorIs(s, s.box.Append(s.Context(), conn, of("7", "x")), outbox.ErrNoTransaction)
		require.NoError(s, conn.Close())
		require.ErrorIs(s, s.box.Append(s.Context(), s.db, of("7", "x")), outbox.ErrNoTransaction)
		wrapped := struct{ *sql.DB }{s.db} // as sqlx and others do
		require.ErrorIs(s, s.box.Append(s.Context(), wrapped, of("7", "x")), outbox.ErrNoTransaction)
		require.ErrorIs(s, s.box.Append(s.Context(), nil, of("7", "x")), outbox.ErrNoTransaction)
		require.ErrorIs(s, s.box.Append(s.Context(), (*sql.Tx)(nil), of("7", "x")), outbox.ErrNoTransaction)
		require.Empty(s, s.dump())
	}},
	{"InvalidEventIsRefusedAndNothingIsWritten", func(s *store) {
		long := strings.Repeat("x", 256)
		for _, bad := range []outbox.Event{
			{AggregateID: "7"},
			{Type: long},
			{Type: "t", AggregateID: long},
			{Type: "t", AggregateType: long},
			{Type: "t\x00"},
			{Type: "t", AggregateID: "\xff"},
		} {
			s.inTx(func(tx *sql.Tx) error {
				require.ErrorIs(s, s.box.Append(s.Context(), tx, of("7", "good"), bad), outbox.ErrInvalidEvent)
				return nil
			})
		}
		require.Empty(s, s.dump())
		s.append(outbox.Event{Type: long[:255], AggregateType: long[:255], AggregateID: long[:255]})
		require.Empty(s, s.claimOne(s.relay(outbox.RelayOptions{})).Payload)
	}},
	{"EventsOfOneCallKeepTheirOrder", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("b", "b1"), of("a", "a1"), of("b", "b2"), of("a", "a2"), of("b", "b3"))
		got := map[string][]string{}
		for range 3 {
			claimed := s.claim(r, 10)
			for _, d := range claimed {
				got[d.AggregateID] = append(got[d.AggregateID], string(d.Payload))
			}
			s.ack(r, claimed...)
		}
		require.Equal(s, map[string][]string{"a": {"a1", "a2"}, "b": {"b1", "b2", "b3"}}, got)
		require.Empty(s, s.claim(r, 10))
	}},
	{"NoEventIsLostWhereAppendMeetsTheAcknowledgementOfTheLast", func(s *store) {
		// Without the lock on the head an appended event sees a head that is
		// just being dropped, and nobody ever looks at it.
		const appenders, each, aggregates = 4, 50, 2
		box := s.realTime()
		r := relayOf(s, box, outbox.RelayOptions{})
		var wg sync.WaitGroup
		for a := range appenders {
			wg.Go(func() {
				for n := range each {
					s.appendTo(box, of(fmt.Sprint(n%aggregates), fmt.Sprint(a, " ", n)))
				}
			})
		}
		appended := make(chan struct{})
		go func() { wg.Wait(); close(appended) }()
		got := map[string]int{}
		last := map[string]int64{}
		for over := false; ; {
			select {
			case <-appended:
				over = true
			default:
			}
			claimed := s.claim(r, 1)
			for _, d := range claimed {
				got[string(d.Payload)]++
				require.Greater(s, d.ID, last[d.AggregateID], "numbers rise within an aggregate")
				last[d.AggregateID] = d.ID
				s.ack(r, d)
			}
			if over && len(claimed) == 0 {
				break
			}
		}
		require.Len(s, got, appenders*each)
		for _, n := range got {
			require.Equal(s, 1, n)
		}
	}},
	{"EventCommittedAfterAGreaterNumberIsNotSkipped", func(s *store) {
		if s.dialect == leases.SQLite {
			s.Skip("SQLite has one writer: no two transactions can append at a time")
		}
		r := s.relay(outbox.RelayOptions{})
		slow, err := s.db.BeginTx(s.Context(), nil)
		require.NoError(s, err)
		defer slow.Rollback()
		require.NoError(s, s.box.Append(s.Context(), slow, of("slow", "late"), of("", "late too")))
		s.append(of("quick", "early"), of("", "early too"))
		claimed := s.claim(r, 10)
		require.ElementsMatch(s, []string{"early", "early too"}, payloads(claimed))
		s.ack(r, claimed...)
		require.NoError(s, slow.Commit())
		later := s.claim(r, 10)
		require.ElementsMatch(s, []string{"late", "late too"}, payloads(later))
		require.Less(s, later[0].ID, claimed[0].ID)
	}},
	{"SecondAppenderToAnAggregateWaitsForTheFirst", func(s *store) {
		if s.dialect == leases.SQLite {
			s.Skip("SQLite has one writer: no two transactions can append at a time")
		}
		first, err := s.db.BeginTx(s.Context(), nil)
		require.NoError(s, err)
		defer first.Rollback()
		require.NoError(s, s.box.Append(s.Context(), first, of("7", "first")))
		appended := make(chan struct{})
		go func() {
			defer close(appended)
			s.append(of("7", "second"))
		}()
		select {
		case <-appended:
			s.Fatal("appended beside an open transaction that appends to the same aggregate")
		case <-time.After(100 * time.Millisecond):
		}
		require.NoError(s, first.Commit())
		within(s, appended, "the second append")
		r := s.relay(outbox.RelayOptions{})
		d := s.claimOne(r)
		require.Equal(s, "first", string(d.Payload))
		s.ack(r, d)
		require.Equal(s, "second", string(s.claimOne(r).Payload))
	}},
	{"AppenderThatHadToWaitComesAfterAllOfTheOther", func(s *store) {
		if s.dialect == leases.SQLite {
			s.Skip("SQLite has one writer: no two transactions can append at a time")
		}
		s.append(of("7", "0")) // the head is there
		first, err := s.db.BeginTx(s.Context(), nil)
		require.NoError(s, err)
		defer first.Rollback()
		require.NoError(s, s.box.Append(s.Context(), first, of("7", "1")))
		appended := make(chan struct{})
		go func() {
			defer close(appended)
			s.append(of("7", "3"))
		}()
		s.eventually("the second to wait for the first", func() bool {
			var waiting int
			err := s.db.QueryRowContext(s.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&waiting)
			return err == nil && waiting > 0
		})
		require.NoError(s, s.box.Append(s.Context(), first, of("7", "2")))
		require.NoError(s, first.Commit())
		within(s, appended, "the second append")
		r := s.relay(outbox.RelayOptions{})
		for _, text := range []string{"0", "1", "2", "3"} {
			d := s.claimOne(r)
			require.Equal(s, text, string(d.Payload))
			s.ack(r, d)
		}
	}},
}
