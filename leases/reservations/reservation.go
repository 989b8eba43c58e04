package reservations

import "time"

// State is where a reservation stands. It is also how the database spells it.
type State string

const (
	// Held: the stock is taken until Expires, and goes back unless the hold is
	// confirmed before.
	Held State = "held"
	// Confirmed: the stock is gone for good. Without a hold a reservation is
	// confirmed at once.
	Confirmed State = "confirmed"
	// Cancelled: the stock went back because Cancel was called.
	Cancelled State = "cancelled"
	// Expired: the hold was not confirmed in time, and its stock is back or
	// goes back as soon as somebody needs it.
	Expired State = "expired"
	// Rejected: there was not enough, and RememberRejections is on.
	Rejected State = "rejected"
)

// A Reservation is what became of a request.
type Reservation struct {
	Scope, Key string
	State      State
	Lines      []Line // summed per SKU, in bytewise order; none if it was rejected
	Payload    []byte
	Created    time.Time // by the store's clock, as all times
	Expires    time.Time // when the hold ends or ended; zero without a hold
	Ended      time.Time // when it was confirmed, cancelled, expired or rejected; zero while it is held
}

// Status is the answer to a request.
type Status string

const (
	// Accepted: the stock was taken, now and by this call.
	Accepted Status = "accepted"
	// Replayed: the same request was accepted before. Nothing was changed; the
	// receipt's Reservation says what has become of it since.
	Replayed Status = "replayed"
	// Insufficient: of at least one SKU there is not enough. Nothing was taken.
	// Unless rejections are remembered the key is as if never used, and the
	// request may succeed later.
	Insufficient Status = "insufficient"
)

// A Receipt answers a request.
type Receipt struct {
	Status Status
	// Reservation is zero if Status is Insufficient and rejections are not
	// remembered.
	Reservation Reservation
}
