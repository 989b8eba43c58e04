// Package pgserver runs a temporary PostgreSQL server: the binaries that are
// on the machine, a cluster of its own on a unix socket, as a user that is not
// root. Tests and benchmarks use it.
package pgserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrMissing means that there is no PostgreSQL on this machine.
var ErrMissing = errors.New("no PostgreSQL server on this machine")

// Server is a running server.
type Server struct {
	dir   string
	bin   string
	as    *syscall.Credential
	cmd   *exec.Cmd
	alive io.Closer     // closed, also by this process's death, it ends the server
	gone  chan struct{} // closed when it has ended
}

// babysit runs a server for as long as somebody holds the other end of its
// standard input, then removes its files, so that a program which is killed
// leaves nothing behind. Its first argument is the server's directory.
const babysit = `exec 3<&0
dir=$1
shift
"$@" </dev/null 3<&- &
server=$!
(cat <&3 >/dev/null; kill -QUIT $server) &
wait $server
cd /
rm -rf "$dir"`

// Socket is the path of the server's unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// DSN connects to a database of the server through the socket.
func (s *Server) DSN(database string) string { return DSN(s.dir, database) }

// DSN connects to a database of a server whose socket is in dir.
func DSN(dir, database string) string {
	return fmt.Sprintf("host=%s port=5432 user=postgres dbname=%s sslmode=disable", dir, database)
}

// Available is nil if Start finds PostgreSQL on this machine.
func Available() error {
	_, err := binaries()
	return err
}

// binaries is the newest directory with PostgreSQL's server binaries. Debian
// keeps them off the PATH.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// A link to it may stand alone.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	best, version := "", -1
	for _, path := range found {
		v, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err == nil && v > version {
			best, version = filepath.Dir(path), v
		}
	}
	if best == "" {
		return "", fmt.Errorf("%w: no initdb on the PATH or in /usr/lib/postgresql", ErrMissing)
	}
	return best, nil
}

// account is who the server runs as: PostgreSQL refuses root.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("run as root, and there is neither a user postgres nor nobody to run the server as")
}

// Start starts a server. Stop must be called; it ends by itself when this
// process does.
func Start() (_ *Server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := account()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgserver") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin, as: as, gone: make(chan struct{})}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := command(as, dir, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	// Durability is on, as a user has it: its cost is part of what is tested.
	s.cmd = command(as, dir, "/bin/sh", "-c", babysit, "sh", dir, filepath.Join(bin, "postgres"), "-D", data,
		"-c", "listen_addresses=", "-c", "unix_socket_directories="+dir, "-c", "port=5432",
		"-c", "max_connections=300", "-c", "shared_buffers=64MB", "-c", "log_min_messages=fatal")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.alive, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.gone)
	}()
	if err := s.await(); err != nil {
		text, _ := os.ReadFile(log.Name())
		s.Stop()
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return s, nil
}

func command(as *syscall.Credential, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	// No PGDATA, PGHOST and the like from outside.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// await waits until the server answers.
func (s *Server) await() error {
	for deadline := time.Now().Add(time.Minute); ; {
		err := s.run("pg_isready", "-q")
		if err == nil {
			return nil
		}
		select {
		case <-s.gone:
			return errors.New("the server ended")
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// run runs one of PostgreSQL's client programs against the server.
func (s *Server) run(program string, args ...string) error {
	cmd := command(s.as, s.dir, filepath.Join(s.bin, program), append([]string{"-h", s.dir, "-p", "5432", "-U", "postgres"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

// CreateDatabase makes an empty database.
func (s *Server) CreateDatabase(name string) error {
	return s.run("createdb", "-T", "template0", name)
}

// Stop ends the server without ceremony and removes its files.
func (s *Server) Stop() {
	_ = s.alive.Close()
	<-s.gone
	_ = os.RemoveAll(s.dir)
}
