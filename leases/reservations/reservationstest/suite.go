// Package reservationstest is what package reservations promises, as tests that
// run on any database it can live in.
package reservationstest

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

// Run runs the suite. fresh opens a pool on an empty database, and closes it at
// the end of the test.
func Run(t *testing.T, dialect leases.Dialect, fresh func(t *testing.T) *sql.DB) {
	for _, test := range slices.Concat(requesting, rejecting, holding, keeping, competing) {
		t.Run(test.name, func(t *testing.T) {
			s := &store{
				T: t, db: fresh(t), dialect: dialect,
				clock: leasetest.NewClock(time.Date(2024, 5, 17, 12, 0, 0, 0, time.UTC)),
			}
			s.repo = s.open(reservations.Options{Clock: s.clock})
			test.run(s)
		})
	}
}

type promise struct {
	name string
	run  func(s *store)
}

// A store is one test's database with a repository, on a clock that stands
// still.
type store struct {
	*testing.T
	db      *sql.DB
	dialect leases.Dialect
	clock   *leasetest.Clock
	repo    *reservations.Repository
}

func (s *store) open(options reservations.Options) *reservations.Repository {
	s.Helper()
	options.Dialect = s.dialect
	repo, err := reservations.New(s.db, &options)
	require.NoError(s, err)
	return repo
}

// seats creates that many seats.
func (s *store) seats(n int64) {
	s.Helper()
	require.NoError(s, s.repo.SetStock(s.Context(), "seat", n))
}

// want is a request for seats.
func want(key string, quantity int64) reservations.Request {
	return reservations.Request{Key: key, Lines: []reservations.Line{{SKU: "seat", Quantity: quantity}}, Event: event(key)}
}

// hold is a request for seats that are held for an hour.
func hold(key string, quantity int64) reservations.Request {
	request := want(key, quantity)
	request.Hold = time.Hour
	return request
}

func event(key string) *outbox.Event {
	return &outbox.Event{AggregateType: "order", AggregateID: key, Type: "order.placed", Payload: []byte(key)}
}

// reserve wants an answer of that status.
func (s *store) reserve(request reservations.Request, status reservations.Status) reservations.Reservation {
	s.Helper()
	receipt, err := s.repo.Reserve(s.Context(), request)
	require.NoError(s, err)
	require.Equal(s, status, receipt.Status)
	return receipt.Reservation
}

func (s *store) conflict(request reservations.Request) {
	s.Helper()
	receipt, err := s.repo.Reserve(s.Context(), request)
	require.ErrorIs(s, err, reservations.ErrKeyReused)
	require.Zero(s, receipt)
}

func (s *store) available(n int64) {
	s.Helper()
	available, err := s.repo.Available(s.Context(), "seat")
	require.NoError(s, err)
	require.Equal(s, n, available)
}

func (s *store) state(key string, state reservations.State) {
	s.Helper()
	r, err := s.repo.Get(s.Context(), "", key)
	require.NoError(s, err)
	require.Equal(s, state, r.State)
}

// number is the answer of a query for one.
func (s *store) number(query string) int64 {
	s.Helper()
	var n int64
	require.NoError(s, s.db.QueryRowContext(s.Context(), query).Scan(&n))
	return n
}

// rows wants that many reservations and events.
func (s *store) rows(reservations, events int64) {
	s.Helper()
	require.Equal(s, reservations, s.number(`SELECT count(*) FROM coop_reservations`), "reservations")
	require.Equal(s, events, s.number(`SELECT count(*) FROM coop_outbox`), "events")
}

// balance wants that what is on hand, held and sold is what was put in.
func (s *store) balance(putIn int64) {
	s.Helper()
	require.Equal(s, putIn, s.number(`SELECT CAST((SELECT sum(available) FROM coop_stock) + (SELECT coalesce(sum(quantity), 0)
		FROM coop_reservations_lines l JOIN coop_reservations r ON r.id = l.reservation_id WHERE r.state IN ('held', 'confirmed')) AS bigint)`))
	require.Zero(s, s.number(`SELECT count(*) FROM coop_stock WHERE available < 0`))
}
