#!/bin/sh
# Makes a Docker image from the PostgreSQL of this machine (Linux), for places
# that cannot pull one. It is used like the official image: POSTGRES_PASSWORD,
# POSTGRES_USER, POSTGRES_DB, POSTGRES_INITDB_ARGS, and "postgres -c name=value"
# as the command.
#
#	scripts/local-image.sh [folder with initdb and postgres]
#
# Prints the name of the image: pgadvisory-local:15 for PostgreSQL 15.
set -eu

bin=${1:-}
if [ -z "$bin" ]; then
	postgres=$(command -v postgres || ls -d /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres 2>/dev/null | sort -V | tail -n 1)
	bin=$(dirname "$(readlink -f "$postgres")")
fi
major=$("$bin/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
image=pgadvisory-local:$major
share=$("$bin/pg_config" --sharedir)
lib=$("$bin/pg_config" --pkglibdir)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# Programs; PostgreSQL's own files, except the compiler for JIT; time zones, a locale.
cp -L --parents "$bin/initdb" "$bin/postgres" "$(command -v setpriv)" "$(command -v locale)" "$root"
mkdir -p "$root/bin"
cp -L "$(command -v dash || command -v sh)" "$root/bin/sh"
find "$lib" -name '*.so' ! -name 'llvmjit*' -exec cp -L --parents {} "$root" \;
cp -RL --parents "$share" "$root"
for folder in /usr/share/zoneinfo /usr/lib/locale/C.utf8; do
	[ ! -d "$folder" ] || cp -RL --parents "$folder" "$root"
done

# The libraries that those load, and the loader.
find "$root" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + 2>/dev/null |
	grep -o '/[^ :]*\.so[^ :]*' | sort -u | while read -r library; do
	case $library in "$root"*) ;; *) cp -L --parents "$library" "$root" ;; esac
done

mkdir -p "$root/etc" "$root/dev" "$root/proc" "$root/sys" "$root/run" "$root/tmp" \
	"$root/var/run/postgresql" "$root/var/lib/postgresql/data"
chmod 1777 "$root/tmp"
chmod 0700 "$root/var/lib/postgresql/data"
chown -R 999:999 "$root/var/run/postgresql" "$root/var/lib/postgresql"
printf 'root:x:0:0:root:/:/bin/sh\npostgres:x:999:999::/var/lib/postgresql:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\npostgres:x:999:\n' >"$root/etc/group"

cat >"$root/entrypoint.sh" <<'EOF'
#!/bin/sh
set -eu
case ${1:-} in -*) set -- postgres "$@" ;; esac
if [ -z "${UNPRIVILEGED:-}" ]; then
	export UNPRIVILEGED=yes
	exec setpriv --reuid=postgres --regid=postgres --clear-groups /bin/sh "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	user=${POSTGRES_USER:-postgres} database=${POSTGRES_DB:-${POSTGRES_USER:-postgres}}
	printf '%s\n' "${POSTGRES_PASSWORD:?is not set}" |
		eval 'initdb --username="$user" --pwfile=/dev/stdin '"${POSTGRES_INITDB_ARGS:-}"
	printf 'host all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
	printf "listen_addresses = '*'\n" >>"$PGDATA/postgresql.conf"
	[ "$database" = postgres ] ||
		printf 'CREATE DATABASE "%s"\n' "$database" | postgres --single postgres >/dev/null
fi
exec "$@"
EOF
chmod +x "$root/entrypoint.sh"

docker image rm "$image" >/dev/null 2>&1 || :
tar -C "$root" -c . | docker import \
	--change "ENV PATH=$bin:/usr/bin:/bin" \
	--change 'ENV LANG=C.UTF-8' \
	--change 'ENV PGDATA=/var/lib/postgresql/data' \
	--change 'VOLUME /var/lib/postgresql/data' \
	--change 'EXPOSE 5432' \
	--change 'ENTRYPOINT ["/entrypoint.sh"]' \
	--change 'CMD ["postgres"]' \
	- "$image" >/dev/null
echo "$image"
