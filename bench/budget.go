package main

// A budget is a promise about a workload. It is judged by the median over the
// rounds; each round's value comes from that round alone.
type budget struct {
	what  string // completes the workload's name
	value func(round) float64
	limit float64
	most  bool // the limit is an upper one
	unit  unit
}

// unit is how the value of a budget is written.
type unit int

const (
	times    unit = iota // a ratio
	duration             // seconds
	count
	bytes
)

func (b *budget) met(s spread) bool {
	if b.most {
		return s.median <= b.limit
	}
	return s.median >= b.limit
}

// speed promises that subject a is at least limit times as fast as b.
func speed(what, a, b string, limit float64) budget {
	return budget{what: what, limit: limit, value: func(r round) float64 { return r[b].perOp() / r[a].perOp() }}
}

// cost promises that an operation of a takes at most limit times that of b.
func cost(what, a, b string, limit float64) budget {
	return budget{what: what, limit: limit, most: true, value: func(r round) float64 { return r[a].perOp() / r[b].perOp() }}
}

// tail promises that the latency which 99.9 % of a's operations stay within is
// at most limit times that of b.
func tail(what, a, b string, limit float64) budget {
	return budget{what: what, limit: limit, most: true, value: func(r round) float64 {
		return r[a].percentile(0.999) / r[b].percentile(0.999)
	}}
}

// size promises that the value of a is at most limit times that of b.
func size(what, a, b string, limit float64) budget {
	return budget{what: what, limit: limit, most: true, value: func(r round) float64 { return r[a].mean() / r[b].mean() }}
}

// noBusy promises that no operation of a fails.
func noBusy(a string) budget {
	return budget{what: "operations that failed, BUSY or otherwise", limit: 0, most: true, unit: count,
		value: func(r round) float64 { return float64(r[a].busy + r[a].failed) }}
}
