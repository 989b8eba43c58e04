package main

import (
	"context"
	"os"

	"github.com/coopsqlite/coopsqlite"
)

// backupJSON is what backup --json prints.
type backupJSON struct {
	Path  string `json:"path"`
	Dest  string `json:"dest"`
	Plain bool   `json:"plain"`
	Size  int64  `json:"size"`
}

func runBackup(ctx context.Context, s *session) error {
	flags := s.flags()
	plain := flags.Bool("plain", false, "make an ordinary file of the copy, without fences")
	args, err := s.parse(flags, 2, 2)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(args[1]); err == nil {
		return usagef("%s exists already", args[1])
	}
	reader, err := s.openReader(args[0])
	if err != nil {
		return err
	}
	defer reader.close()
	err = reader.Backup(ctx, args[1], &coopsqlite.BackupOptions{Plain: *plain, Progress: func(done, total int) {
		s.progress("%d of %d pages", done, total)
	}})
	s.progress("")
	if err != nil {
		return err
	}
	info, err := os.Stat(args[1])
	if err != nil {
		return err
	}
	s.printf("%s is a copy of %s, %d bytes.\n", args[1], reader.Path(), info.Size())
	return s.printJSON(backupJSON{reader.Path(), args[1], *plain, info.Size()})
}
