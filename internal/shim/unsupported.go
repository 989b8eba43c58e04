//go:build !cgo || windows

package shim

// The compiler's message is for whoever builds: SQLite and the fence's private
// functions are C.
const _ int = "coopsqlite needs cgo and a C compiler, on Linux, macOS or a BSD: install gcc or clang and set CGO_ENABLED=1"
