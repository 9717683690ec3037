#!/usr/bin/env bash
# Runs the program of a test, for "go test -exec", and once more if the race detector itself died.
# ThreadSanitizer in Go 1.26.8 fails a check of its own now and then, where many goroutines come and
# go (tsan_rtl.cpp:346, seen in ./locker). A race that it reports, and any other
# failure, counts at once.
set -uo pipefail
log=$(mktemp) || exit
trap 'rm -f "$log"' EXIT
"$@" >"$log" 2>&1
code=$?
if ((code != 0)) && grep -q '^ThreadSanitizer: CHECK failed' "$log"; then
	cat "$log"
	echo "The race detector died; once more:"
	"$@"
	exit
fi
cat "$log"
exit "$code"
