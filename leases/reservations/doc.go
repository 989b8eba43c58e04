// Package reservations takes stock for those who ask, each request at most
// once however often it is repeated, in a SQL database shared by any number of
// processes.
//
//	repo, err := reservations.New(db, nil)
//	...
//	receipt, err := repo.Reserve(ctx, reservations.Request{
//		Scope: "shop-1", Key: orderID,
//		Lines: []reservations.Line{{SKU: "seat", Quantity: 2}},
//		Hold:  15 * time.Minute,
//		Event: &outbox.Event{AggregateType: "order", AggregateID: orderID, Type: "order.placed"},
//	})
//	switch {
//	case err != nil: // ErrKeyReused, or nobody knows: ask again with the same key
//	case receipt.Status == reservations.Insufficient: // all or nothing
//	}
//
// The stock taken, the reservation under its key and the event in the outbox
// are one transaction: all of them are there, or none. Stock is never negative,
// and what is on hand, held and sold adds up to what was put in.
//
// It runs on SQLite through any driver and on PostgreSQL. On coopsqlite
// reservations made at the same time share their commits.
package reservations
