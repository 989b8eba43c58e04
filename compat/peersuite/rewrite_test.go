package peersuite_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// driverVariable names the driver that the suite runs on.
const driverVariable = "PEERSUITE_DRIVER"

// support is what the rewritten tests call in place of mattn's names.
const support = `package suite

import (
	"database/sql/driver"
	"os"

	"github.com/coopsqlite/coopsqlite"
	"github.com/mattn/go-sqlite3"
)

var driverName = os.Getenv("` + driverVariable + `")

func tested(d *sqlite3.SQLiteDriver) driver.Driver {
	if driverName == "sqlite3" {
		return d
	}
	return &coopsqlite.Driver{Extensions: d.Extensions, ConnectHook: d.ConnectHook}
}

func asConn(v any) *sqlite3.SQLiteConn {
	c, ok := tryConn(v)
	if !ok {
		panic("not a connection of SQLite")
	}
	return c
}

func tryConn(v any) (*sqlite3.SQLiteConn, bool) {
	if c, ok := v.(*sqlite3.SQLiteConn); ok {
		return c, true
	}
	return coopsqlite.SQLiteConn(v)
}
`

// rewriteSuite returns the test files of the package in dir, by name, changed
// to run in a package of their own and on the driver under test.
func rewriteSuite(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"support_test.go": []byte(support)}
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_bench_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		files[filepath.Base(path)] = rewrite(t, path, source)
	}
	return files
}

func rewrite(t *testing.T, path string, source []byte) []byte {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.ParseComments)
	require.NoError(t, err)
	file.Name.Name = "suite"
	importMattn(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			rewriteCall(n)
		case *ast.AssignStmt:
			if len(n.Lhs) == 2 && len(n.Rhs) == 1 {
				n.Rhs[0] = replaceAssertion(n.Rhs[0], "tryConn")
			}
			eachExpr(n.Rhs)
		case *ast.ValueSpec:
			eachExpr(n.Values)
		case *ast.ReturnStmt:
			eachExpr(n.Results)
		case *ast.SelectorExpr:
			n.X = replaceAssertion(n.X, "asConn")
		}
		return true
	})
	var out bytes.Buffer
	require.NoError(t, format.Node(&out, fset, file))
	return out.Bytes()
}

// importMattn lets the file see mattn's exported names as before, when it was
// part of that package.
func importMattn(file *ast.File) {
	const mattn = `"github.com/mattn/go-sqlite3"`
	for _, spec := range file.Imports {
		if spec.Path.Value == mattn {
			return // an external test, which knows them by their package
		}
	}
	spec := &ast.ImportSpec{Name: ast.NewIdent("."), Path: &ast.BasicLit{Kind: token.STRING, Value: mattn}}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.IMPORT {
			d.Lparen = d.Pos()
			d.Specs = append(d.Specs, spec)
			return
		}
	}
	file.Decls = append([]ast.Decl{&ast.GenDecl{Tok: token.IMPORT, Specs: []ast.Spec{spec}}}, file.Decls...)
}

// rewriteCall turns sql.Open("sqlite3", …) and sql.Register(…, &SQLiteDriver{…})
// to the driver under test.
func rewriteCall(call *ast.CallExpr) {
	eachExpr(call.Args)
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if pkg, ok := selector.X.(*ast.Ident); !ok || pkg.Name != "sql" || len(call.Args) != 2 {
		return
	}
	switch selector.Sel.Name {
	case "Open":
		if name, ok := call.Args[0].(*ast.BasicLit); ok && name.Value == `"sqlite3"` {
			call.Args[0] = ast.NewIdent("driverName")
		}
	case "Register":
		call.Args[1] = &ast.CallExpr{Fun: ast.NewIdent("tested"), Args: []ast.Expr{call.Args[1]}}
	}
}

func eachExpr(list []ast.Expr) {
	for i := range list {
		list[i] = replaceAssertion(list[i], "asConn")
	}
}

// replaceAssertion turns v.(*SQLiteConn) into a call: the pool's connections
// are wrapped here.
func replaceAssertion(e ast.Expr, function string) ast.Expr {
	assertion, ok := e.(*ast.TypeAssertExpr)
	if !ok {
		return e
	}
	star, ok := assertion.Type.(*ast.StarExpr)
	if !ok {
		return e
	}
	if name, ok := star.X.(*ast.Ident); !ok || name.Name != "SQLiteConn" {
		return e
	}
	return &ast.CallExpr{Fun: ast.NewIdent(function), Args: []ast.Expr{assertion.X}}
}

// writeOverlay writes the files to dir and returns the path of the overlay
// that shows them to the go command in the folder as.
func writeOverlay(t *testing.T, dir, as string, files map[string][]byte) string {
	t.Helper()
	replace := map[string]string{}
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		replace[filepath.Join(as, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, overlay, 0o600))
	return path
}

var compileError = regexp.MustCompile(`(?m)^(?:\S*/)?(\w+_test\.go):(\d+):\d+: `)

// dropWhatDoesNotCompile removes the declarations and imports that the
// compiler complains about, and reports whether there were any.
func dropWhatDoesNotCompile(t *testing.T, files map[string][]byte, complaints string) bool {
	t.Helper()
	lines := map[string][]int{}
	for _, m := range compileError.FindAllStringSubmatch(complaints, -1) {
		line, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		lines[m[1]] = append(lines[m[1]], line)
	}
	for name, wrong := range lines {
		require.Contains(t, files, name, "%s", complaints)
		require.NotEqual(t, "support_test.go", name, "%s", complaints)
		files[name] = drop(t, name, files[name], wrong)
	}
	return len(lines) > 0
}

func drop(t *testing.T, name string, source []byte, lines []int) []byte {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments)
	require.NoError(t, err)
	wrong := func(n ast.Node) bool {
		from, to := fset.Position(n.Pos()).Line, fset.Position(n.End()).Line
		return slices.ContainsFunc(lines, func(line int) bool { return from <= line && line <= to })
	}
	var kept []byte
	at := 0
	cut := func(n ast.Node) {
		from, to := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
		kept = append(kept, source[at:from]...)
		at = to
	}
	for _, d := range file.Decls {
		if imports, ok := d.(*ast.GenDecl); ok && imports.Tok == token.IMPORT {
			for _, spec := range imports.Specs {
				if wrong(spec) {
					cut(spec)
				}
			}
		} else if wrong(d) {
			cut(d)
		}
	}
	return append(kept, source[at:]...)
}
