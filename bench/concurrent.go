package main

import (
	"errors"
	"fmt"
	"sync"
)

// Several goroutines that each read the whole of a large table.

func concurrentSuite(full bool) []*workload {
	rows := 50_000
	if full {
		rows = 1_000_000
	}
	var all []*workload
	for _, readers := range []int{2, 4, 8} {
		all = append(all, suite(manyGoroutines, fmt.Sprintf("concurrent: %d readers", readers), "row",
			fmt.Sprintf("%d goroutines at once that each read %s users by one query.", readers, thousands(rows)),
			[]string{usersSchema}, func(s store) error { return addUsers(s, 0, rows) },
			func(s store) (sample, error) {
				begin := startWatch()
				err := parallel(readers, func(int) error { return scanUsers(s, rows) })
				return begin.sample(readers * rows), err
			}))
	}
	return all
}

// parallel runs fn on n goroutines and waits for them.
func parallel(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = fn(i) })
	}
	group.Wait()
	return errors.Join(errs...)
}
