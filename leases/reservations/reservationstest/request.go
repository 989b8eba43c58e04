package reservationstest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

var requesting = []promise{
	{"AcceptedRequestTakesTheStockAndLeavesOneEvent", func(s *store) {
		s.seats(3)
		request := want("a", 2)
		request.Payload = []byte("for two")
		got := s.reserve(request, reservations.Accepted)
		require.Equal(s, reservations.Confirmed, got.State)
		require.Equal(s, request.Lines, got.Lines)
		require.True(s, got.Created.Equal(s.clock.Now()))
		require.True(s, got.Expires.IsZero())
		s.available(1)
		s.rows(1, 1)
		stored, err := s.repo.Get(s.Context(), "", "a")
		require.NoError(s, err)
		require.Equal(s, got, stored)
		relay, err := s.repo.Outbox().Relay(nil)
		require.NoError(s, err)
		claimed, err := relay.Claim(s.Context(), 10)
		require.NoError(s, err)
		require.Len(s, claimed, 1)
		require.Equal(s, *event("a"), claimed[0].Event)
		s.balance(3)
	}},
	{"RepeatedRequestIsReplayedAndChangesNothing", func(s *store) {
		s.seats(3)
		first := s.reserve(want("a", 2), reservations.Accepted)
		s.clock.Advance(time.Hour)
		for range 3 {
			require.Equal(s, first, s.reserve(want("a", 2), reservations.Replayed))
		}
		s.available(1)
		s.rows(1, 1)
	}},
	{"RequestWithoutAnEventLeavesNone", func(s *store) {
		s.seats(3)
		request := want("a", 2)
		request.Event = nil
		s.reserve(request, reservations.Accepted)
		s.rows(1, 0)
	}},
	{"KeyOfAnotherRequestIsAConflictWhateverTheStock", func(s *store) {
		s.seats(3)
		first := want("a", 2)
		first.Payload, first.Hold = []byte("p"), time.Hour
		s.reserve(first, reservations.Accepted)
		other := map[string]func(*reservations.Request){
			"fewer":       func(q *reservations.Request) { q.Lines = []reservations.Line{{SKU: "seat", Quantity: 1}} },
			"too many":    func(q *reservations.Request) { q.Lines = []reservations.Line{{SKU: "seat", Quantity: 4}} },
			"another SKU": func(q *reservations.Request) { q.Lines = []reservations.Line{{SKU: "table", Quantity: 2}} },
			"one more": func(q *reservations.Request) {
				q.Lines = append(q.Lines, reservations.Line{SKU: "table", Quantity: 1})
			},
			"payload":  func(q *reservations.Request) { q.Payload = []byte("q") },
			"no hold":  func(q *reservations.Request) { q.Hold = 0 },
			"the hold": func(q *reservations.Request) { q.Hold++ },
		}
		for name, change := range other {
			request := first
			request.Lines = append([]reservations.Line(nil), first.Lines...)
			change(&request)
			receipt, err := s.repo.Reserve(s.Context(), request)
			require.ErrorIs(s, err, reservations.ErrKeyReused, name)
			require.Zero(s, receipt, name)
		}
		s.available(1)
		s.rows(1, 1)
		s.reserve(first, reservations.Replayed)
	}},
	{"PartsOfARequestDoNotRunTogether", func(s *store) {
		require.NoError(s, s.repo.SetStock(s.Context(), "a", 100))
		require.NoError(s, s.repo.SetStock(s.Context(), "ab", 100))
		request := func(payload string, lines ...reservations.Line) reservations.Request {
			return reservations.Request{Key: "k", Payload: []byte(payload), Lines: lines}
		}
		s.reserve(request("b", reservations.Line{SKU: "a", Quantity: 1}), reservations.Accepted)
		s.conflict(request("", reservations.Line{SKU: "ab", Quantity: 1}))
		s.conflict(request("b", reservations.Line{SKU: "a", Quantity: 1}, reservations.Line{SKU: "ab", Quantity: 1}))
	}},
	{"EventIsNotPartOfTheRequest", func(s *store) {
		s.seats(3)
		s.reserve(want("a", 2), reservations.Accepted)
		again := want("a", 2)
		again.Event = &outbox.Event{Type: "something else"}
		s.reserve(again, reservations.Replayed)
		again.Event = nil
		s.reserve(again, reservations.Replayed)
		s.rows(1, 1)
	}},
	{"ScopesKeepKeysApart", func(s *store) {
		s.seats(10)
		for n, scope := range []string{"", "shop-1", "shop-2", "shop-1\x01"} {
			request := want("a", int64(n+1))
			request.Scope = scope
			s.reserve(request, reservations.Accepted)
			s.reserve(request, reservations.Replayed)
		}
		s.available(0)
	}},
	{"LinesAreAddedUpAndTheirOrderDoesNotMatter", func(s *store) {
		s.seats(10)
		require.NoError(s, s.repo.SetStock(s.Context(), "Table", 10))
		split := reservations.Request{Key: "a", Lines: []reservations.Line{
			{SKU: "seat", Quantity: 1}, {SKU: "Table", Quantity: 1}, {SKU: "seat", Quantity: 2},
		}}
		summed := reservations.Request{Key: "a", Lines: []reservations.Line{{SKU: "Table", Quantity: 1}, {SKU: "seat", Quantity: 3}}}
		require.Equal(s, summed.Lines, s.reserve(split, reservations.Accepted).Lines)
		require.Equal(s, summed.Lines, s.reserve(summed, reservations.Replayed).Lines)
		require.Equal(s, reservations.Line{SKU: "seat", Quantity: 1}, split.Lines[0], "the caller's lines are left alone")
		s.available(7)
	}},
	{"InvalidRequestIsRefused", func(s *store) {
		s.seats(3)
		long := strings.Repeat("x", 256)
		line := []reservations.Line{{SKU: "seat", Quantity: 1}}
		for name, bad := range map[string]reservations.Request{
			"no key":        {Lines: line},
			"long key":      {Key: long, Lines: line},
			"long scope":    {Scope: long, Key: "k", Lines: line},
			"NUL":           {Key: "k\x00", Lines: line},
			"not UTF-8":     {Key: "\xff", Lines: line},
			"no lines":      {Key: "k"},
			"no SKU":        {Key: "k", Lines: []reservations.Line{{Quantity: 1}}},
			"zero":          {Key: "k", Lines: []reservations.Line{{SKU: "seat"}}},
			"negative":      {Key: "k", Lines: []reservations.Line{{SKU: "seat", Quantity: -1}}},
			"too many":      {Key: "k", Lines: []reservations.Line{{SKU: "seat", Quantity: reservations.MaxQuantity + 1}}},
			"too many too":  {Key: "k", Lines: []reservations.Line{{SKU: "seat", Quantity: reservations.MaxQuantity}, {SKU: "seat", Quantity: 1}}},
			"overflow":      {Key: "k", Lines: []reservations.Line{{SKU: "seat", Quantity: 1<<63 - 1}, {SKU: "seat", Quantity: 1<<63 - 1}}},
			"too many rows": {Key: "k", Lines: make([]reservations.Line, reservations.MaxLines+1)},
			"negative hold": {Key: "k", Lines: line, Hold: -1},
			"endless hold":  {Key: "k", Lines: line, Hold: reservations.MaxHold + 1},
		} {
			_, err := s.repo.Reserve(s.Context(), bad)
			require.ErrorIs(s, err, reservations.ErrInvalidRequest, name)
		}
		s.available(3)
		s.rows(0, 0)
	}},
	{"RequestWithAnInvalidEventLeavesNothing", func(s *store) {
		s.seats(3)
		bad := want("a", 2)
		bad.Event = &outbox.Event{}
		_, err := s.repo.Reserve(s.Context(), bad)
		require.ErrorIs(s, err, outbox.ErrInvalidEvent)
		s.available(3)
		s.rows(0, 0)
		s.reserve(want("a", 2), reservations.Accepted)
	}},
}

var rejecting = []promise{
	{"InsufficientStockTakesNothingAndForgetsTheKey", func(s *store) {
		s.seats(3)
		require.Zero(s, s.reserve(want("a", 4), reservations.Insufficient))
		s.available(3)
		s.rows(0, 0)
		require.NoError(s, s.repo.Restock(s.Context(), "seat", 1))
		s.reserve(want("a", 4), reservations.Accepted)
		s.available(0)
	}},
	{"SeveralLinesAreAllOrNothing", func(s *store) {
		s.seats(3)
		require.NoError(s, s.repo.SetStock(s.Context(), "a", 1))
		require.NoError(s, s.repo.SetStock(s.Context(), "z", 1))
		s.reserve(reservations.Request{Key: "k", Lines: []reservations.Line{
			{SKU: "z", Quantity: 2}, {SKU: "seat", Quantity: 1}, {SKU: "a", Quantity: 1},
		}}, reservations.Insufficient)
		s.available(3)
		s.balance(5)
	}},
	{"UnknownSKUIsInsufficient", func(s *store) {
		s.reserve(want("a", 1), reservations.Insufficient)
		s.rows(0, 0)
	}},
	{"RememberedRejectionStaysInsufficient", func(s *store) {
		s.seats(3)
		require.NoError(s, s.repo.SetStock(s.Context(), "a", 9))
		s.repo = s.open(reservations.Options{Clock: s.clock, RememberRejections: true})
		request := want("k", 4)
		request.Lines = append(request.Lines, reservations.Line{SKU: "a", Quantity: 1})
		for range 2 {
			got := s.reserve(request, reservations.Insufficient)
			require.Equal(s, reservations.Rejected, got.State)
			require.True(s, got.Ended.Equal(s.clock.Now()))
		}
		s.rows(1, 0)
		s.balance(12)
		require.NoError(s, s.repo.Restock(s.Context(), "seat", 10))
		s.reserve(request, reservations.Insufficient)
		s.conflict(want("k", 1))
		s.available(13)
		s.state("k", reservations.Rejected)
		_, err := s.repo.Confirm(s.Context(), "", "k")
		require.ErrorIs(s, err, reservations.ErrHoldEnded)
	}},
	{"RejectedHoldCanBeRemembered", func(s *store) {
		s.seats(1)
		s.repo = s.open(reservations.Options{Clock: s.clock, RememberRejections: true})
		s.reserve(hold("k", 2), reservations.Insufficient)
		s.reserve(hold("k", 2), reservations.Insufficient)
		s.clock.Advance(2 * time.Hour)
		n, err := s.repo.ExpireHolds(s.Context())
		require.NoError(s, err)
		require.Zero(s, n)
		s.available(1)
	}},
}
