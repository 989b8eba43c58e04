package main

import (
	"crypto/rand"
	"fmt"
)

// Large rows. The long form needs some 15 GB of disk.

func largeSuite(full bool) []*workload {
	const perTx = 100
	rows := 300
	if full {
		rows = 10_000
	}
	var all []*workload
	for _, kb := range []int{50, 100, 200} {
		body := make([]byte, kb*1000)
		rand.Read(body)
		add := func(s store) error {
			for range rows / perTx {
				if err := s.tx(func(t tx) error {
					insert, err := t.prepare(`INSERT INTO files (body) VALUES (?)`)
					if err != nil {
						return err
					}
					for range perTx {
						if err := insert.exec(body); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		}
		schema := []string{`CREATE TABLE files (id INTEGER PRIMARY KEY, body BLOB NOT NULL)`}
		all = append(all,
			suite(largeRows, fmt.Sprintf("large: insert, %d KB", kb), "row", fmt.Sprintf("%s rows of %d KB, 100 per transaction.", thousands(rows), kb),
				schema, nil, func(s store) (sample, error) {
					begin := startWatch()
					err := add(s)
					return begin.sample(rows), err
				}),
			suite(largeRows, fmt.Sprintf("large: scan, %d KB", kb), "row", fmt.Sprintf("%s rows of %d KB by one query.", thousands(rows), kb),
				schema, add, func(s store) (sample, error) {
					begin := startWatch()
					seen := 0
					var id int64
					err := s.query(`SELECT id, body FROM files`, nil, func(scan func(...any) error) error {
						var got []byte
						if err := scan(&id, &got); err != nil {
							return err
						}
						if len(got) == len(body) {
							seen++
						}
						return nil
					})
					if err == nil && seen != rows {
						err = fmt.Errorf("%d rows instead of %d", seen, rows)
					}
					return begin.sample(rows), err
				}))
	}
	return all
}
