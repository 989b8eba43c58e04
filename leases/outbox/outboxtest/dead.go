package outboxtest

import (
	"database/sql"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// kill lets the relay's next event fail for good.
func (s *store) kill(r *outbox.Relay) outbox.Delivery {
	s.Helper()
	d := s.claimOne(r)
	require.NoError(s, r.Nack(s.Context(), d, outbox.Permanent(errors.New("malformed"))))
	return d
}

var dying = []promise{
	{"EventIsDeadAfterItsLastAttempt", func(s *store) {
		r := s.relay(outbox.RelayOptions{MaxAttempts: 3})
		event := of("7", "x")
		s.append(event)
		created := s.clock.Now()
		for range 3 {
			s.nack(r, s.claimOne(r))
			s.clock.Advance(time.Minute)
		}
		require.Empty(s, s.claim(r, 10))
		dead := s.dead()
		require.Len(s, dead, 1)
		require.Equal(s, event, dead[0].Event)
		require.Equal(s, 3, dead[0].Attempts)
		require.Equal(s, "no luck", dead[0].Error)
		require.True(s, dead[0].Created.Equal(created))
	}},
	{"PermanentFailureIsDeadAtOnce", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("", "x"))
		s.kill(r)
		require.Equal(s, outbox.Backlog{Dead: 1}, s.backlog())
		require.Equal(s, "malformed", s.dead()[0].Error)
	}},
	{"DeadEventBlocksItsAggregateAndNoOther", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "dead"), of("7", "waits"))
		s.kill(r)
		s.append(of("7", "waits too"), of("8", "goes on"), of("", "goes on"))
		s.clock.Advance(1000 * time.Hour)
		require.Equal(s, []string{"goes on", "goes on"}, payloads(s.claim(r, 10)))
		require.Equal(s, int64(4), s.backlog().Pending)
	}},
	{"RequeuedEventIsDeliveredBeforeThoseItHeldBack", func(s *store) {
		r := s.relay(outbox.RelayOptions{MaxAttempts: 2})
		s.append(of("7", "1"), of("7", "2"))
		s.kill(r)
		require.NoError(s, s.box.Requeue(s.Context(), 1))
		require.Empty(s, s.dead())
		d := s.claimOne(r)
		require.Equal(s, "1", string(d.Payload))
		require.Equal(s, 1, d.Attempt, "a new life with all its attempts")
		s.ack(r, d)
		require.Equal(s, "2", string(s.claimOne(r).Payload))
	}},
	{"DiscardedEventIsNeverDeliveredAndThoseBehindItGoOn", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "1"), of("7", "2"), of("8", "last"))
		for _, d := range s.claim(r, 10) {
			require.NoError(s, r.Nack(s.Context(), d, outbox.Permanent(errors.New("bad"))))
		}
		for _, e := range s.dead() {
			require.NoError(s, s.box.Discard(s.Context(), e.ID))
		}
		require.Equal(s, "2", string(s.claimOne(r).Payload))
		require.Equal(s, outbox.Backlog{Pending: 1}, s.backlog())
		s.append(of("8", "again"))
		require.Equal(s, "again", string(s.claimOne(r).Payload))
	}},
	{"SkipDeadLetsTheOthersPass", func(s *store) {
		r := s.relay(outbox.RelayOptions{SkipDead: true, MaxAttempts: 1, Lease: time.Minute})
		s.append(of("7", "refused"), of("7", "unanswered"), of("7", "good"))
		s.kill(r)
		s.claimOne(r)
		s.clock.Advance(time.Minute)
		require.Empty(s, s.claim(r, 10), "this claim finds it dead")
		require.Equal(s, "good", string(s.claimOne(r).Payload))
		require.Len(s, s.dead(), 2)
	}},
	{"SkippedEventCanBeRequeued", func(s *store) {
		r := s.relay(outbox.RelayOptions{SkipDead: true})
		s.append(of("7", "1"), of("7", "2"), of("7", "3"), of("", "u"))
		for _, d := range s.claim(r, 10) {
			require.NoError(s, r.Nack(s.Context(), d, outbox.Permanent(errors.New("bad"))))
		}
		d := s.claimOne(r)
		require.Equal(s, "2", string(d.Payload))
		for _, e := range s.dead() {
			require.NoError(s, s.box.Requeue(s.Context(), e.ID))
		}
		require.Equal(s, "u", string(s.claimOne(r).Payload))
		s.ack(r, d)
		d = s.claimOne(r)
		require.Equal(s, "1", string(d.Payload), "before what it has not yet let pass")
		s.ack(r, d)
		require.Equal(s, "3", string(s.claimOne(r).Payload))
	}},
	{"RequeuedEventOfADrainedAggregateIsDelivered", func(s *store) {
		r := s.relay(outbox.RelayOptions{SkipDead: true})
		s.append(of("7", "1"))
		s.kill(r)
		require.NoError(s, s.box.Requeue(s.Context(), 1))
		s.append(of("7", "2"))
		d := s.claimOne(r)
		require.Equal(s, "1", string(d.Payload))
		s.ack(r, d)
		require.Equal(s, "2", string(s.claimOne(r).Payload))
	}},
	{"OnlyDeadEventsCanBeRequeuedOrDiscarded", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "delivered"), of("7", "pending"), of("9", "dead"))
		for _, d := range s.claim(r, 10) {
			if string(d.Payload) == "delivered" {
				s.ack(r, d)
			} else {
				require.NoError(s, r.Nack(s.Context(), d, outbox.Permanent(errors.New("bad"))))
			}
		}
		before := s.dump()
		for _, id := range []int64{1, 2, 4} {
			require.ErrorIs(s, s.box.Requeue(s.Context(), id), outbox.ErrNotDead)
			require.ErrorIs(s, s.box.Discard(s.Context(), id), outbox.ErrNotDead)
		}
		require.Equal(s, before, s.dump())
		require.NoError(s, s.box.Discard(s.Context(), 3))
		require.ErrorIs(s, s.box.Requeue(s.Context(), 3), outbox.ErrNotDead)
	}},
	{"DeadYieldsEveryPageAndLetsItsBodyDecide", func(s *store) {
		const events = 230
		r := s.relay(outbox.RelayOptions{})
		s.inTx(func(tx *sql.Tx) error {
			for range events {
				if err := s.box.Append(s.Context(), tx, of("", "x")); err != nil {
					return err
				}
			}
			return nil
		})
		for _, d := range s.claim(r, events) {
			require.NoError(s, r.Nack(s.Context(), d, outbox.Permanent(errors.New("bad"))))
		}
		n := 0
		for e, err := range s.box.Dead(s.Context()) {
			require.NoError(s, err)
			require.NoError(s, s.box.Discard(s.Context(), e.ID))
			n++
		}
		require.Equal(s, events, n)
		require.Zero(s, s.backlog())
	}},
}
