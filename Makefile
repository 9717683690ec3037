# Needs Go, and one of: a server named by DATABASE_URL, PostgreSQL's programs on
# this machine ("make setup" installs them), a Docker engine.

.PHONY: demo test setup

# The race detector needs a C compiler.
race := $(shell command -v cc >/dev/null 2>&1 && echo -race)
# One package at a time, because tests measure times.
testflags ?= -count=1 -p=1 -timeout=20m

# Workers race for one lock: one runs, the others step aside.
demo:
	@go run ./examples/reconcile

# Everything that can run on this machine, in every module.
test:
	@go run ./internal/pgtest/probe
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not as gofmt has it:" $$unformatted; exit 1; }
	@find . -name go.mod -not -path '*/testdata/*' | sort | while read -r mod; do \
		(cd "$$(dirname "$$mod")" && go vet ./... && go test $(race) $(testflags) ./...) || exit 1; \
	done

# Installs PostgreSQL.
setup:
	@scripts/setup.sh
