// Package pgtest runs a real PostgreSQL server for tests: the binaries that
// are on the machine, in a temporary cluster on a unix socket, as a user that
// is not root.
package pgtest

import (
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// Driver is the driver's name for sql.Open.
const Driver = "pgx"

// shared is the one server of a test binary, started when first asked for.
var shared struct {
	once   sync.Once
	server *Server
	err    error
	count  atomic.Int64
}

// Main is for TestMain: it runs the tests and stops the server that they
// started, if they did.
func Main(m *testing.M) int {
	defer func() {
		if shared.server != nil {
			shared.server.stop()
		}
	}()
	return m.Run()
}

// Database is the DSN of a new, empty database on the test binary's server.
// Without PostgreSQL on the machine the test is skipped.
func Database(t testing.TB) string {
	t.Helper()
	s := sharedServer(t)
	name := fmt.Sprintf("test%d", shared.count.Add(1))
	db, err := sql.Open(Driver, s.DSN("postgres"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`CREATE DATABASE ` + name + ` TEMPLATE template0`)
	require.NoError(t, err)
	return s.DSN(name)
}

// Shared is the test binary's server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return sharedServer(t)
}

func sharedServer(t testing.TB) *Server {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Skip("needs PostgreSQL: ", err)
	}
	shared.once.Do(func() { shared.server, shared.err = start(bin) })
	require.NoError(t, shared.err)
	return shared.server
}

// Server is a running server.
type Server struct {
	dir   string
	cmd   *exec.Cmd
	alive io.Closer     // closed, also by this process's death, it ends the server
	gone  chan struct{} // closed when it has ended
}

// babysit runs a server for as long as somebody holds the other end of its
// standard input, so that a test binary which is killed leaves none behind.
const babysit = `exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(cat <&3 >/dev/null; kill -QUIT $server) &
wait $server`

// Socket is the path of the server's unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// DSN connects to a database of the server through the socket.
func (s *Server) DSN(database string) string { return DSN(s.dir, database) }

// DSN connects to a database of a server whose socket is in dir.
func DSN(dir, database string) string {
	return fmt.Sprintf("host=%s port=5432 user=postgres dbname=%s sslmode=disable", dir, database)
}

// binaries is the newest directory with PostgreSQL's server binaries. Debian
// keeps them off the PATH.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
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
		return "", fmt.Errorf("no initdb on the PATH or in /usr/lib/postgresql")
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

func start(bin string) (_ *Server, err error) {
	as, err := account()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgtest") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, gone: make(chan struct{})}
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
	s.cmd = command(as, dir, "/bin/sh", "-c", babysit, "sh", filepath.Join(bin, "postgres"), "-D", data,
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
		s.stop()
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
	db, err := sql.Open(Driver, s.DSN("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	for deadline := time.Now().Add(time.Minute); ; {
		if err = db.Ping(); err == nil {
			return nil
		}
		select {
		case <-s.gone:
			return fmt.Errorf("the server ended: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// stop ends the server without ceremony and removes its files.
func (s *Server) stop() {
	_ = s.alive.Close()
	<-s.gone
	_ = os.RemoveAll(s.dir)
}
