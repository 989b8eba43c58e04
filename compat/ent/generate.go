// Package ent lets ent work through the driver coopsqlite.
package ent

//go:generate go run entc.go
