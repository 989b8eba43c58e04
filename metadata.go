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
// A statement uses the metadata of its own context; if that has none, that of
// the context its transaction was begun with; if there is none either, the
// actor named by _coop_actor. Nothing of it is seen by the next user of the
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

func metadataOf(ctx context.Context) *metadata {
	m, _ := ctx.Value(metadataKey{}).(*metadata)
	return m
}
