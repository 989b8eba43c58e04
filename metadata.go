package coopsqlite

import (
	"context"
	"slices"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

type metadataKey struct{}

// metadata is immutable; contexts with the same metadata share one.
type metadata struct {
	pairs   []pair // sorted by key
	encoded []byte // as the shim takes it
}

type pair struct{ key, value string }

// WithMetadata returns a context whose statements can read the given values in
// SQL, with coop_context('key'). It adds to what ctx carries already; a key
// given again replaces the older value. An odd number of strings in more means
// that the last key has the empty value. The key "fence" is reserved and
// ignored.
//
// A key that a statement's own context does not have is looked for in the
// context that its transaction was begun with; the actor, if neither has one,
// is what _coop_actor says. Nothing of it is seen by the next user of the
// connection.
func WithMetadata(ctx context.Context, key, value string, more ...string) context.Context {
	var pairs []pair
	if old, _ := ctx.Value(metadataKey{}).(*metadata); old != nil {
		pairs = slices.Clone(old.pairs)
	}
	pairs = setPair(pairs, key, value)
	for i := 0; i < len(more); i += 2 {
		v := ""
		if i+1 < len(more) {
			v = more[i+1]
		}
		pairs = setPair(pairs, more[i], v)
	}
	return context.WithValue(ctx, metadataKey{}, newMetadata(pairs))
}

func setPair(pairs []pair, key, value string) []pair {
	if key == "fence" {
		return pairs
	}
	i, found := slices.BinarySearchFunc(pairs, key, func(p pair, key string) int {
		if p.key < key {
			return -1
		} else if p.key > key {
			return 1
		}
		return 0
	})
	if found {
		pairs[i].value = value
		return pairs
	}
	return slices.Insert(pairs, i, pair{key, value})
}

func newMetadata(pairs []pair) *metadata {
	m := &metadata{pairs: pairs}
	for _, p := range pairs {
		m.encoded = shim.EncodePair(m.encoded, p.key, p.value)
	}
	return m
}

// metaSource is where coop_context looks: first in the metadata of the
// statement's context, then in the transaction's, then in the DSN's.
type metaSource struct{ statement, tx, dsn *metadata }

// encoded is all of it as one, in the form that the shim takes.
func (s metaSource) encoded() []byte {
	var all *metadata
	for _, m := range []*metadata{s.dsn, s.tx, s.statement} {
		switch {
		case m == nil:
		case all == nil:
			all = m
		default:
			pairs := slices.Clone(all.pairs)
			for _, p := range m.pairs {
				pairs = setPair(pairs, p.key, p.value)
			}
			all = newMetadata(pairs)
		}
	}
	if all == nil {
		return nil
	}
	return all.encoded
}

// setMetadata makes coop_context answer for ctx. It costs nothing while the
// contexts carry the same metadata as before.
func (c *conn) setMetadata(ctx context.Context) error {
	source := metaSource{metadataOf(ctx), c.txMeta, c.connector.actor}
	if source.statement == nil || source.statement == source.tx {
		source.statement, source.tx = source.tx, nil
	}
	if source == c.meta {
		return nil
	}
	if err := c.sh.SetMetadata(source.encoded()); err != nil {
		return err
	}
	c.meta = source
	return nil
}

func metadataOf(ctx context.Context) *metadata {
	m, _ := ctx.Value(metadataKey{}).(*metadata)
	return m
}
