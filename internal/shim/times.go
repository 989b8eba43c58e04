//go:build cgo && !windows

package shim

import (
	"strings"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// timeOfNumber takes a number of 13 digits for milliseconds of Unix time, a
// smaller one for seconds.
func timeOfNumber(n int64, loc *time.Location) time.Time {
	t := time.Unix(n, 0)
	if n > 1e12 || n < -1e12 {
		t = time.Unix(0, n*int64(time.Millisecond))
	}
	return in(t.UTC(), loc)
}

// timeOfText reads the first of mattn's formats that fits; none is the zero time.
func timeOfText(text string, loc *time.Location) time.Time {
	text = strings.TrimSuffix(text, "Z")
	for _, format := range sqlite3.SQLiteTimestampFormats {
		if !mayFit(format, text) {
			continue
		}
		if t, err := time.ParseInLocation(format, text, time.UTC); err == nil {
			return in(t, loc)
		}
	}
	return in(time.Time{}, loc)
}

// mayFit is false where time.Parse would only take its time to say no: of formats
// like mattn's the date has ten characters, what follows it must be the same in the
// text, and so must a zone at the end. Others, which a program may add, may fit.
func mayFit(format, text string) bool {
	const date = "2006-01-02"
	switch {
	case format == date:
		return len(text) == len(date)
	case strings.HasPrefix(format, date+" 15:04"), strings.HasPrefix(format, date+"T15:04"):
		return len(text) > len(date) && text[len(date)] == format[len(date)] && (hasZone(text) || !hasZone(format))
	}
	return true
}

// hasZone reports whether text ends like -07:00.
func hasZone(text string) bool {
	n := len(text)
	return n >= 6 && (text[n-6] == '-' || text[n-6] == '+') && text[n-3] == ':'
}

func in(t time.Time, loc *time.Location) time.Time {
	if loc == nil {
		return t
	}
	return t.In(loc)
}
