#!/bin/sh
# Packs the PostgreSQL of this machine (Linux) as the archive of an embedded server is
# packed: bin/initdb, bin/postgres, and all that they need except the shell and env. For
# places that cannot fetch one.
#
#	scripts/local-archive.sh FILE.txz [folder with initdb and postgres]
#
# A jar (zip) of the file is what internal/pgtest/embedded fetches.
set -eu

file=$1
postgres=${2:+$2/postgres}
[ -n "$postgres" ] || postgres=$(command -v postgres || ls -d /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres 2>/dev/null | sort -V | tail -n 1)
bin=$(dirname "$(readlink -f "$postgres")")
for need in tar xz ldd; do
	command -v "$need" >/dev/null || { echo "scripts/local-archive.sh needs $need." >&2; exit 1; }
done
config=$bin/pg_config
[ -x "$config" ] || config=pg_config
share=$("$config" --sharedir)
lib=$("$config" --pkglibdir)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# Below "native" are the paths of this machine: postgres finds its files by their place
# relative to its own. Except the compiler for JIT.
mkdir -p "$root/native" "$root/bin" "$root/lib"
cp -L --parents "$bin/initdb" "$bin/postgres" "$root/native"
find "$lib" -name '*.so' ! -name 'llvmjit*' -exec cp -L --parents {} "$root/native" \;
cp -RL --parents "$share" "$root/native"

# The libraries that those load, except those of the C library, which belong to the machine.
find "$root/native" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + 2>/dev/null |
	grep -o '/[^ :]*\.so[^ :]*' | sort -u | while read -r library; do
	case ${library##*/} in
	ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libresolv.so* | libnss_*) ;;
	*) case $library in "$root"*) ;; *) cp -L "$library" "$root/lib" ;; esac ;;
	esac
done

for name in initdb postgres; do
	cat >"$root/bin/$name" <<END
#!/bin/sh
root=\${0%/*}/..
LD_LIBRARY_PATH=\$root/lib
export LD_LIBRARY_PATH
exec "\$root/native$bin/$name" "\$@"
END
	chmod 755 "$root/bin/$name"
done

tar -C "$root" -c bin lib native | xz -1 -T0 >"$file"
