package coopsqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

// lockSuffix is appended to the store's real path. Coop engines in other
// languages lock the same file.
const lockSuffix = ".engine.lock"

// maxLinks is how many symbolic links are followed, as many as SQLite does.
const maxLinks = 100

// realPath resolves a store's path as SQLite will: links in the name are
// followed even when they lead to a file that does not exist yet, since SQLite
// creates the store at the end of the chain.
func realPath(path string) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("coopsqlite: store %s: %w", path, err) }
	at := path
	if !filepath.IsAbs(at) {
		wd, err := os.Getwd()
		if err != nil {
			return fail(err)
		}
		at = wd + "/" + at
	}
	for range maxLinks {
		info, err := os.Lstat(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
		// Split, not Dir: Dir would drop "link/.." before the link is followed.
		dir, base := filepath.Split(at)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			switch {
			case err == nil && info.IsDir():
				return fail(fmt.Errorf("%w: a store is one file", syscall.EISDIR))
			case err == nil && !info.Mode().IsRegular():
				return fail(errors.New("not a regular file"))
			case base == "":
				return fail(errors.New("no file name"))
			}
			if dir, err = filepath.EvalSymlinks(dir); err != nil {
				return fail(fmt.Errorf("its directory: %w", err))
			}
			return filepath.Join(dir, base), nil
		}
		target, err := os.Readlink(at)
		if err != nil {
			return fail(err)
		}
		if !filepath.IsAbs(target) {
			target = dir + target
		}
		at = target
	}
	return fail(syscall.ELOOP)
}

// escapeURI makes a path fit for a file: URI.
func escapeURI(path string) string {
	return (&url.URL{Path: path}).EscapedPath()
}
