package outboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

func assertNoError(t testing.TB, err error) bool { return assert.NoError(t, err) }

var answering = []promise{
	{"NextEventOfAnAggregateComesAfterTheAcknowledgement", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "1"), of("7", "2"))
		d := s.claimOne(r)
		s.ack(r, d)
		require.Equal(s, "2", string(s.claimOne(r).Payload))
	}},
	{"FailedEventHoldsBackItsAggregateAndNoOther", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "fails"), of("7", "waits"), of("8", "goes on"))
		for _, d := range s.claim(r, 10) {
			if string(d.Payload) == "fails" {
				s.nack(r, d)
			} else {
				s.ack(r, d)
			}
		}
		s.append(of("8", "goes on"))
		s.ack(r, s.claimOne(r))
		s.clock.Advance(time.Minute - 1)
		require.Empty(s, s.claim(r, 10), "nothing overtakes during the backoff")
		s.clock.Advance(1)
		again := s.claimOne(r)
		require.Equal(s, "fails", string(again.Payload))
		require.Equal(s, 2, again.Attempt)
		s.ack(r, again)
		waited := s.claimOne(r)
		require.Equal(s, "waits", string(waited.Payload))
		require.Equal(s, 1, waited.Attempt)
	}},
	{"BackoffIsAskedWithTheNumberOfTheAttempt", func(s *store) {
		var asked []int
		r := s.relay(outbox.RelayOptions{Backoff: func(attempt int) time.Duration {
			asked = append(asked, attempt)
			return time.Duration(attempt) * time.Minute
		}})
		s.append(of("7", "x"))
		for attempt := 1; attempt <= 3; attempt++ {
			s.nack(r, s.claimOne(r))
			s.clock.Advance(time.Duration(attempt)*time.Minute - 1)
			require.Empty(s, s.claim(r, 10))
			s.clock.Advance(1)
		}
		require.Equal(s, []int{1, 2, 3}, asked)
	}},
	{"StaleAnswersAreRefusedAndChangeNothing", func(s *store) {
		stale := s.relay(outbox.RelayOptions{Lease: time.Minute})
		current := s.relay(outbox.RelayOptions{Lease: time.Hour})
		for _, order := range []string{"7", ""} {
			s.append(of(order, "x"))
			old := s.claimOne(stale)
			s.clock.Advance(time.Minute)
			d := s.claimOne(current)
			before := s.dump()
			for name, err := range map[string]error{
				"Ack":    stale.Ack(s.Context(), old),
				"Nack":   stale.Nack(s.Context(), old, errors.New("late")),
				"Extend": stale.Extend(s.Context(), old),
			} {
				require.ErrorIs(s, err, outbox.ErrClaimLost, name)
				lost, ok := errors.AsType[*outbox.ClaimLostError](err)
				require.True(s, ok, name)
				require.Equal(s, []int64{old.ID}, lost.IDs, name)
			}
			require.Equal(s, before, s.dump())
			s.ack(current, d)
		}
	}},
	{"SecondAnswerIsRefused", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "1"), of("7", "2"))
		d := s.claimOne(r)
		s.ack(r, d)
		next := s.claimOne(r)
		before := s.dump()
		require.ErrorIs(s, r.Ack(s.Context(), d), outbox.ErrClaimLost)
		require.ErrorIs(s, r.Nack(s.Context(), d, nil), outbox.ErrClaimLost)
		require.Equal(s, before, s.dump())
		s.nack(r, next)
		require.ErrorIs(s, r.Ack(s.Context(), next), outbox.ErrClaimLost)
	}},
	{"LostClaimAmongOthersDoesNotKeepThemFromBeingAcknowledged", func(s *store) {
		short := s.relay(outbox.RelayOptions{Lease: time.Minute})
		s.append(of("a", "a1"), of("b", "b1"), of("", "u1"))
		claimed := s.claim(short, 10)
		require.Len(s, claimed, 3)
		s.ack(short, claimed[1])
		err := short.Ack(s.Context(), claimed...)
		lost, ok := errors.AsType[*outbox.ClaimLostError](err)
		require.True(s, ok)
		require.Equal(s, []int64{claimed[1].ID}, lost.IDs)
		require.Zero(s, s.backlog().Pending)
	}},
	{"AcknowledgementAfterTheClaimsEndCountsIfNobodyElseHasIt", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute})
		s.append(of("7", "x"))
		d := s.claimOne(r)
		s.clock.Advance(time.Hour)
		s.ack(r, d)
		require.Empty(s, s.claim(r, 10))
	}},
	{"ExtendKeepsTheClaimForAnotherLease", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute})
		s.append(of("7", "x"), of("8", "y"))
		claimed := s.claim(r, 10)
		for range 5 {
			s.clock.Advance(50 * time.Second)
			require.NoError(s, r.Extend(s.Context(), claimed...))
			require.Empty(s, s.claim(r, 10))
		}
		s.clock.Advance(time.Minute)
		require.Len(s, s.claim(r, 10), 1)
	}},
	{"AnswerWaitsForWhoAppendsToTheAggregate", func(s *store) {
		if s.dialect == leases.SQLite {
			s.Skip("SQLite has one writer: an answer waits for any other")
		}
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "first"))
		d := s.claimOne(r)
		tx, err := s.db.BeginTx(s.Context(), nil)
		require.NoError(s, err)
		defer tx.Rollback()
		require.NoError(s, s.box.Append(s.Context(), tx, of("7", "second")))
		acked := make(chan error, 1)
		go func() { acked <- r.Ack(s.Context(), d) }()
		select {
		case <-acked:
			s.Fatal("acknowledged beside an open transaction that appends to the aggregate")
		case <-time.After(100 * time.Millisecond):
		}
		require.NoError(s, tx.Commit())
		require.NoError(s, within(s, acked, "the acknowledgement"))
		require.Equal(s, "second", string(s.claimOne(r).Payload))
	}},
	{"RelayGoesOnWhileALongTransactionAppends", func(s *store) {
		if s.dialect == leases.SQLite {
			s.Skip("SQLite has one writer: a relay waits for any other")
		}
		box := s.realTime()
		s.appendTo(box, of("busy", "held"))
		held, others := make(chan struct{}), make(chan string, 10)
		release := make(chan struct{})
		s.run(relayOf(s, box, outbox.RelayOptions{Workers: 2, Poll: 20 * time.Millisecond}), func(ctx context.Context, d outbox.Delivery) error {
			if string(d.Payload) == "held" {
				close(held)
				if err := receive(ctx, release); err != nil {
					return err
				}
			}
			others <- string(d.Payload)
			return nil
		})
		within(s, held, "the first delivery")
		tx, err := s.db.BeginTx(s.Context(), nil)
		require.NoError(s, err)
		defer tx.Rollback()
		require.NoError(s, box.Append(s.Context(), tx, of("busy", "more")))
		close(release) // its answer finds the head locked
		require.Equal(s, "held", within(s, others, "the held delivery"))
		for range 3 {
			s.appendTo(box, of("other", "goes on"))
			require.Equal(s, "goes on", within(s, others, "another aggregate's event"))
		}
		require.NoError(s, tx.Commit())
		require.Equal(s, "more", within(s, others, "the aggregate's next event"))
	}},
}
