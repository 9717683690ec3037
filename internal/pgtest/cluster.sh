# Removes the cluster in folder $1 at the end of the standard input, whose last
# line is the process of its server, or 0.
dir=$1 server=0
while read -r line; do server=$line; done

if [ "$server" != 0 ]; then
	kill -QUIT "$server"
	kill -CONT "$server"
	tries=100
	while [ $tries -gt 0 ] && kill -0 "$server"; do
		sleep 0.1
		tries=$((tries - 1))
	done
	kill -KILL "$server"
fi 2>/dev/null

# A killed server leaves a segment of shared memory, named in the seventh line.
segment=$(sed -n '7s/^ *[0-9]* *//p' "$dir/data/postmaster.pid" 2>/dev/null)
[ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null

# More than once: an initdb may still be writing there.
tries=20
while rm -rf "$dir" 2>/dev/null; [ -e "$dir" ] && [ $tries -gt 0 ]; do
	sleep 0.1
	tries=$((tries - 1))
done
[ ! -e "$dir" ]
