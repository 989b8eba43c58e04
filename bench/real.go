package main

import (
	"fmt"
)

// A web site in small: users who write articles that are commented on.

var blogSchema = []string{
	usersSchema,
	`CREATE TABLE articles (id INTEGER PRIMARY KEY, created INTEGER NOT NULL, user_id INTEGER NOT NULL REFERENCES users (id), body TEXT NOT NULL)`,
	`CREATE INDEX articles_user ON articles (user_id)`,
	`CREATE TABLE comments (id INTEGER PRIMARY KEY, created INTEGER NOT NULL, article_id INTEGER NOT NULL REFERENCES articles (id), body TEXT NOT NULL)`,
	`CREATE INDEX comments_article ON comments (article_id)`,
}

const (
	articleBody = "An article about something that somebody has thought about, of the length of a sentence or two."
	commentBody = "A comment that agrees or does not."
)

// A blog is so many users, articles of each and comments on each article.
type blog struct{ users, articles, comments int }

func (b blog) rows() int { return b.users * (1 + b.articles*(1+b.comments)) }

func realSuite(full bool) []*workload {
	b := blog{100, 20, 20}
	return []*workload{
		suite(oneGoroutine, "real: insert", "row", "100 users, each in one transaction with 20 articles of 20 comments each.",
			blogSchema, nil, func(s store) (sample, error) {
				begin := startWatch()
				err := b.add(s, 1)
				return begin.sample(b.rows()), err
			}),
		suite(oneGoroutine, "real: query", "row", "For each of the users a query for the articles with their comments.",
			blogSchema, func(s store) error { return b.add(s, 1) }, func(s store) (sample, error) {
				begin := startWatch()
				rows := 0
				for user := range b.users {
					n, err := b.read(s, `WHERE users.id = ? ORDER BY articles.id, comments.id`, user+1)
					if err != nil {
						return sample{}, err
					}
					rows += n
				}
				return b.checked(rows, begin)
			}),
	}
}

// add writes the blog, so many users per transaction.
func (b blog) add(s store, perTx int) error {
	for first := 0; first < b.users; first += perTx {
		if err := s.tx(func(t tx) error {
			user, err := t.prepare(`INSERT INTO users (id, created, email, active) VALUES (?, ?, ?, ?)`)
			if err != nil {
				return err
			}
			article, err := t.prepare(`INSERT INTO articles (id, created, user_id, body) VALUES (?, ?, ?, ?)`)
			if err != nil {
				return err
			}
			comment, err := t.prepare(`INSERT INTO comments (id, created, article_id, body) VALUES (?, ?, ?, ?)`)
			if err != nil {
				return err
			}
			for u := first; u < min(first+perTx, b.users); u++ {
				if err := user.exec(u+1, 1_700_000_000+u, fmt.Sprintf("user%07d@example.com", u), 1); err != nil {
					return err
				}
				for a := u * b.articles; a < (u+1)*b.articles; a++ {
					if err := article.exec(a+1, 1_700_000_000+a, u+1, articleBody); err != nil {
						return err
					}
					for c := a * b.comments; c < (a+1)*b.comments; c++ {
						if err := comment.exec(c+1, 1_700_000_000+c, a+1, commentBody); err != nil {
							return err
						}
					}
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// read runs the join of all three tables and returns the number of rows.
func (b blog) read(s store, rest string, args ...any) (rows int, err error) {
	var user, article, comment int64
	var email, body, text string
	err = s.query(`SELECT users.id, users.email, articles.id, articles.body, comments.id, comments.body FROM users
		JOIN articles ON articles.user_id = users.id JOIN comments ON comments.article_id = articles.id `+rest, args,
		func(scan func(...any) error) error {
			rows++
			return scan(&user, &email, &article, &body, &comment, &text)
		})
	return rows, err
}

// checked is a sample, if all of the comments were read.
func (b blog) checked(rows int, begin watch) (sample, error) {
	s := begin.sample(rows)
	if want := b.users * b.articles * b.comments; rows != want {
		return s, fmt.Errorf("%d rows instead of %d", rows, want)
	}
	return s, nil
}
