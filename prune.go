package coopsqlite

import (
	"context"
	"fmt"
	"time"
)

// A step of PruneChanges takes about so long, and the gate is free after it.
const pruneStep = 3 * time.Millisecond

// PruneChanges deletes the changes whose Seq is below before, in small steps
// between which others write, and returns how many it has deleted. The newest
// change is always kept, so that numbers are never used again. To prune by age,
// see [Store.SeqAt].
func (s *Store) PruneChanges(ctx context.Context, before int64) (deleted int64, err error) {
	for count := int64(256); ; {
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
		var n int64
		var took time.Duration
		err := s.writeTx(ctx, func(c *conn) error {
			start := time.Now()
			var err error
			n, err = c.pruneSome(before, count)
			took = time.Since(start)
			return err
		})
		switch {
		case isNoTable(err):
			return deleted, fmt.Errorf("%w: %s", ErrNoChanges, s.own.name())
		case err != nil:
			return deleted, err
		case n == 0:
			return deleted, nil
		}
		deleted += n
		switch {
		case took > pruneStep:
			count = max(count/2, 16)
		case took < pruneStep/2:
			count = min(count*2, 1<<11)
		}
	}
}

// pruneSome deletes up to count of the oldest changes.
func (c *conn) pruneSome(before, count int64) (deleted int64, err error) {
	ends, err := c.sh.Query(endsOfFeed)
	if err != nil {
		return 0, err
	}
	oldest, newest := number(ends[0]), number(ends[1])
	end := min(before, newest)
	if end <= oldest {
		return 0, nil
	}
	if err := c.sh.Exec(fmt.Sprintf("DELETE FROM main.coop_changes WHERE seq < %d", min(oldest+count, end))); err != nil {
		return 0, err
	}
	n, err := c.sh.Query("SELECT changes()")
	if err != nil {
		return 0, err
	}
	return number(n[0]), nil
}

// SeqAt returns the number of the last change that was recorded before t; 0 if
// there is none. So Changes(ctx, seq) begins with the first since t, and
// PruneChanges(ctx, seq+1) deletes what is older. It relies on a clock that was
// not set back.
func (s *Store) SeqAt(ctx context.Context, t time.Time) (seq int64, err error) {
	err = s.withConn(ctx, func(c *conn) error {
		ends, err := c.sh.Query(endsOfFeed)
		if err != nil {
			return err
		}
		low, high := number(ends[0]), number(ends[1])+1 // the answer is below high
		for seq = low - 1; low < high; {
			middle := low + (high-low)/2
			at, err := c.sh.Query(fmt.Sprintf("SELECT seq, time FROM main.coop_changes WHERE seq >= %d ORDER BY seq LIMIT 1", middle))
			if err != nil {
				return err
			}
			if len(at) == 0 || number(at[1]) >= t.UnixMicro() {
				high = middle
				continue
			}
			seq = number(at[0])
			low = seq + 1
		}
		return nil
	})
	if isNoTable(err) {
		err = fmt.Errorf("%w: %s", ErrNoChanges, s.own.name())
	}
	return max(seq, 0), err
}
