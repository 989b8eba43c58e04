package main

import (
	"fmt"
)

// Users in, users out: one table, one transaction, one query.

const usersSchema = `CREATE TABLE users (id INTEGER PRIMARY KEY, created INTEGER NOT NULL, email TEXT NOT NULL, active INTEGER NOT NULL)`

func simpleSuite(full bool) []*workload {
	rows := 100_000
	if full {
		rows = 1_000_000
	}
	return []*workload{
		suite(oneGoroutine, "simple: insert", "row", fmt.Sprintf("%s users by one prepared statement in one transaction.", thousands(rows)),
			[]string{usersSchema}, nil, func(s store) (sample, error) {
				begin := startWatch()
				err := addUsers(s, 0, rows)
				return begin.sample(rows), err
			}),
		suite(oneGoroutine, "simple: scan", "row", fmt.Sprintf("%s users by one query.", thousands(rows)),
			[]string{usersSchema}, func(s store) error { return addUsers(s, 0, rows) },
			func(s store) (sample, error) {
				begin := startWatch()
				err := scanUsers(s, rows)
				return begin.sample(rows), err
			}),
	}
}

// addUsers adds n users after the first ones, in one transaction.
func addUsers(s store, first, n int) error {
	return s.tx(func(t tx) error {
		insert, err := t.prepare(`INSERT INTO users (id, created, email, active) VALUES (?, ?, ?, ?)`)
		if err != nil {
			return err
		}
		for i := first + 1; i <= first+n; i++ {
			if err := insert.exec(i, 1_700_000_000+i, fmt.Sprintf("user%07d@example.com", i), i%2); err != nil {
				return err
			}
		}
		return nil
	})
}

// scanUsers reads all users, of which there are n.
func scanUsers(s store, n int) error {
	var id, created, active int64
	var email string
	seen := 0
	err := s.query(`SELECT id, created, email, active FROM users ORDER BY id`, nil, func(scan func(...any) error) error {
		seen++
		return scan(&id, &created, &email, &active)
	})
	if err == nil && seen != n {
		err = fmt.Errorf("%d users instead of %d", seen, n)
	}
	return err
}
