package coopsqlite

import (
	"fmt"
	"strings"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// SQLite describes the columns of an index, but of its expressions and of the
// condition of a partial one it keeps only the text of CREATE INDEX.

// readIndexTexts completes indexes with their expressions and conditions.
func readIndexTexts(c *shim.Conn, indexes []*uniqueIndex) error {
	rows, err := c.Query("SELECT name, sql FROM main.sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
	if err != nil {
		return err
	}
	texts := make(map[string]string, len(rows)/2)
	for i := 0; i < len(rows); i += 2 {
		texts[text(rows[i])] = text(rows[i+1])
	}
	for _, index := range indexes {
		terms, where := splitIndex(texts[index.name])
		if len(terms) != len(index.terms) {
			return fmt.Errorf("coopsqlite: the text of index %s is not understood: %s", index.name, texts[index.name])
		}
		index.where = where
		for i := range index.terms {
			if index.terms[i].column < 0 {
				index.terms[i].expr = terms[i]
			}
		}
	}
	return nil
}

// splitIndex returns the terms of a CREATE INDEX without their sort order, and
// its condition. The text is one that SQLite has accepted.
func splitIndex(sql string) (terms []string, where string) {
	words := tokens(sql)
	for len(words) > 0 && !words[0].is("ON") {
		words = words[1:]
	}
	if len(words) < 3 {
		return nil, ""
	}
	words = words[2:] // ON and the table
	depth, first := 0, 1
	for i, w := range words {
		switch {
		case w.is("("):
			depth++
			continue
		case w.is(")"):
			depth--
		case !w.is(","):
			continue
		}
		if depth > 1 || depth == 1 && !w.is(",") {
			continue // inside an expression
		}
		last := i - 1
		if words[last].is("ASC") || words[last].is("DESC") {
			last--
		}
		terms = append(terms, sql[words[first].start:words[last].end])
		first = i + 1
		if depth == 0 {
			if first < len(words) && words[first].is("WHERE") {
				where = sql[words[first].end:words[len(words)-1].end]
			}
			return terms, where
		}
	}
	return nil, ""
}

// word is one word, mark, name or string of an SQL text.
type word struct {
	text       string
	start, end int
}

// is compares with a keyword or a mark; a quoted name is neither.
func (w word) is(keyword string) bool { return strings.EqualFold(w.text, keyword) }

// tokens splits SQL as SQLite's tokenizer does, as far as is needed to see
// where names, strings and parentheses begin and end.
func tokens(sql string) []word {
	var words []word
	for at := 0; at < len(sql); {
		end := at + 1
		switch c := sql[at]; {
		case strings.IndexByte(" \t\n\v\f\r", c) >= 0:
			at++
			continue
		case strings.HasPrefix(sql[at:], "--"):
			at = endAfter(sql, at, "\n")
			continue
		case strings.HasPrefix(sql[at:], "/*"):
			at = endAfter(sql, at+2, "*/")
			continue
		case c == '[':
			end = endAfter(sql, at, "]")
		case c == '\'' || c == '"' || c == '`':
			for end = endAfter(sql, end, string(c)); end < len(sql) && sql[end] == c; {
				end = endAfter(sql, end+1, string(c))
			}
		case isWordByte(c):
			for end < len(sql) && isWordByte(sql[end]) {
				end++
			}
		}
		words = append(words, word{sql[at:end], at, end})
		at = end
	}
	return words
}

// endAfter is the position behind the next end mark, or the end of the text.
func endAfter(sql string, from int, mark string) int {
	if i := strings.Index(sql[from:], mark); i >= 0 {
		return from + i + len(mark)
	}
	return len(sql)
}

func isWordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
