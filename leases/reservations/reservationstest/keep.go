package reservationstest

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

var keeping = []promise{
	{"SetStockCreatesAndNeverChanges", func(s *store) {
		s.seats(3)
		s.reserve(want("a", 2), reservations.Accepted)
		require.ErrorIs(s, s.repo.SetStock(s.Context(), "seat", 3), reservations.ErrStockExists)
		s.available(1)
	}},
	{"RestockAddsToWhatIsThere", func(s *store) {
		s.seats(0)
		require.NoError(s, s.repo.Restock(s.Context(), "seat", 4))
		require.NoError(s, s.repo.Restock(s.Context(), "seat", reservations.MaxQuantity))
		s.available(4 + reservations.MaxQuantity)
		require.ErrorIs(s, s.repo.Restock(s.Context(), "table", 1), reservations.ErrUnknownSKU)
		_, err := s.repo.Available(s.Context(), "table")
		require.ErrorIs(s, err, reservations.ErrUnknownSKU)
	}},
	{"QuantitiesOutOfBoundsAreRefused", func(s *store) {
		s.seats(3)
		for _, q := range []int64{-1, reservations.MaxQuantity + 1} {
			require.ErrorIs(s, s.repo.SetStock(s.Context(), "table", q), reservations.ErrInvalidRequest)
			require.ErrorIs(s, s.repo.Restock(s.Context(), "seat", q), reservations.ErrInvalidRequest)
		}
		require.ErrorIs(s, s.repo.Restock(s.Context(), "seat", 0), reservations.ErrInvalidRequest)
		require.ErrorIs(s, s.repo.SetStock(s.Context(), "", 1), reservations.ErrInvalidRequest)
		_, err := s.db.ExecContext(s.Context(), fmt.Sprintf(`UPDATE coop_stock SET available = %d`, int64(1<<62)))
		require.NoError(s, err)
		require.ErrorIs(s, s.repo.Restock(s.Context(), "seat", 1), reservations.ErrInvalidRequest)
		s.available(1 << 62)
	}},
	{"DatabaseItselfRefusesNegativeStock", func(s *store) {
		s.seats(3)
		_, err := s.db.ExecContext(s.Context(), `UPDATE coop_stock SET available = available - 4`)
		require.Error(s, err)
		s.available(3)
	}},
	{"PurgeForgetsWhatHasEndedAndItsKeysAreNew", func(s *store) {
		const old = 300 // more than one step
		s.seats(1000)
		for n := range old {
			s.reserve(want(fmt.Sprint(n), 1), reservations.Accepted)
		}
		s.reserve(hold("held", 1), reservations.Accepted)
		s.reserve(hold("cancelled", 1), reservations.Accepted)
		require.NoError(s, s.cancel("cancelled"))
		s.clock.Advance(time.Minute)
		noon := s.clock.Now()
		s.reserve(want("new", 1), reservations.Accepted)

		n, err := s.repo.Purge(s.Context(), noon)
		require.NoError(s, err)
		require.EqualValues(s, old+1, n)
		s.rows(2, old+3)
		require.EqualValues(s, 2, s.number(`SELECT count(*) FROM coop_reservations_lines`))
		s.reserve(want("new", 1), reservations.Replayed)
		s.reserve(want("0", 1), reservations.Accepted)
		require.NoError(s, s.confirm("held"))
	}},
	{"OtherTablesAreAnotherRepository", func(s *store) {
		s.seats(3)
		other := s.open(reservations.Options{Tables: reservations.Tables{Stock: "stock", Reservations: "reservations", Outbox: "outbox"}})
		require.NoError(s, other.SetStock(s.Context(), "seat", 5))
		receipt, err := other.Reserve(s.Context(), want("a", 2))
		require.NoError(s, err)
		require.Equal(s, reservations.Accepted, receipt.Status)
		s.rows(0, 0)
		require.EqualValues(s, 3, s.number(`SELECT available FROM stock`))
		require.EqualValues(s, 1, s.number(`SELECT count(*) FROM reservations WHERE op_key = 'a'`))
		require.EqualValues(s, 1, s.number(`SELECT count(*) FROM outbox`))
	}},
	{"SchemaIsWhatNewCreates", func(s *store) {
		text, err := reservations.Schema(s.dialect, reservations.Tables{})
		require.NoError(s, err)
		_, err = s.db.ExecContext(s.Context(), text)
		require.NoError(s, err, "it does nothing where it was run before")
		_, err = reservations.Schema(s.dialect, reservations.Tables{Stock: "a.b.c"})
		require.Error(s, err)
	}},
	{"OperationsInsideAnOpenTransactionAreRefusedAtOnce", func(s *store) {
		// On SQLite they would wait for the very transaction they are in.
		s.seats(3)
		manager, err := leases.New(s.db, &leases.Options{Dialect: s.dialect})
		require.NoError(s, err)
		defer manager.Close()
		lease, err := manager.Acquire(s.Context(), "job", time.Minute, 0)
		require.NoError(s, err)
		relay, err := s.repo.Outbox().Relay(nil)
		require.NoError(s, err)
		require.NoError(s, lease.Tx(s.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := s.repo.Reserve(ctx, want("a", 1))
			require.ErrorIs(s, err, leases.ErrInsideTx)
			_, err = s.repo.Confirm(ctx, "", "a")
			require.ErrorIs(s, err, leases.ErrInsideTx)
			require.ErrorIs(s, s.repo.Restock(ctx, "seat", 1), leases.ErrInsideTx)
			require.ErrorIs(s, relay.Ack(ctx, outbox.Delivery{}), leases.ErrInsideTx)
			return s.repo.Outbox().Append(ctx, tx, *event("a"))
		}))
		s.rows(0, 1)
	}},
	{"OptionsOutOfBoundsAreErrors", func(s *store) {
		_, err := reservations.New(nil, nil)
		require.Error(s, err)
		_, err = reservations.New(s.db, &reservations.Options{Dialect: leases.Dialect(7)})
		require.Error(s, err)
		_, err = reservations.New(s.db, &reservations.Options{Dialect: s.dialect, Tables: reservations.Tables{Reservations: "."}})
		require.Error(s, err)
	}},
}
