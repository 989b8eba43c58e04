// Package ncrucesname lets the driver of ncruces/go-sqlite3 register as
// "ncruces". Left alone it registers as "sqlite3", as mattn's driver does, and
// whoever comes second panics.
//
// The variable is there to be set with -ldflags -X, which a plain "go run ."
// does not pass. Go initializes packages that depend on nothing in the order of
// their import paths (https://go.dev/ref/spec#Package_initialization), so this
// one comes before it is read; if that ever changes, the program ends at its
// start with a message about the name.
package ncrucesname

import _ "unsafe" // for go:linkname

//go:linkname driverName github.com/ncruces/go-sqlite3/driver.driverName
var driverName string

func init() { driverName = "ncruces" }
