package sqltx

import (
	"strconv"
	"strings"
	"sync"
)

// Texts turns statements as the packages write them, with ? for arguments and
// {tokens} for names and for what the dialects spell differently, into the
// text that the database gets; each once.
//
// Tokens that every Texts knows:
//
//	{lock}  FOR UPDATE in PostgreSQL; on SQLite the transaction has locked all
//	{skip}  FOR UPDATE SKIP LOCKED, likewise
//	{ids}   IN or = ANY over one argument, made by [IDs]
type Texts struct {
	dialect  Dialect
	replacer *strings.Replacer
	done     sync.Map // what was written -> what to send
}

// NewTexts takes pairs of a token and its replacement.
func NewTexts(dialect Dialect, tokens ...string) *Texts {
	common := []string{"{lock}", "", "{skip}", "", "{ids}", "IN (SELECT value FROM json_each(?))"}
	if dialect == Postgres {
		common = []string{"{lock}", " FOR UPDATE", "{skip}", " FOR UPDATE SKIP LOCKED", "{ids}", "= ANY (?::text::bigint[])"}
	}
	return &Texts{dialect: dialect, replacer: strings.NewReplacer(append(common, tokens...)...)}
}

// Of is the text to send for query.
func (t *Texts) Of(query string) string {
	if text, ok := t.done.Load(query); ok {
		return text.(string)
	}
	text := t.dialect.Rebind(t.replacer.Replace(query))
	t.done.Store(query, text)
	return text
}

// IDs is the argument of an {ids} token.
func (t *Texts) IDs(ids []int64) string {
	open, end := byte('['), byte(']')
	if t.dialect == Postgres {
		open, end = '{', '}'
	}
	list := []byte{open}
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, id, 10)
	}
	return string(append(list, end))
}
