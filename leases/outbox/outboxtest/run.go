package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// quick are options for relays by the real clock.
func quick(o outbox.RelayOptions) outbox.RelayOptions {
	o.Poll = 10 * time.Millisecond
	o.Backoff = func(int) time.Duration { return time.Millisecond }
	return o
}

var running = []promise{
	{"RunDeliversEachAggregateInOrderUntilItIsStopped", func(s *store) {
		const aggregates, each = 5, 20
		box := s.realTime()
		var mu sync.Mutex
		got := map[string][]string{}
		flying := map[string]bool{}
		all := make(chan struct{})
		count, tries := 0, 0
		stop := s.run(relayOf(s, box, quick(outbox.RelayOptions{Workers: 4, Batch: 3})), func(_ context.Context, d outbox.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if flying[d.AggregateID] {
				return errors.New("two at a time")
			}
			if tries++; tries%7 == 0 {
				return errors.New("try again")
			}
			flying[d.AggregateID] = true
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			flying[d.AggregateID] = false
			got[d.AggregateID] = append(got[d.AggregateID], string(d.Payload))
			if count++; count == aggregates*each {
				close(all)
			}
			return nil
		})
		for n := range each {
			for a := range aggregates {
				s.appendTo(box, of(fmt.Sprint(a), fmt.Sprint(n)))
			}
		}
		within(s, all, "all deliveries")
		stop()
		for a := range aggregates {
			require.Len(s, got[fmt.Sprint(a)], each)
			for n, text := range got[fmt.Sprint(a)] {
				require.Equal(s, fmt.Sprint(n), text)
			}
		}
		require.Zero(s, s.backlog().Pending, "the last answers are written down before Run returns")
	}},
	{"StoppedRelayHandsBackUncountedWhatItHasNotStarted", func(s *store) {
		r := s.relay(outbox.RelayOptions{Batch: 10, Lease: time.Hour})
		s.append(of("a", "1"), of("b", "1"), of("c", "1"))
		started, finish := make(chan outbox.Delivery, 10), make(chan struct{})
		stop := s.run(r, func(ctx context.Context, d outbox.Delivery) error {
			started <- d
			return receive(ctx, finish)
		})
		first := within(s, started, "the first delivery")
		time.AfterFunc(10*time.Millisecond, func() { close(finish) })
		stop()
		require.Empty(s, started, "nothing is started by a relay that stops")
		require.EqualValues(s, 2, s.backlog().Pending)
		rest := s.claim(r, 10)
		require.Len(s, rest, 2, "without waiting for the claims to end")
		for _, d := range rest {
			require.Equal(s, 1, d.Attempt)
			require.NotEqual(s, first.ID, d.ID)
		}
	}},
	{"DeliveryUnderWayMayFinishWhenTheRelayStopsButNotForEver", func(s *store) {
		r := s.relay(outbox.RelayOptions{Grace: time.Second, Lease: time.Hour, Timeout: time.Hour})
		s.append(of("a", "1"))
		started, ended := make(chan struct{}), make(chan struct{})
		stop := s.run(r, func(ctx context.Context, d outbox.Delivery) error {
			close(started)
			<-ctx.Done()
			close(ended)
			return ctx.Err()
		})
		within(s, started, "the delivery")
		go stop()
		select {
		case <-ended:
			s.Fatal("its context ended with the relay's")
		case <-time.After(50 * time.Millisecond):
		}
		for range 1000 { // Run may see the end of its context only after the first step
			s.clock.Advance(time.Second)
			select {
			case <-ended:
				stop()
				s.clock.Advance(time.Minute)
				require.Equal(s, 2, s.claimOne(r).Attempt)
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		s.Fatal("the context outlived Grace")
	}},
	{"ContextOfADeliveryEndsWithItsClaim", func(s *store) {
		// The relay cannot renew: another outbox of the same table takes the
		// event over behind its back.
		r := s.relay(outbox.RelayOptions{Lease: time.Minute, Timeout: time.Hour})
		s.append(of("7", "x"))
		started, ended := make(chan struct{}), make(chan error, 1)
		s.run(r, func(ctx context.Context, d outbox.Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		within(s, started, "the delivery")
		_, err := s.db.ExecContext(s.Context(), `UPDATE coop_outbox_heads SET claim = 'another'`)
		require.NoError(s, err)
		s.clock.Advance(20 * time.Second) // time to renew
		require.ErrorIs(s, within(s, ended, "the end of the context"), outbox.ErrClaimLost)
	}},
	{"RunRenewsItsClaimsWhileTheyAreDelivered", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute, Timeout: time.Hour})
		other := s.relay(outbox.RelayOptions{})
		s.append(of("7", "x"), of("8", "not started"))
		started, finish := make(chan struct{}, 2), make(chan struct{})
		stop := s.run(r, func(ctx context.Context, d outbox.Delivery) error {
			started <- struct{}{}
			return receive(ctx, finish)
		})
		within(s, started, "the first delivery")
		for range 10 {
			due := s.clock.Now().Add(20 * time.Second).Add(time.Minute).UnixNano()
			s.clock.Advance(20 * time.Second)
			s.eventually("both claims to be renewed", func() bool {
				var renewed int
				err := s.db.QueryRowContext(s.Context(), fmt.Sprintf(`SELECT count(*) FROM coop_outbox_heads WHERE due_at = %d`, due)).Scan(&renewed)
				return err == nil && renewed == 2
			})
			require.Empty(s, s.claim(other, 10))
		}
		close(finish)
		within(s, started, "the second delivery")
		stop()
		require.Zero(s, s.backlog().Pending)
	}},
	{"NoDeliveryStartsWithTooLittleOfItsClaimLeft", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Minute, Margin: 10 * time.Second, Timeout: time.Hour})
		s.append(of("7", "x"), of("8", "y"))
		started, finish := make(chan struct{}, 2), make(chan struct{})
		defer close(finish)
		stop := s.run(r, func(context.Context, outbox.Delivery) error {
			started <- struct{}{}
			<-finish // even if the context ends, as it may where the claim is not renewed
			return nil
		})
		within(s, started, "the first delivery")
		// Without the table no claim can be renewed.
		s.rename("coop_outbox_heads", "away")
		s.clock.Advance(50 * time.Second)
		finish <- struct{}{}
		select {
		case <-started:
			s.Fatal("started with no more than Margin left")
		case <-time.After(200 * time.Millisecond):
		}
		s.rename("away", "coop_outbox_heads")
		within(s, started, "the second delivery, once its claim is renewed")
		finish <- struct{}{}
		stop()
		require.Zero(s, s.backlog().Pending)
	}},
	{"DeliveryThatTakesTooLongIsEndedAndFails", func(s *store) {
		r := s.relay(outbox.RelayOptions{Lease: time.Hour, Timeout: time.Minute})
		s.append(of("7", "x"))
		started, ended := make(chan struct{}), make(chan error, 1)
		stop := s.run(r, func(ctx context.Context, d outbox.Delivery) error {
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		within(s, started, "the delivery")
		s.clock.Advance(time.Minute)
		require.ErrorIs(s, within(s, ended, "the end of the context"), context.DeadlineExceeded)
		stop()
		require.EqualValues(s, 1, s.backlog().Pending)
	}},
	{"PanicAndGoexitInADeliveryAreFailures", func(s *store) {
		box := s.realTime()
		s.appendTo(box, of("", "panic"), of("", "exit"), of("", "good"))
		landed := make(chan string, 3)
		stop := s.run(relayOf(s, box, quick(outbox.RelayOptions{MaxAttempts: 1})), func(_ context.Context, d outbox.Delivery) error {
			landed <- string(d.Payload)
			switch string(d.Payload) {
			case "panic":
				panic("boom")
			case "exit":
				runtime.Goexit()
			}
			return nil
		})
		for range 3 {
			within(s, landed, "a delivery")
		}
		stop()
		dead := s.dead()
		require.Len(s, dead, 2)
		require.Contains(s, dead[0].Error, "panicked: boom")
		require.Contains(s, dead[1].Error, "goroutine")
		s.eventually("no goroutine to be left", func() bool { return !strings.Contains(stacks(), "outbox.(*pump)") })
	}},
	{"WakeSparesWaitingForThePoll", func(s *store) {
		box := s.realTime()
		r := relayOf(s, box, outbox.RelayOptions{Poll: time.Hour})
		got := make(chan struct{}, 1)
		s.run(r, func(context.Context, outbox.Delivery) error { got <- struct{}{}; return nil })
		s.appendTo(box, of("7", "x"))
		r.Wake()
		within(s, got, "the delivery")
	}},
	{"RelayLooksAgainWhenAnEventBecomesDue", func(s *store) {
		box := s.realTime()
		r := relayOf(s, box, outbox.RelayOptions{Poll: time.Hour, Backoff: func(int) time.Duration { return 20 * time.Millisecond }})
		s.appendTo(box, of("7", "x"))
		got := make(chan int, 3)
		s.run(r, func(_ context.Context, d outbox.Delivery) error {
			got <- d.Attempt
			if d.Attempt < 3 {
				return errors.New("again")
			}
			return nil
		})
		for attempt := 1; attempt <= 3; attempt++ {
			require.Equal(s, attempt, within(s, got, "the next attempt"))
		}
	}},
	{"SeveralRelaysShareTheWork", func(s *store) {
		const events = 200
		box := s.realTime()
		for n := range events {
			s.appendTo(box, of(fmt.Sprint(n%10), fmt.Sprint(n)))
		}
		var mu sync.Mutex
		last := map[string]int64{}
		seen := map[int64]int{}
		all := make(chan struct{})
		deliver := func(_ context.Context, d outbox.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if d.ID <= last[d.AggregateID] {
				s.Errorf("event %d came after %d", d.ID, last[d.AggregateID])
			}
			last[d.AggregateID] = d.ID
			if seen[d.ID]++; len(seen) == events {
				close(all)
			}
			return nil
		}
		for range 3 {
			s.run(relayOf(s, box, quick(outbox.RelayOptions{Workers: 2, Batch: 4})), deliver)
		}
		within(s, all, "all deliveries")
	}},
	{"RelaySurvivesThatItsTableIsGoneForAWhile", func(s *store) {
		box := s.realTime()
		got := make(chan struct{}, 10)
		s.run(relayOf(s, box, quick(outbox.RelayOptions{})), func(context.Context, outbox.Delivery) error { got <- struct{}{}; return nil })
		s.rename("coop_outbox_heads", "away")
		time.Sleep(100 * time.Millisecond) // long enough to stumble
		s.rename("away", "coop_outbox_heads")
		s.appendTo(box, of("7", "x"))
		within(s, got, "the delivery")
	}},
}

// rename moves a table out of the relay's sight, or back.
func (s *store) rename(from, to string) {
	s.Helper()
	_, err := s.db.ExecContext(s.Context(), `ALTER TABLE `+from+` RENAME TO `+to)
	require.NoError(s, err)
}

// stacks are those of all goroutines.
func stacks() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}

// eventually waits until ok, but not for ever.
func (s *store) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("waited in vain for " + what)
		}
	}
}
