package coopsqlite_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

// What the README and the package's documentation say in words that the driver
// says too.
func TestReadmeSaysWhatTheDriverSays(t *testing.T) {
	_, err := coopsqlite.ParseDSN("app.db?_coop_=1")
	require.Error(t, err)
	parameter := regexp.MustCompile(`_coop_[a-z]+`)
	known := slices.Sorted(slices.Values(parameter.FindAllString(err.Error(), -1)))
	require.Len(t, known, 10)
	for _, file := range []string{"README.md", "doc.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, sentinel := range []error{coopsqlite.ErrConflict, coopsqlite.ErrFenced, coopsqlite.ErrSuperseded, coopsqlite.ErrStopped} {
			require.Contains(t, string(text), sentinel.Error(), file)
		}
		require.Contains(t, string(text), noPermit, file)
		named := slices.Sorted(slices.Values(parameter.FindAllString(string(text), -1)))
		require.Equal(t, known, slices.Compact(named), file)
	}
}
