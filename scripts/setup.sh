#!/bin/sh
# Installs PostgreSQL's programs on Debian, Ubuntu, Fedora, Red Hat and, by
# Homebrew, macOS. Tests and examples start throwaway servers of them.
set -eu

for initdb in "$(command -v initdb || :)" /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb \
	/opt/homebrew/opt/postgresql@*/bin/initdb /usr/local/opt/postgresql@*/bin/initdb; do
	if [ -x "$initdb" ]; then
		echo "PostgreSQL is here: $initdb"
		exit
	fi
done

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo

set -x
if command -v apt-get; then
	$as_root apt-get update
	$as_root apt-get install -y postgresql
elif command -v dnf; then
	$as_root dnf install -y postgresql-server
elif command -v brew; then
	brew install postgresql@18
else
	set +x
	echo "No apt-get, dnf or brew here: install PostgreSQL's server by the means of this system." >&2
	exit 1
fi
