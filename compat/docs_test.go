package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	page         = "../docs/compatibility.md"
	fewestBlocks = 10 // so that neither test passes by finding nothing
)

var (
	goBlock     = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	importBlock = regexp.MustCompile(`(?ms)\Aimport \(\n.*?^\)\n`)
	declaration = regexp.MustCompile(`(?m)\A\s*(func|type|var|const) `)
	versionRow  = regexp.MustCompile("(?m)^\\|[^|]*\\| `([^`]+)` \\| (v\\S+) \\|$")
	requirement = regexp.MustCompile(`(?m)^\s*(?:require )?(\S+) (v\S+)`)
	sqlcVersion = regexp.MustCompile(`sqlc (v\S+)`)
)

// A block of the page is a file without its package clause, or, if no
// declaration follows its imports, the body of a function that returns an
// error.
func TestEverySnippetOfThePageCompiles(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	replace := map[string]string{}
	packages := []string{"build"}
	blocks := goBlock.FindAllSubmatchIndex(text, -1)
	require.GreaterOrEqual(t, len(blocks), fewestBlocks)
	for i, at := range blocks {
		line := strings.Count(string(text[:at[2]]), "\n")
		name := fmt.Sprintf("snippet%02d", i)
		path := filepath.Join(dir, name+".go")
		require.NoError(t, os.WriteFile(path, []byte(asFile(string(text[at[2]:at[3]]), line)), 0o600))
		replace[filepath.Join(here, "snippets", name, name+".go")] = path
		packages = append(packages, "./snippets/"+name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, overlay, 0o600))

	cmd := exec.CommandContext(t.Context(), "go", append([]string{packages[0], "-overlay", path}, packages[1:]...)...)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// asFile makes a file of a block; its lines keep the numbers they have on the
// page.
func asFile(block string, line int) string {
	imports := importBlock.FindString(block)
	rest := strings.TrimPrefix(block, imports)
	at := func(n int) string { return fmt.Sprintf("//line %s:%d\n", filepath.Base(page), n) }
	after := at(line + 1 + strings.Count(imports, "\n"))
	file := "package snippet\n\n" + at(line+1) + imports
	if declaration.MatchString(rest) {
		return file + after + rest
	}
	return file + "import stdcontext \"context\"\n" +
		"var _ = func(ctx stdcontext.Context) error {\n" + after + rest + "return nil\n}\n"
}

func TestVersionsOfThePageAreTheOnesTested(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	generated, err := os.ReadFile("sqlc/db/db.go")
	require.NoError(t, err)

	tested := map[string]string{"github.com/sqlc-dev/sqlc": sqlcVersion.FindStringSubmatch(string(generated))[1]}
	for _, m := range requirement.FindAllStringSubmatch(string(mod), -1) {
		tested[m[1]] = m[2]
	}
	rows := versionRow.FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(rows), fewestBlocks)
	for _, row := range rows {
		require.Equal(t, tested[row[1]], row[2], row[1])
	}
}
