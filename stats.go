package coopsqlite

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Stats counts what the ownership of a store has done in this process since it
// began, over all pools that share it.
type Stats struct {
	Transactions int64 // write transactions begun, autocommit statements included
	Commits      int64
	Rollbacks    int64
	Aborted      int64 // transactions that SQLite rolled back by itself
	Busy         int64 // waits that ended in an error
	Refused      int64 // writes refused because the ownership ended, or by a read-only transaction
	StmtHits     int64 // statements found in a connection's cache
	StmtMisses   int64
	Opened       int64 // physical connections opened
	Parked       int64 // physical connections kept open for the next to come, now
	Repairs      int64 // times the watcher restored fences that an outsider's DDL had removed or left out
	Waiting      int64 // writers waiting at the gate, now
	Lost         bool  // this ownership writes no more, although it was not closed: [Store.Status] says why
	GateWaits    Waits
}

// Waits sums up how long writers waited at the gate. The percentiles are upper
// bounds, at most an eighth too high.
type Waits struct {
	Count    int64
	P50, P99 time.Duration
	Max      time.Duration
}

type counters struct {
	transactions, commits, rollbacks, aborted, busy, refused atomic.Int64
	hits, misses, opened, repairs                            atomic.Int64
}

func (c *counters) snapshot() Stats {
	return Stats{
		Transactions: c.transactions.Load(),
		Commits:      c.commits.Load(),
		Rollbacks:    c.rollbacks.Load(),
		Aborted:      c.aborted.Load(),
		Busy:         c.busy.Load(),
		Refused:      c.refused.Load(),
		StmtHits:     c.hits.Load(),
		StmtMisses:   c.misses.Load(),
		Opened:       c.opened.Load(),
		Repairs:      c.repairs.Load(),
	}
}

// histogram counts durations in buckets of which each power of two has eight.
type histogram struct {
	buckets [64 * 8]atomic.Int64
	max     atomic.Int64
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(uint64(d))].Add(1)
	for {
		max := h.max.Load()
		if int64(d) <= max || h.max.CompareAndSwap(max, int64(d)) {
			return
		}
	}
}

func bucketOf(n uint64) int {
	if n < 8 {
		return int(n)
	}
	exp := bits.Len64(n) - 4 // n>>exp is 8…15
	return exp*8 + int(n>>exp)
}

// bound is the largest duration in a bucket.
func bound(bucket int) time.Duration {
	if bucket < 16 {
		return time.Duration(bucket)
	}
	exp := bucket/8 - 1
	return time.Duration((uint64(bucket-exp*8)+1)<<exp - 1)
}

func (h *histogram) snapshot() Waits {
	var counts [len(h.buckets)]int64
	w := Waits{Max: time.Duration(h.max.Load())}
	for i := range h.buckets {
		counts[i] = h.buckets[i].Load()
		w.Count += counts[i]
	}
	percentile := func(share float64) time.Duration {
		rank, seen := int64(share*float64(w.Count)), int64(0)
		for i, n := range counts {
			if seen += n; seen > rank {
				return min(bound(i), w.Max)
			}
		}
		return w.Max
	}
	if w.Count > 0 {
		w.P50, w.P99 = percentile(0.50), percentile(0.99)
	}
	return w
}
