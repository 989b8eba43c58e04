package main

import (
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func zombiezenVersion(query string) (version string, err error) {
	conn, err := sqlite.OpenConn(":memory:")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		version = s.ColumnText(0)
		return nil
	}})
	return version, err
}
