// Package leases grants named leases with fencing tokens out of a SQL table,
// on SQLite and on PostgreSQL.
package leases
