package reservationstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

func (s *store) confirm(key string) error {
	_, err := s.repo.Confirm(s.Context(), "", key)
	return err
}

func (s *store) cancel(key string) error {
	_, err := s.repo.Cancel(s.Context(), "", key)
	return err
}

func (s *store) expire(n int) {
	s.Helper()
	ended, err := s.repo.ExpireHolds(s.Context())
	require.NoError(s, err)
	require.Equal(s, n, ended)
}

// ended wants that err says how the hold ended.
func (s *store) ended(err error, how reservations.State) {
	s.Helper()
	require.ErrorIs(s, err, reservations.ErrHoldEnded)
	e, ok := errors.AsType[*reservations.HoldEndedError](err)
	require.True(s, ok)
	require.Equal(s, how, e.State)
}

var holding = []promise{
	{"HeldStockIsTakenUntilTheHoldIsOver", func(s *store) {
		s.seats(3)
		got := s.reserve(hold("a", 2), reservations.Accepted)
		require.Equal(s, reservations.Held, got.State)
		require.True(s, got.Expires.Equal(s.clock.Now().Add(time.Hour)))
		require.True(s, got.Ended.IsZero())
		s.clock.Advance(time.Hour - 1)
		s.available(1)
		s.expire(0)
		s.reserve(want("b", 2), reservations.Insufficient)
		s.state("a", reservations.Held)
		s.balance(3)
	}},
	{"HoldThatIsNotConfirmedInTimeGivesItsStockBack", func(s *store) {
		s.seats(3)
		s.reserve(hold("a", 2), reservations.Accepted)
		s.clock.Advance(time.Hour)
		s.available(3)
		s.state("a", reservations.Expired)
		s.expire(1)
		s.expire(0)
		s.available(3)
		s.state("a", reservations.Expired)
		require.EqualValues(s, 3, s.number(`SELECT available FROM coop_stock`))
	}},
	{"ReserveSweepsHoldsThatAreOverBeforeItSaysInsufficient", func(s *store) {
		const holds = 70 // more than one sweep finds
		s.seats(holds)
		for n := range holds {
			s.reserve(hold(fmt.Sprint("h", n), 1), reservations.Accepted)
		}
		s.reserve(want("b", 1), reservations.Insufficient)
		s.clock.Advance(time.Hour)
		s.reserve(want("b", holds), reservations.Accepted)
		s.reserve(want("c", 1), reservations.Insufficient)
		s.balance(holds)
	}},
	{"RememberedRejectionComesOnlyAfterTheSweep", func(s *store) {
		s.seats(3)
		s.repo = s.open(reservations.Options{Clock: s.clock, RememberRejections: true})
		s.reserve(hold("a", 3), reservations.Accepted)
		s.clock.Advance(time.Hour)
		s.reserve(want("b", 3), reservations.Accepted)
		s.reserve(want("c", 1), reservations.Insufficient)
		s.balance(3)
	}},
	{"ConfirmedHoldIsFinal", func(s *store) {
		s.seats(3)
		s.reserve(hold("a", 2), reservations.Accepted)
		s.clock.Advance(time.Hour - 1)
		got, err := s.repo.Confirm(s.Context(), "", "a", outbox.Event{Type: "order.confirmed"})
		require.NoError(s, err)
		require.Equal(s, reservations.Confirmed, got.State)
		require.Equal(s, want("a", 2).Lines, got.Lines)
		require.True(s, got.Ended.Equal(s.clock.Now()))
		s.clock.Advance(time.Hour)
		s.expire(0)
		s.available(1)
		require.NoError(s, s.confirm("a"))
		_, err = s.repo.Confirm(s.Context(), "", "a", outbox.Event{Type: "order.confirmed"})
		require.NoError(s, err)
		s.ended(s.cancel("a"), reservations.Confirmed)
		require.Equal(s, got, s.reserve(hold("a", 2), reservations.Replayed))
		s.rows(1, 2)
		s.balance(3)
	}},
	{"CancelledHoldGivesItsStockBackOnce", func(s *store) {
		s.seats(3)
		s.reserve(hold("a", 2), reservations.Accepted)
		got, err := s.repo.Cancel(s.Context(), "", "a", outbox.Event{Type: "order.cancelled"})
		require.NoError(s, err)
		require.Equal(s, reservations.Cancelled, got.State)
		s.available(3)
		require.NoError(s, s.cancel("a"))
		s.ended(s.confirm("a"), reservations.Cancelled)
		s.clock.Advance(2 * time.Hour)
		s.expire(0)
		s.available(3)
		s.rows(1, 2)
	}},
	{"ConfirmOfAHoldThatIsOverGivesTheStockBackItself", func(s *store) {
		s.seats(3)
		s.reserve(hold("a", 2), reservations.Accepted)
		s.clock.Advance(time.Hour)
		_, err := s.repo.Confirm(s.Context(), "", "a", outbox.Event{Type: "order.confirmed"})
		s.ended(err, reservations.Expired)
		require.EqualValues(s, 3, s.number(`SELECT available FROM coop_stock`))
		s.rows(1, 1)
		s.expire(0)
		s.ended(s.confirm("a"), reservations.Expired)
		s.ended(s.cancel("a"), reservations.Expired)
	}},
	{"CancelOfAHoldThatIsOverSaysSo", func(s *store) {
		s.seats(3)
		s.reserve(hold("a", 2), reservations.Accepted)
		s.clock.Advance(time.Hour)
		s.ended(s.cancel("a"), reservations.Expired)
		require.EqualValues(s, 3, s.number(`SELECT available FROM coop_stock`))
	}},
	{"KeyOfAnEndedHoldNeverReservesAgain", func(s *store) {
		s.seats(3)
		s.reserve(hold("expired", 1), reservations.Accepted)
		s.reserve(hold("over", 1), reservations.Accepted)
		s.reserve(hold("cancelled", 1), reservations.Accepted)
		require.NoError(s, s.cancel("cancelled"))
		s.clock.Advance(time.Hour)
		over := s.reserve(hold("over", 1), reservations.Replayed)
		require.Equal(s, reservations.Expired, over.State, "though nobody has swept it")
		s.expire(1)
		require.Equal(s, reservations.Expired, s.reserve(hold("expired", 1), reservations.Replayed).State)
		require.Equal(s, reservations.Cancelled, s.reserve(hold("cancelled", 1), reservations.Replayed).State)
		s.conflict(want("expired", 1))
		s.available(3)
		s.balance(3)
	}},
	{"ReservationWithoutAHoldIsConfirmedAlready", func(s *store) {
		s.seats(3)
		s.reserve(want("a", 2), reservations.Accepted)
		require.NoError(s, s.confirm("a"))
		s.ended(s.cancel("a"), reservations.Confirmed)
		s.available(1)
	}},
	{"UnknownKeyCannotBeConfirmedCancelledOrRead", func(s *store) {
		require.ErrorIs(s, s.confirm("a"), reservations.ErrNotFound)
		require.ErrorIs(s, s.cancel("a"), reservations.ErrNotFound)
		_, err := s.repo.Get(s.Context(), "", "a")
		require.ErrorIs(s, err, reservations.ErrNotFound)
	}},
	{"ConfirmWithAnInvalidEventLeavesTheHold", func(s *store) {
		s.seats(3)
		s.reserve(hold("a", 2), reservations.Accepted)
		_, err := s.repo.Confirm(s.Context(), "", "a", outbox.Event{})
		require.ErrorIs(s, err, outbox.ErrInvalidEvent)
		s.state("a", reservations.Held)
		require.NoError(s, s.confirm("a"))
	}},
	{"OfConfirmCancelAndExpiryExactlyOneHappens", func(s *store) {
		const holds = 40
		s.seats(holds)
		for n := range holds {
			s.reserve(hold(fmt.Sprint(n), 1), reservations.Accepted)
		}
		// At one instant: half of the holds end under their confirmation.
		s.clock.Advance(time.Hour - 1)
		var wg sync.WaitGroup
		var mu sync.Mutex
		confirmed := map[string]bool{}
		for n := range holds {
			key := fmt.Sprint(n)
			for _, end := range []func() error{
				func() error {
					_, err := s.repo.Confirm(context.Background(), "", key)
					if err == nil {
						mu.Lock()
						confirmed[key] = true
						mu.Unlock()
					}
					return err
				},
				func() error { _, err := s.repo.Cancel(context.Background(), "", key); return err },
			} {
				wg.Go(func() {
					if err := end(); err != nil {
						assert.ErrorIs(s, err, reservations.ErrHoldEnded)
					}
				})
			}
			if n == holds/2 {
				wg.Go(func() {
					s.clock.Advance(1)
					_, err := s.repo.ExpireHolds(context.Background())
					assert.NoError(s, err)
				})
			}
		}
		wg.Wait()
		s.expire(0)
		for n := range holds {
			r, err := s.repo.Get(s.Context(), "", fmt.Sprint(n))
			require.NoError(s, err)
			require.NotEqual(s, reservations.Held, r.State)
			require.Equal(s, confirmed[r.Key], r.State == reservations.Confirmed, "who was told so")
		}
		s.available(holds - int64(len(confirmed)))
		s.balance(holds)
	}},
}
