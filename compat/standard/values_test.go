package standard_test

import (
	"bytes"
	"database/sql"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestBlobsComeBackByteForByte(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, bar BLOB)")
	big := bytes.Repeat([]byte{0, 1, 0xFE, 0xFF}, 1<<20)
	for i, want := range [][]byte{{}, {0}, {0, 1, 2, 3}, big} {
		_, err := db.Exec("INSERT INTO foo VALUES (?, ?)", i, want)
		require.NoError(t, err)
		var got []byte
		require.NoError(t, db.QueryRow("SELECT bar FROM foo WHERE id = ?", i).Scan(&got))
		require.True(t, bytes.Equal(want, got), "%d bytes became %d", len(want), len(got))
		var raw string
		require.NoError(t, db.QueryRow("SELECT typeof(bar) FROM foo WHERE id = ?", i).Scan(&raw))
		require.Equal(t, "blob", raw)
	}
	harness.Guarded(t, db, path)
}

func TestLargeTextComesBackWhole(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (id INTEGER PRIMARY KEY, bar TEXT)")
	for i, want := range []string{"", "plain", "ünïcödé 日本語", "with\x00a NUL", strings.Repeat("日本語 and a line\n", 1<<17)} {
		_, err := db.Exec("INSERT INTO foo VALUES (?, ?)", i, want)
		require.NoError(t, err)
		var got string
		require.NoError(t, db.QueryRow("SELECT bar FROM foo WHERE id = ?", i).Scan(&got))
		require.True(t, want == got, "%d bytes became %d", len(want), len(got))
	}
	harness.Guarded(t, db, path)
}

func TestNumbersKeepTheirValue(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (i INTEGER, f REAL, b BOOLEAN)")
	for _, i := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		for _, f := range []float64{0, 1.5, -math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1)} {
			var gotI int64
			var gotF float64
			var gotB bool
			require.NoError(t, db.QueryRow("INSERT INTO foo VALUES (?, ?, ?) RETURNING i, f, b", i, f, i != 0).Scan(&gotI, &gotF, &gotB))
			require.Equal(t, i, gotI)
			require.Equal(t, f, gotF)
			require.Equal(t, i != 0, gotB)
		}
	}
	harness.Guarded(t, db, path)
}

func TestNullsOfEveryType(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (s TEXT, i INTEGER, f REAL, b BOOLEAN, t DATETIME, x BLOB)")
	now := time.Now().UTC().Truncate(time.Microsecond)
	_, err := db.Exec("INSERT INTO foo VALUES (?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?)",
		sql.NullString{}, sql.NullInt64{}, sql.NullFloat64{}, sql.NullBool{}, sql.NullTime{}, []byte(nil),
		sql.NullString{String: "s", Valid: true}, sql.NullInt64{Int64: 7, Valid: true}, sql.NullFloat64{Float64: 2.5, Valid: true},
		sql.NullBool{Bool: true, Valid: true}, sql.NullTime{Time: now, Valid: true}, []byte{1})
	require.NoError(t, err)

	rows, err := db.Query("SELECT * FROM foo ORDER BY rowid")
	require.NoError(t, err)
	defer rows.Close()
	for valid := range 2 {
		var s sql.NullString
		var i sql.Null[int64]
		var f sql.NullFloat64
		var b sql.NullBool
		var at sql.NullTime
		var x []byte
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(&s, &i, &f, &b, &at, &x))
		for _, got := range []bool{s.Valid, i.Valid, f.Valid, b.Valid, at.Valid, x != nil} {
			require.Equal(t, valid == 1, got)
		}
		if valid == 1 {
			require.True(t, now.Equal(at.Time), "%s is not %s", at.Time, now)
		}
	}
	require.NoError(t, rows.Close())
	harness.Guarded(t, db, path)
}

// What a time becomes is mattn/go-sqlite3's business: the same column must
// come back the same, to the nanosecond and the location, through both.
func TestTimesAreWhatMattnMakesOfThem(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	values := []any{
		time.Date(2012, 11, 4, 1, 2, 3, 456789012, time.UTC),
		time.Date(2012, 11, 4, 1, 2, 3, 456789012, tokyo),
		time.Date(2012, 7, 1, 0, 0, 0, 0, time.FixedZone("", -7*3600-1800)),
		time.Time{},
		"2012-11-04 01:02:03", "2012-11-04T01:02Z", "2012-11-04 01:02:03.000-07:00", "2012-11-04", "10:11:12",
		"not a time", "2012-11-04 01:02:03+00", int64(1352000000), int64(1352000000123), 1.5, nil, []byte("2012-11-04"),
	}
	for _, params := range [][]string{nil, {"_loc", "auto"}, {"_loc", "Asia/Tokyo"}} {
		var results [2][]any
		for i, driver := range []string{"sqlite3", harness.Driver} {
			db, err := sql.Open(driver, harness.DSN(harness.Path(t), params...))
			require.NoError(t, err)
			defer db.Close()
			harness.Exec(t, db, "CREATE TABLE foo (ts TIMESTAMP, dt DATETIME, d DATE, z TIMESTAMP WITH TIME ZONE, s TEXT, b BOOLEAN)")
			for _, v := range values {
				_, err := db.Exec("INSERT INTO foo VALUES (?, ?, ?, ?, ?, ?)", v, v, v, v, v, v)
				require.NoError(t, err)
			}
			rows, err := db.Query("SELECT * FROM foo ORDER BY rowid")
			require.NoError(t, err)
			for rows.Next() {
				got := make([]any, 6)
				require.NoError(t, rows.Scan(&got[0], &got[1], &got[2], &got[3], &got[4], &got[5]))
				results[i] = append(results[i], got...)
			}
			require.NoError(t, rows.Err())
		}
		require.Equal(t, results[0], results[1], "with %v", params)
	}
}

func TestColumnTypesAreDescribed(t *testing.T) {
	db, path := open(t, "CREATE TABLE foo (i INTEGER NOT NULL, s VARCHAR(80), at DATETIME, x)", "INSERT INTO foo VALUES (1, 'a', '2012-11-04', 1.5)")
	describe := func(driver string) []string {
		db, err := sql.Open(driver, "file:"+path+"?mode=ro")
		require.NoError(t, err)
		defer db.Close()
		rows, err := db.Query("SELECT *, count(*) AS n FROM foo")
		require.NoError(t, err)
		defer rows.Close()
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		var described []string
		for rows.Next() {
			for _, c := range types {
				_, nullable := c.Nullable()
				described = append(described, strings.Join([]string{c.Name(), c.DatabaseTypeName(), c.ScanType().String(), map[bool]string{true: "knows"}[nullable]}, "|"))
			}
		}
		return described
	}
	require.Equal(t, describe("sqlite3"), describe(harness.Driver))
	harness.Guarded(t, db, path)
}
