package outboxtest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

var claiming = []promise{
	{"ClaimTakesTheFirstOfEachAggregateAndAllOutsideAnyOrder", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("a", "a1"), of("a", "a2"), of("b", "b1"), of("", "u1"), of("", "u2"), of("b", "b2"))
		require.ElementsMatch(s, []string{"a1", "b1", "u1", "u2"}, payloads(s.claim(r, 10)))
		require.Empty(s, s.claim(r, 10), "the rest waits for answers")
	}},
	{"ClaimTakesNoMoreThanAskedForAndTheOldestFirst", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		for _, text := range []string{"1", "2", "3"} {
			s.append(of("", text))
			s.clock.Advance(time.Millisecond)
		}
		require.Equal(s, []string{"1", "2"}, payloads(s.claim(r, 2)))
		require.Equal(s, []string{"3"}, payloads(s.claim(r, 2)))
		_, err := r.Claim(s.Context(), 0)
		require.Error(s, err)
	}},
	{"EventIsNotClaimedTwiceBeforeItsClaimEnds", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute})
		other := s.relay(outbox.RelayOptions{})
		s.append(of("7", "x"))
		s.claimOne(r)
		s.clock.Advance(time.Minute - 1)
		require.Empty(s, s.claim(other, 10))
		s.clock.Advance(1)
		require.Equal(s, 2, s.claimOne(other).Attempt)
	}},
	{"AttemptCountsFromTheClaimNotFromTheAnswer", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute})
		s.append(of("7", "x"))
		for attempt := 1; attempt <= 3; attempt++ { // as if the relay died each time
			require.Equal(s, attempt, s.claimOne(r).Attempt)
			s.clock.Advance(time.Minute)
		}
	}},
	{"EventWhoseLastClaimWasNotAnsweredIsClaimedAlone", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute})
		s.append(of("a", "a1"), of("b", "b1"))
		require.Len(s, s.claim(r, 10), 2)
		s.clock.Advance(time.Minute)
		s.append(of("c", "c1"), of("d", "d1"))
		s.clock.Advance(time.Second)

		alone := s.claimOne(r)
		require.Contains(s, []string{"a1", "b1"}, string(alone.Payload))
		require.Contains(s, []string{"a1", "b1"}, string(s.claimOne(r).Payload))
		require.ElementsMatch(s, []string{"c1", "d1"}, payloads(s.claim(r, 10)))
		s.nack(r, alone) // an answer, and it is among the others again
		s.append(of("e", "e1"))
		s.clock.Advance(time.Minute - 1)
		s.append(of("f", "f1"))
		s.clock.Advance(1)
		require.Contains(s, payloads(s.claim(r, 10)), string(alone.Payload))
	}},
	{"EventThatBringsDownEveryRelayIsDeadOneDay", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute, MaxAttempts: 3})
		s.append(of("7", "poison"), of("8", "good"))
		for range 3 {
			for _, d := range s.claim(r, 10) {
				if string(d.Payload) == "good" {
					s.ack(r, d)
				}
			}
			s.clock.Advance(time.Minute)
		}
		require.Empty(s, s.claim(r, 10))
		dead := s.dead()
		require.Len(s, dead, 1)
		require.Equal(s, "poison", string(dead[0].Payload))
		require.Equal(s, 3, dead[0].Attempts)
		require.Contains(s, dead[0].Error, "without an answer")
	}},
	{"ManyRelaysClaimEachEventOnce", func(s *store) {
		const relays, events = 4, 120
		box := s.realTime()
		for range events / 4 {
			s.appendTo(box, of("", "u"), of("", "u"), of("", "u"), of("", "u"))
		}
		var mu sync.Mutex
		seen := map[int64]int{}
		var wg sync.WaitGroup
		for range relays {
			r := relayOf(s, box, outbox.RelayOptions{})
			wg.Go(func() {
				for {
					mu.Lock()
					over := len(seen) == events
					mu.Unlock()
					if over {
						return
					}
					claimed, err := r.Claim(s.Context(), 7)
					if !assertNoError(s, err) {
						return
					}
					mu.Lock()
					for _, d := range claimed {
						seen[d.ID]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(s, seen, events)
		for id, n := range seen {
			require.Equal(s, 1, n, "event %d", id)
		}
	}},
	{"EventDeletedByHandDoesNotStopItsAggregate", func(s *store) {
		r := s.relay(outbox.RelayOptions{})
		s.append(of("7", "deleted"), of("7", "next"), of("", "deleted"))
		_, err := s.db.ExecContext(s.Context(), `DELETE FROM coop_outbox WHERE id IN (1, 3)`)
		require.NoError(s, err)
		require.Empty(s, s.claim(r, 10))
		require.Equal(s, "next", string(s.claimOne(r).Payload))
	}},
}
