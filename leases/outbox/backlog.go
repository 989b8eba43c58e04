package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// A Backlog says how far deliveries are behind. It is what to watch: alarm on
// Dead above zero and on Oldest above what the consumers can bear.
type Backlog struct {
	Pending int64         // events to be delivered, those under way included
	Dead    int64         // events that need a decision
	Oldest  time.Duration // the age of the oldest pending event that nothing dead holds back; 0 if there is none
}

// Backlog counts. It takes no lock; the time it takes grows with the backlog
// (some tens of milliseconds for a million events).
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) {
	var b Backlog
	err := o.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) error {
		var oldest sql.NullInt64
		err := q.QueryRowContext(ctx, o.texts.Of(`SELECT
			(SELECT count(*) FROM {outbox} WHERE state = 'pending'),
			(SELECT count(*) FROM {outbox} WHERE state = 'dead'),
			(SELECT created_at FROM {outbox} WHERE id = (SELECT min(event_id) FROM {heads} WHERE due_at IS NOT NULL))`)).
			Scan(&b.Pending, &b.Dead, &oldest)
		if err != nil || !oldest.Valid {
			return err
		}
		now, err := o.store.Peek(ctx)
		b.Oldest = max(time.Duration(now-oldest.Int64), 0)
		return err
	})
	if err != nil {
		return Backlog{}, fmt.Errorf("outbox: count the backlog: %w", err)
	}
	return b, nil
}

// Purge deletes events that were delivered or discarded before the given time,
// and returns how many. It does so in small transactions; what was deleted when
// ctx ends stays deleted. Pending and dead events are never purged.
func (o *Outbox) Purge(ctx context.Context, before time.Time) (int64, error) {
	for total := int64(0); ; {
		var n int64
		err := o.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) error {
			deleted, err := tx.ExecContext(ctx, o.texts.Of(`DELETE FROM {outbox} WHERE id IN
				(SELECT id FROM {outbox} WHERE ended_at < ? ORDER BY ended_at LIMIT ?{skip})`), before.UnixNano(), stepRows)
			if err == nil {
				n, err = deleted.RowsAffected()
			}
			return err
		})
		if err != nil {
			return total, fmt.Errorf("outbox: purge: %w", err)
		}
		total += n
		if n < stepRows {
			return total, nil
		}
	}
}
