//go:build freebsd || netbsd || openbsd || dragonfly

package flock

import "syscall"

// The BSDs have POSIX range locks only. Writers of one process take turns at
// its gate, so a lock per process is enough.
const setRangeLock = syscall.F_SETLK
