package coopsqlite_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where the driver cannot be built, the compiler sees one file, whose error
// says what is needed.
func TestBuildThatCannotBeSaysWhatIsNeeded(t *testing.T) {
	for _, c := range []struct{ name, goos, cgo, pkg string }{
		{"without a C compiler", "linux", "0", "./internal/shim"},
		{"on Windows", "windows", "0", "./internal/flock"},
		{"on Windows with a C compiler", "windows", "1", "./internal/shim"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("go", "list", "-f", "{{.GoFiles}}{{.CgoFiles}}{{.CFiles}}", c.pkg)
			cmd.Env = append(os.Environ(), "GOOS="+c.goos, "CGO_ENABLED="+c.cgo)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, "[unsupported.go][][]", strings.TrimSpace(string(out)))
		})
	}
	cmd := exec.Command("go", "build", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "coopsqlite needs cgo and a C compiler")
}
