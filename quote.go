package coopsqlite

import "strings"

// quoteName makes an identifier of any name.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText makes a text literal. SQL cannot express a NUL inside one.
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// equalName compares identifiers as SQLite does: only the case of ASCII
// letters does not count (https://sqlite.org/lang_keywords.html).
func equalName(a, b string) bool { return foldName(a) == foldName(b) }

// foldName is the form of an identifier under which equal names are equal.
func foldName(name string) string {
	for i := 0; i < len(name); i++ {
		if 'A' <= name[i] && name[i] <= 'Z' {
			folded := []byte(name)
			for ; i < len(folded); i++ {
				if 'A' <= folded[i] && folded[i] <= 'Z' {
					folded[i] += 'a' - 'A'
				}
			}
			return string(folded)
		}
	}
	return name
}
