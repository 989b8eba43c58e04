# The development commands. `make test` is what .ci/run calls.

GO ?= go
# A hanging test must not hang the machine that runs it.
TIMEOUT ?= 15m
FUZZTIME ?= 10s

# The nested modules hold what needs more than SQLite: compat the real tools
# and PostgreSQL, bench the peers.
.PHONY: test test-root test-compat test-bench bench bench-all fuzz fmt

test: test-root test-compat test-bench

test-root:
	$(GO) vet ./...
	$(GO) test -race -timeout $(TIMEOUT) ./...
	$(GO) test -tags sqlite_fts5 -run Virtual -timeout $(TIMEOUT) .

test-compat:
	cd compat && $(GO) vet ./... && $(GO) test -race -timeout $(TIMEOUT) ./...

# Of bench only the instrument is tested; what it measures is not the business of
# a test.
test-bench:
	cd bench && $(GO) vet ./... && $(GO) test -timeout $(TIMEOUT) ./...

# The budgets, and the peers side by side in some minutes; bench-all is the
# long form.
bench:
	cd bench && $(GO) run .

bench-all:
	cd bench && $(GO) run . -all

# A short run of every fuzz target. Go fuzzes one target at a time.
fuzz:
	@set -e; for package in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
	  done; \
	done

fmt:
	gofmt -l -w .
