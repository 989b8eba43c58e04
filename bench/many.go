package main

import (
	"fmt"
)

// Small results, many times.

func manySuite(full bool) []*workload {
	repeats := 200
	if full {
		repeats = 1000
	}
	var all []*workload
	for _, rows := range []int{10, 100, 1000} {
		all = append(all, suite(oneGoroutine, fmt.Sprintf("many: %s rows", thousands(rows)), "query",
			fmt.Sprintf("A query for all of %s users, %s times.", thousands(rows), thousands(repeats)),
			[]string{usersSchema}, func(s store) error { return addUsers(s, 0, rows) },
			func(s store) (sample, error) {
				begin := startWatch()
				for range repeats {
					if err := scanUsers(s, rows); err != nil {
						return sample{}, err
					}
				}
				return begin.sample(repeats), nil
			}))
	}
	return all
}
