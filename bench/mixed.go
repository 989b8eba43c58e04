package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Readers and writers at the same time, in WAL mode with synchronous=NORMAL.

func mixedSuite(full bool) []*workload {
	b := blog{users: 100, articles: 10, comments: 10}
	ops := 1000
	if full {
		b, ops = blog{users: 1000, articles: 20, comments: 10}, 10_000
	}
	all := []*workload{
		suite(oneGoroutine, "populate", "row", fmt.Sprintf("%s users with their articles and comments, 10 users per transaction.", thousands(b.users)),
			blogSchema, nil, func(s store) (sample, error) {
				begin := startWatch()
				err := b.add(s, 10)
				return begin.sample(b.rows()), err
			}),
	}
	for _, writes := range []int{0, 10, 50, 100} {
		all = append(all, suite(manyGoroutines, fmt.Sprintf("mix: %d %% writes", writes), "operation",
			fmt.Sprintf("8 goroutines that read a random article with its comments, or (%d %%) add a comment.", writes),
			blogSchema, func(s store) error { return b.add(s, 10) },
			func(s store) (sample, error) {
				const goroutines = 8
				begin := startWatch()
				err := parallel(goroutines, func(g int) error {
					source := rand.New(rand.NewPCG(uint64(g), uint64(time.Now().UnixNano())))
					for range ops / goroutines {
						article := source.IntN(b.users*b.articles) + 1
						if err := readOrComment(s, article, source.IntN(100) < writes); err != nil {
							return err
						}
					}
					return nil
				})
				return begin.sample(ops / goroutines * goroutines), err
			}))
	}
	return all
}

func readOrComment(s store, article int, write bool) error {
	if write {
		return s.exec(`INSERT INTO comments (created, article_id, body) VALUES (?, ?, ?)`, 1_800_000_000, article, commentBody)
	}
	var id int64
	var body, text string
	return s.query(`SELECT articles.body, comments.id, comments.body FROM articles JOIN comments ON comments.article_id = articles.id
		WHERE articles.id = ? ORDER BY comments.id`, []any{article}, func(scan func(...any) error) error {
		return scan(&body, &id, &text)
	})
}
