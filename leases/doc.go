// Package leases grants named leases with fencing tokens out of a SQL table,
// on SQLite and on PostgreSQL.
//
// A lease is the right to do something alone for a while: run the nightly job,
// lead the cluster, work on one customer. Its holder renews it; if the holder
// dies it expires, and somebody else is granted it, with a greater epoch. The
// epoch is the fencing token: whatever accepts it can refuse a holder of the
// past who does not know yet that its time is over.
//
//	m, err := leases.New(db, &leases.Options{Owner: "worker-a"})
//	...
//	err = m.With(ctx, "nightly", 30*time.Second, 0, func(ctx context.Context, l *leases.Lease) error {
//		return l.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//			_, err := tx.ExecContext(ctx, "UPDATE reports SET ...")
//			return err
//		})
//	})
//
// What a lease cannot do by itself is stop a holder that was paused in the
// middle of something: when it goes on, another may be at work. Three things
// help. [Lease.Tx] and [Lease.Verify] make writes to the same database depend
// on the lease. Other systems can be given the epoch and refuse a smaller one
// than they have seen. And the context of [Manager.With] ends when the lease
// is lost, as soon as the process notices.
package leases
