//go:build cgo && !windows

package shim

import (
	"slices"
	"strings"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
)

// FuzzTimesAreReadAsWithEveryFormatTried: what is passed over would not have fitted.
func FuzzTimesAreReadAsWithEveryFormatTried(f *testing.F) {
	defer func(formats []string) { sqlite3.SQLiteTimestampFormats = formats }(sqlite3.SQLiteTimestampFormats)
	sqlite3.SQLiteTimestampFormats = append(slices.Clip(sqlite3.SQLiteTimestampFormats), time.RFC1123, time.RFC1123Z, "2006-1-2 15:04", time.StampMilli, "2006-01-02 15:04:05 MST")
	moment := time.Date(2024, 5, 6, 7, 8, 9, 120_000_000, time.FixedZone("", 2*60*60))
	for _, format := range sqlite3.SQLiteTimestampFormats {
		f.Add(moment.Format(format))
		f.Add(moment.Format(format) + "Z")
		f.Add(strings.Replace(moment.Format(format), "2024", "24", 1))
		f.Add(moment.Format(format) + "+02:00")
		f.Add(" " + moment.Format(format))
	}
	for _, text := range []string{"", "Z", "-07:00", "2024-05-06", "2024-05-06 ", "2024-05-06  07:08", "12024-05-06 07:08", "2024-05-06 7:08", "no time", "2024-05-06 07:08:09,5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want time.Time
		for _, format := range sqlite3.SQLiteTimestampFormats {
			if parsed, err := time.ParseInLocation(format, strings.TrimSuffix(text, "Z"), time.UTC); err == nil {
				want = parsed
				break
			}
		}
		require.Equal(t, want, timeOfText(text, nil), text)
	})
}
