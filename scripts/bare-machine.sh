#!/bin/sh
# Runs a command on a "machine" that has Go, make and a shell, but neither PostgreSQL nor
# Docker nor a C compiler: in a new root folder, with a clean clone of this repository (what is
# committed) as the working folder. Linux, as root.
#
#	scripts/bare-machine.sh [-u] command [argument ...]
#
# With -u the command runs as a user without rights, otherwise as root. It gets the variables
# that begin with GOPROXY, GOFLAGS, HTTP, HTTPS and PGADVISORY_. Modules that are in the
# module cache of this machine are not downloaded.
set -eu

user=0
if [ "$1" = -u ]; then
	user=1234
	shift
fi
if [ -z "${BARE_MACHINE:-}" ]; then
	# Mounts and processes end with this script.
	root=$(mktemp -d)
	trap 'rmdir "$root"' EXIT
	BARE_MACHINE=$root unshare --mount --pid --fork --kill-child "$0" $([ $user = 0 ] || echo -u) "$@"
	exit
fi

clone=$(cd "$(dirname "$0")/.." && pwd)
goroot=$(go env GOROOT)
modules=$(go env GOMODCACHE)/cache/download
root=$BARE_MACHINE
mount -t tmpfs -o mode=755,size=3g none "$root"

# Programs, with the libraries that they load.
for name in sh make env cat rm mkdir mktemp sleep sed seq find sort dirname basename id uname getconf ipcrm setpriv ps; do
	cp -L --parents "$(command -v $name)" "$root"
done
find "$root" -type f -exec ldd {} + 2>/dev/null | grep -o '/[^ :]*\.so[^ :]*' | sort -u |
	xargs -I{} cp -L --parents {} "$root"
# The rest of the C library, and what the package managers of Debian and Fedora need of C++.
ldconfig -p | sed -n 's/^\t\(libm\|libdl\|libpthread\|librt\|libresolv\|libnss_files\|libnss_dns\|libstdc++\|libgcc_s\)\.so\..* => //p' |
	xargs -I{} cp -L --parents {} "$root"
mkdir -p "$root/bin"
[ -e "$root/bin/sh" ] || cp -L "$(command -v sh)" "$root/bin/sh"

for dir in proc dev dev/shm etc tmp root home modules "$goroot"; do
	mkdir -p "$root/$dir"
done
chmod 1777 "$root/tmp"
mount -t proc none "$root/proc"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
for device in null zero random urandom; do
	: >"$root/dev/$device"
	mount --bind /dev/$device "$root/dev/$device"
done
mount --bind -o ro "$goroot" "$root/$goroot"
mount --bind -o ro "$modules" "$root/modules"
for file in /etc/resolv.conf /etc/hosts /etc/nsswitch.conf /etc/ssl /usr/share/ca-certificates /usr/local/share/ca-certificates; do
	[ ! -e $file ] || cp -RL --parents $file "$root" 2>/dev/null || :
done
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\nuser:x:1234:1234::/home:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\nuser:x:1234:\n' >"$root/etc/group"
git clone -q "file://$clone" "$root/home/clone"
chown -R 1234:1234 "$root/home"

home=/home
[ $user != 0 ] || home=/root
exec env -i "PATH=$goroot/bin:/usr/local/bin:/usr/bin:/bin" "HOME=$home" LANG=C.UTF-8 \
	"GOPROXY=file:///modules,$(go env GOPROXY)" GOTOOLCHAIN=local GONOSUMDB='*' \
	$(env | grep -E '^(GOFLAGS|HTTPS?_PROXY|PGADVISORY_[A-Z_0-9]*)=' || :) \
	"$(command -v chroot)" "$root" setpriv --reuid=$user --regid=$user --clear-groups \
	sh -c 'cd /home/clone && exec "$@"' sh "$@"
