package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every contender must do the same work, or comparing them means nothing.
func TestEveryContenderReadsWhatItHasWritten(t *testing.T) {
	b := blog{users: 3, articles: 4, comments: 5}
	for _, c := range []contender{coop, coopOff, mattn, mattnCached, mattnSplit, modernc, ncruces, zombiezen} {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.store(t.TempDir())
			require.NoError(t, err)
			defer s.close()
			for _, ddl := range blogSchema {
				require.NoError(t, s.exec(ddl))
			}
			require.NoError(t, b.add(s, 2))
			rows, err := b.read(s, `WHERE users.id = ?`, 2)
			require.NoError(t, err)
			require.Equal(t, b.articles*b.comments, rows)
			require.NoError(t, scanUsers(s, b.users))

			for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "1", "foreign_keys": "1"} {
				var got string
				require.NoError(t, s.query("SELECT * FROM pragma_"+pragma, nil, func(scan func(...any) error) error { return scan(&got) }))
				require.Equal(t, want, got, pragma)
			}
			require.Error(t, s.exec(`INSERT INTO comments (created, article_id, body) VALUES (1, 999, '')`), "the foreign key")
		})
	}
}
