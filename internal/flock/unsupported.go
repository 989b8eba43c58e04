//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package flock

// The compiler's message is for whoever builds: ownership is a lock that this
// system does not have.
const _ int = "coopsqlite needs flock(2): it runs on Linux, macOS and the BSDs, not on Windows"
