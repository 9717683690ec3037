#!/bin/sh
# Writes what a release has besides binaries into .cache/release: the compressed manual page, the
# scripts that complete for shells, and for the container the certificates of this machine.
set -eu
cd "$(dirname "$0")/.."

dir=.cache/release
rm -rf "$dir"
mkdir -p "$dir/completions"

gzip -9n <docs/pgadvisory.1 >"$dir/pgadvisory.1.gz"

go build -o "$dir/pgadvisory" ./cmd/pgadvisory
"$dir/pgadvisory" completion bash >"$dir/completions/pgadvisory.bash"
"$dir/pgadvisory" completion zsh >"$dir/completions/_pgadvisory"
"$dir/pgadvisory" completion fish >"$dir/completions/pgadvisory.fish"
rm "$dir/pgadvisory"

for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	if [ -e "$file" ]; then
		cp -L "$file" "$dir/ca-certificates.crt"
		chmod 0644 "$dir/ca-certificates.crt"
		exit
	fi
done
echo "scripts/release-files.sh: no certificates here: install ca-certificates." >&2
exit 1
