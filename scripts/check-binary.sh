#!/bin/sh
# Fails unless a binary was built without cgo and, with a tag given, "pgadvisory version" prints that
# tag. It reads what the go tool has recorded, so that the binary may be for another system.
#
#	scripts/check-binary.sh file [tag]
set -eu

recorded=$(go version -m "$1")
tab=$(printf '\t')
case $recorded in
*"${tab}build${tab}CGO_ENABLED=0"*) ;;
*)
	echo "scripts/check-binary.sh: $1 was built with cgo: set CGO_ENABLED=0." >&2
	exit 1
	;;
esac
version=$(echo "$recorded" | awk '$1 == "mod" { print $3 }')
if [ -n "${2:-}" ] && [ "$version" != "$2" ]; then
	echo "scripts/check-binary.sh: $1 has version $version, not $2: build in a clean checkout of the tag, with its history." >&2
	exit 1
fi
