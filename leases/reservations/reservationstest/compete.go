package reservationstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

var competing = []promise{
	{"OneOfTwoRequestsForMoreThanThereIsIsAccepted", func(s *store) {
		for round := range 20 {
			sku := fmt.Sprint("seat", round)
			require.NoError(s, s.repo.SetStock(s.Context(), sku, 3))
			statuses := make(chan reservations.Status, 2)
			for n := range 2 {
				go func() {
					receipt, err := s.repo.Reserve(context.Background(), reservations.Request{
						Key: fmt.Sprint(round, " ", n), Lines: []reservations.Line{{SKU: sku, Quantity: 2}},
					})
					assert.NoError(s, err)
					statuses <- receipt.Status
				}()
			}
			require.ElementsMatch(s, []reservations.Status{reservations.Accepted, reservations.Insufficient},
				[]reservations.Status{<-statuses, <-statuses})
		}
		s.balance(60)
	}},
	{"OneOfManyWithTheSameKeyIsAcceptedAndAllOthersAreReplayed", func(s *store) {
		// The stock is enough for one. Whoever looked at it before the key would
		// call a repetition insufficient.
		const rounds, callers = 10, 16
		for round := range rounds {
			sku := fmt.Sprint("seat", round)
			require.NoError(s, s.repo.SetStock(s.Context(), sku, 1))
			var accepted, replayed atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					receipt, err := s.repo.Reserve(context.Background(), reservations.Request{
						Key: fmt.Sprint(round), Lines: []reservations.Line{{SKU: sku, Quantity: 1}},
					})
					assert.NoError(s, err)
					switch receipt.Status {
					case reservations.Accepted:
						accepted.Add(1)
					case reservations.Replayed:
						replayed.Add(1)
					}
				})
			}
			wg.Wait()
			require.EqualValues(s, 1, accepted.Load())
			require.EqualValues(s, callers-1, replayed.Load())
		}
	}},
	{"RequestsWithTheirLinesInAnyOrderDoNotLockEachOtherOut", func(s *store) {
		const skus, callers, each = 4, 8, 10
		for n := range skus {
			require.NoError(s, s.repo.SetStock(s.Context(), fmt.Sprint(n), callers*each))
		}
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for n := range each {
					request := reservations.Request{Key: fmt.Sprint(c, " ", n)}
					for _, sku := range rand.Perm(skus) {
						request.Lines = append(request.Lines, reservations.Line{SKU: fmt.Sprint(sku), Quantity: 1})
					}
					receipt, err := s.repo.Reserve(context.Background(), request)
					assert.NoError(s, err)
					assert.Equal(s, reservations.Accepted, receipt.Status)
				}
			})
		}
		wg.Wait()
		require.Zero(s, s.number(`SELECT CAST(sum(available) AS bigint) FROM coop_stock`))
	}},
	{"NothingIsLostOrMadeUpUnderLoad", func(s *store) {
		const workers, each, skus, perSKU = 64, 12, 3, 40
		s.repo = s.open(reservations.Options{}) // by the real clock
		for n := range skus {
			require.NoError(s, s.repo.SetStock(s.Context(), fmt.Sprint(n), perSKU))
		}
		var restocked atomic.Int64
		var mu sync.Mutex
		accepted := map[string]int{}
		act := func(ctx context.Context, r *rand.Rand) error {
			key := fmt.Sprint(r.IntN(workers * each / 2)) // most keys are asked for twice
			request := reservations.Request{Key: key, Event: event(key)}
			seeded := rand.New(rand.NewPCG(1, uint64(len(key))+uint64(key[0])<<8+uint64(key[len(key)-1])<<16))
			for range 1 + seeded.IntN(skus) {
				request.Lines = append(request.Lines, reservations.Line{SKU: fmt.Sprint(seeded.IntN(skus)), Quantity: 1 + seeded.Int64N(2)})
			}
			if seeded.IntN(3) > 0 {
				request.Hold = time.Duration(1+seeded.IntN(10)) * time.Millisecond
			}
			receipt, err := s.repo.Reserve(ctx, request)
			if err != nil {
				return err
			}
			if receipt.Status == reservations.Accepted {
				mu.Lock()
				accepted[key]++
				mu.Unlock()
			}
			switch r.IntN(8) {
			case 0:
				_, err = s.repo.Confirm(ctx, "", key)
			case 1:
				_, err = s.repo.Cancel(ctx, "", key)
			case 2:
				_, err = s.repo.ExpireHolds(ctx)
			case 3:
				if err = s.repo.Restock(ctx, fmt.Sprint(r.IntN(skus)), 1); err == nil {
					restocked.Add(1)
				}
			}
			if errors.Is(err, reservations.ErrHoldEnded) || errors.Is(err, reservations.ErrNotFound) {
				err = nil
			}
			return err
		}
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(2, uint64(w)))
				for range each {
					assert.NoError(s, act(context.Background(), r))
				}
			})
		}
		wg.Wait()
		s.balance(skus*perSKU + restocked.Load())
		for key, times := range accepted {
			require.Equal(s, 1, times, "key %s", key)
		}
		s.rows(int64(len(accepted)), int64(len(accepted)))
		require.EqualValues(s, len(accepted), s.number(`SELECT count(DISTINCT aggregate_id) FROM coop_outbox`))
		time.Sleep(11 * time.Millisecond) // every hold is over now
		_, err := s.repo.ExpireHolds(s.Context())
		require.NoError(s, err)
		require.Zero(s, s.number(`SELECT count(*) FROM coop_reservations WHERE state = 'held'`))
		s.balance(skus*perSKU + restocked.Load())
	}},
}
