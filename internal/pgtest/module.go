package pgtest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

const modulePath = "github.com/pgadvisory/pgadvisory"

// moduleFolder returns the root module's folder, whose go.mod has the requirements of the commands
// below this package.
func moduleFolder(ctx context.Context) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if err != nil || len(dir) == 0 {
		return "", fmt.Errorf("this needs the go command, and a working folder in %s: %w", modulePath, err)
	}
	return strings.TrimSpace(string(dir)), nil
}
