package main

import (
	"fmt"
)

// The blog at scale: everything in one transaction, and out by one join.

func complexSuite(full bool) []*workload {
	b := blog{users: 40, articles: 50, comments: 20}
	if full {
		b = blog{users: 200, articles: 100, comments: 20}
	}
	sizes := fmt.Sprintf("%d users, %s articles and %s comments", b.users, thousands(b.users*b.articles), thousands(b.users*b.articles*b.comments))
	return []*workload{
		suite(oneGoroutine, "complex: insert", "row", sizes+" in one transaction.",
			blogSchema, nil, func(s store) (sample, error) {
				begin := startWatch()
				err := b.add(s, b.users)
				return begin.sample(b.rows()), err
			}),
		suite(oneGoroutine, "complex: join", "row", "One join over "+sizes+".",
			blogSchema, func(s store) error { return b.add(s, b.users) }, func(s store) (sample, error) {
				begin := startWatch()
				rows, err := b.read(s, `ORDER BY users.email, articles.id, comments.id`)
				if err != nil {
					return sample{}, err
				}
				return b.checked(rows, begin)
			}),
	}
}
