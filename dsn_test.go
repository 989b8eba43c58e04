package coopsqlite_test

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite"
)

func TestUnknownCoopParameterIsRefusedByName(t *testing.T) {
	for _, name := range []string{"_coop_ownr", "_coop_", "_coop_OWNER", "_coop_journal_mode", "_coop_wait "} {
		_, err := sql.Open("coopsqlite", newPath(t)+"?"+url.QueryEscape(name)+"=1")
		require.ErrorContains(t, err, "unknown parameter "+name)
		require.ErrorContains(t, err, "_coop_owner, _coop_wait", "it says which there are")
	}
}

func TestEveryCoopParameterIsChecked(t *testing.T) {
	good := map[string][]string{
		"_coop_owner":   {"exclusive", "process", "shared"},
		"_coop_wait":    {"0", "500ms", "10s", "1h"},
		"_coop_fence":   {"on", "off"},
		"_coop_tables":  {"*", "a", "a,b", "-a", "*,-a", "-a,-b", "a,-b"},
		"_coop_epoch":   {"on", "off"},
		"_coop_changes": {"off", "*", "a,b", "-a"},
		"_coop_virtual": {"on", "off"},
		"_coop_watch":   {"0", "1s", "10ms"},
		"_coop_app":     {"stockd", "a b", "ünïcode"},
		"_coop_actor":   {"cron"},
	}
	bad := map[string][]string{
		"_coop_owner":   {"", "Exclusive", "nobody", "reader", "memory"},
		"_coop_wait":    {"", "10", "-1s", "soon", "1"},
		"_coop_fence":   {"", "yes", "1", "ON"},
		"_coop_tables":  {"", ",", "a,", "-", "*,a", "*,-"},
		"_coop_epoch":   {"", "true"},
		"_coop_changes": {"", "-", "a,,b"},
		"_coop_virtual": {"", "maybe"},
		"_coop_watch":   {"", "10", "-1s"},
		"_coop_app":     {"", "a\nb", "a\x00b"},
		"_coop_actor":   {"", "a\nb"},
	}
	for name, list := range good {
		for _, v := range list {
			_, err := coopsqlite.ParseDSN("app.db?" + name + "=" + url.QueryEscape(v))
			require.NoError(t, err, "%s=%s", name, v)
		}
	}
	for name, list := range bad {
		for _, v := range list {
			_, err := coopsqlite.ParseDSN("app.db?" + name + "=" + url.QueryEscape(v))
			require.ErrorContains(t, err, name, "%s=%q", name, v)
		}
		_, err := coopsqlite.ParseDSN("app.db?" + name + "=" + url.QueryEscape(good[name][0]) + "&" + name + "=" + url.QueryEscape(good[name][0]))
		require.ErrorContains(t, err, name+" is given 2 times")
	}
}

func TestParametersReachMattnsDriverAsTheyWere(t *testing.T) {
	// While it opens, mattn's connection waits for a moment only; the rest of the
	// busy timeout is the driver's, which looks at the context.
	const defaults = "_busy_timeout=5&_stmt_cache_size=128&_txlock=immediate"
	for dsn, plain := range map[string]string{
		"app.db":                   "app.db?" + defaults,
		"app.db?":                  "app.db?" + defaults,
		"app.db?_journal_mode=WAL": "app.db?_journal_mode=WAL&" + defaults,
		"app.db?_coop_wait=1s&_fk=1&_coop_epoch=off":     "app.db?_fk=1&" + defaults,
		"app.db?_txlock=deferred&_timeout=7":             "app.db?_txlock=deferred&_busy_timeout=5&_stmt_cache_size=128",
		"app.db?_busy_timeout=0&_stmt_cache_size=0":      "app.db?_stmt_cache_size=0&_busy_timeout=0&_txlock=immediate",
		"app.db?_auth&_auth_user=a%20b&_auth_pass=%26":   "app.db?_auth&_auth_user=a%20b&_auth_pass=%26&" + defaults,
		"app.db?%5Fcoop_wait=1s":                         "app.db?" + defaults,
		"file:app.db?vfs=unix&cache=private#fragment?_x": "file:app.db?vfs=unix&cache=private&" + defaults,
		"":           "file:?" + defaults,
		":memory:":   ":memory:?" + defaults,
		"a b#c%41.d": "a b#c%41.d?" + defaults,
	} {
		got, err := coopsqlite.ParseDSN(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, plain, got.Plain, dsn)
	}
}

func TestPathOfADSN(t *testing.T) {
	for dsn, path := range map[string]string{
		"app.db": "app.db", "./app.db?x=1": "./app.db", "/a/b c.db": "/a/b c.db", "a%20b": "a%20b", "a#b": "a#b",
		"file:app.db": "app.db", "file:/a/b": "/a/b", "file:///a/b": "/a/b", "file://localhost/a/b": "/a/b", "file:a%20b": "a b",
		"file:a%3Fb%23c%25d": "a?b#c%d", "file:a#b": "a", "file:a%2": "a%2", "file:a%zz": "a%zz", "file:a%C3%BC": "aü", "File:a": "File:a",
		":memory:": ":memory:", "": "", "file:": "",
	} {
		got, err := coopsqlite.ParseDSN(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, path, got.Path, dsn)
	}
	for _, dsn := range []string{"file://elsewhere/a/b", "file:a%00b", "a\x00b", "?_coop_wait=1s", "?"} {
		_, err := coopsqlite.ParseDSN(dsn)
		require.Error(t, err, "%q", dsn)
	}
}

func TestModeOfADSN(t *testing.T) {
	for dsn, mode := range map[string]string{
		"app.db": "exclusive", "app.db?_coop_owner=process": "process", "app.db?_coop_owner=shared": "shared",
		"file:app.db?mode=ro": "reader", "file:app.db?immutable=1": "reader", "app.db?_query_only=1": "reader", "app.db?_query_only=true": "reader",
		"app.db?_query_only=0": "exclusive", "file:app.db?mode=rw": "exclusive",
		":memory:": "memory", "file::memory:": "memory", "file:x?mode=memory": "memory", "": "memory", "file:/x?vfs=memdb": "memory",
	} {
		got, err := coopsqlite.ParseDSN(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, mode, got.Mode, dsn)
	}
	_, err := coopsqlite.ParseDSN("file:app.db?mode=ro&_coop_owner=shared")
	require.ErrorContains(t, err, "a reader owns nothing")
}

func TestDurationsOfADSN(t *testing.T) {
	got, err := coopsqlite.ParseDSN("app.db?_coop_wait=1m30s&_timeout=250")
	require.NoError(t, err)
	require.Equal(t, 90*time.Second, got.Wait)
	require.Equal(t, 250*time.Millisecond, got.BusyTimeout)
	got, err = coopsqlite.ParseDSN("app.db")
	require.NoError(t, err)
	require.Zero(t, got.Wait)
	require.Equal(t, 10*time.Second, got.BusyTimeout)
}

func TestSelectionsThatMeanTheSameAreStoredTheSame(t *testing.T) {
	for _, pair := range [][2]string{{"a,b", "b,a"}, {"-a", "*,-a"}, {"-a,-b", "-b,*,-a"}} {
		first, err := coopsqlite.ParseDSN("app.db?_coop_tables=" + pair[0])
		require.NoError(t, err)
		second, err := coopsqlite.ParseDSN("app.db?_coop_tables=" + pair[1])
		require.NoError(t, err)
		require.Equal(t, first.Tables, second.Tables)
	}
}

// Whatever a DSN says, parsing it does not panic, nothing of ours reaches
// mattn's driver, and what does reach it is understood in the same way.
func FuzzDSN(f *testing.F) {
	for _, seed := range []string{
		"", "app.db", ":memory:", "file:app.db?mode=ro", "app.db?_coop_owner=shared&_coop_wait=1s", "file:///a%20b?_coop_tables=a,-b#x",
		"file:a%?%%%&&==;", "app.db?_coop_wait=%zz", "?_coop_wait=1s", "app.db?%5Fcoop_epoch=off", "file://h/x", "app.db?_coop_app=a+b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		parsed, err := coopsqlite.ParseDSN(dsn)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		name, query, found := strings.Cut(parsed.Plain[1:], "?")
		name = parsed.Plain[:1] + name
		require.True(t, found, parsed.Plain)
		params, err := url.ParseQuery(query)
		require.NoError(t, err, "mattn's driver can read it")
		for key := range params {
			require.False(t, strings.HasPrefix(key, "_coop_"), parsed.Plain)
		}
		for _, key := range []string{"_stmt_cache_size", "_txlock"} {
			require.True(t, params.Has(key), parsed.Plain)
		}
		if !strings.HasPrefix(name, "file:") {
			require.Equal(t, name, parsed.Path)
		}
		require.NotContains(t, parsed.Path, "\x00")
		again, err := coopsqlite.ParseDSN(parsed.Plain)
		require.NoError(t, err)
		require.Equal(t, parsed.Path, again.Path)
	})
}

// A selection that was accepted means what it says, and its canonical form
// means the same.
func FuzzSelection(f *testing.F) {
	f.Add("*", "a")
	f.Add("a,b", "B")
	f.Add("-a,-b", "a")
	f.Add("a,-a", "a")
	f.Fuzz(func(t *testing.T, value, table string) {
		has, err := coopsqlite.Selects(value, table)
		if err != nil {
			return
		}
		parsed, err := coopsqlite.ParseDSN("app.db?_coop_tables=" + url.QueryEscape(value))
		require.NoError(t, err)
		again, err := coopsqlite.Selects(parsed.Tables, table)
		require.NoError(t, err, parsed.Tables)
		require.Equal(t, has, again)
	})
}

// Any name without a NUL byte makes a table with a fence that SQLite shows
// under that very name.
func FuzzTableName(f *testing.F) {
	for _, name := range oddNames {
		f.Add(name)
	}
	db, err := sql.Open("coopsqlite", filepath.Join(f.TempDir(), "names.db")+"?_journal_mode=MEMORY&_synchronous=OFF&_coop_watch=0")
	require.NoError(f, err)
	defer db.Close()
	f.Fuzz(func(t *testing.T, name string) {
		folded := strings.ToLower(name)
		if strings.Contains(name, "\x00") || strings.HasPrefix(folded, "sqlite_") || strings.HasPrefix(folded, "coop_") || strings.HasPrefix(folded, "_litestream_") {
			return
		}
		if _, err := db.Exec("CREATE TABLE " + coopsqlite.QuoteName(name) + " (a)"); err != nil {
			require.NotContains(t, err.Error(), "fence")
			return
		}
		defer func() {
			_, err := db.Exec("DROP TABLE " + coopsqlite.QuoteName(name))
			require.NoError(t, err)
		}()
		var found, text string
		require.NoError(t, db.QueryRow("SELECT name FROM sqlite_schema WHERE type = 'table' AND name = "+coopsqlite.QuoteText(name)).Scan(&found))
		require.Equal(t, name, found)
		require.NoError(t, db.QueryRow("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? AND name = ?",
			name, "coop_fence_"+name+"_insert").Scan(&text))
		require.Equal(t, coopsqlite.FenceSQL(name, "insert"), strings.Replace(text, "CREATE TRIGGER ", "CREATE TRIGGER main.", 1))
		_, err := db.Exec("INSERT INTO " + coopsqlite.QuoteName(name) + " VALUES (1)")
		require.NoError(t, err)
	})
}

// Names are equal for us when they are for SQLite.
func FuzzEqualNames(f *testing.F) {
	f.Add("a", "A")
	f.Add("ä", "Ä")
	f.Add("K", "K") // Kelvin sign
	f.Add("", "a")
	db := openPlain(f, ":memory:")
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.Contains(a+b, "\x00") {
			return
		}
		var equal bool
		require.NoError(t, db.QueryRow("SELECT ? = ? COLLATE NOCASE", a, b).Scan(&equal))
		require.Equal(t, equal, coopsqlite.EqualName(a, b))
	})
}
