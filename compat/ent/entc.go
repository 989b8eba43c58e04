//go:build ignore

// The generator of package gen.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
)

func main() {
	err := entc.Generate("./schema", &gen.Config{
		Target:  "./gen",
		Package: "github.com/coopsqlite/coopsqlite/compat/ent/gen",
	})
	if err != nil {
		log.Fatal("generating: ", err)
	}
}
