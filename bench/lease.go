package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
)

// Leases that come and go.

func leaseWorkloads() []*workload {
	var all []*workload
	for _, goroutines := range []int{1, 16, 64} {
		all = append(all, &workload{
			family: "leases", name: fmt.Sprintf("acquire and release, %d goroutines", goroutines), unit: "pair", baseline: mattnSplit.name, slices: 2, waits: true,
			what: "Each goroutine acquires and releases a lease of its own, again and again; mattn runs the same code.",
			subjects: each(``, func(p pools) (func() (sample, error), error) {
				m, err := leases.New(p.write, nil)
				if err != nil {
					return nil, err
				}
				return func() (sample, error) {
					return together(goroutines, 400*time.Millisecond, func(ctx context.Context, i int) error {
						l, err := m.Acquire(ctx, fmt.Sprintf("job-%d", i%goroutines), time.Minute, 0)
						if err != nil {
							return err
						}
						return l.Release(ctx)
					}), nil
				}, nil
			}, coop, mattnSplit),
		})
	}
	return all
}
