// Package outbox is a transactional outbox: a program writes what the world
// shall know in the transaction that makes it true, and a relay delivers it
// afterwards, at least once, in order where order was asked for.
//
//	box, err := outbox.New(db, nil)
//	...
//	err = box.Append(ctx, tx, outbox.Event{
//		AggregateType: "order", AggregateID: "4711",
//		Type: "order.paid", Payload: body,
//	})
//	...
//	relay, err := box.Relay(nil)
//	err = relay.Run(ctx, func(ctx context.Context, d outbox.Delivery) error {
//		return publish(ctx, d.ID, d.Type, d.Payload)
//	})
//
// What is promised: an event is delivered if and only if its transaction
// commits, at least once. The first delivery of an event starts only after the
// event before it in its aggregate was acknowledged, or, with SkipDead, given
// up. What is not: exactly once. A relay that dies between a delivery and its
// acknowledgement leaves the event to be delivered again, possibly after later
// ones of other aggregates, and a delivery that outlives its claim may arrive
// beside or after its own repetition. Consumers tell by [Delivery].ID.
//
// It runs on SQLite through any driver and on PostgreSQL. On coopsqlite the
// relay of the process that writes is woken by the commit; elsewhere it polls.
package outbox
