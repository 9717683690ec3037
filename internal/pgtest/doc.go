// Package pgtest gives tests and examples a PostgreSQL server.
//
// It takes the first of these that it finds:
//
//  1. the server that DATABASE_URL names (a postgres:// URL), or else PGHOST
//     with PGPORT, PGUSER, PGPASSWORD, PGDATABASE and PGSSLMODE;
//  2. a temporary server of the PostgreSQL programs on this machine: those in
//     PATH, those that pg_config names, or the newest in the usual folders
//     of Debian, Red Hat and Homebrew;
//  3. a temporary server in a Docker container;
//  4. an embedded server: a temporary one of PostgreSQL programs that are fetched once, from
//     Maven Central, and stay in the user's cache folder (pgadvisory/embedded; root's is in
//     /var/cache, because the server runs as another user).
//
// Separate programs run a server in Docker and fetch an archive: the go command compiles them, in
// the module's folder, when they are first needed.
//
// Variables change the choice:
//
//	PGADVISORY_TEST_SERVER  url, binaries, docker or embedded: only this one
//	PGADVISORY_TEST_BINDIR  the folder with initdb and postgres to use
//	PGADVISORY_TEST_IMAGE   the image for Docker, by default postgres:18
//	PGADVISORY_TEST_MAVEN   the repository to fetch from, by default https://repo1.maven.org/maven2
//	PGADVISORY_TEST_SHA256  the checksum of the archive there, if it is not Maven Central's
//	XDG_CACHE_HOME          the cache folder
//
// A download is verified against the pinned checksum and unpacked under a temporary name. So a
// broken one leaves nothing, and is begun anew the next time. Of programs that need the same archive
// at the same time, one fetches it and the others wait. Set HTTPS_PROXY if there is a proxy.
//
// PGADVISORY_TEST_SLOW also runs the tests that [Slow] would skip.
//
// On a server that the user named, pgtest creates and drops only databases of its own: their names
// begin with pgadvisory_test_. A test that must configure, stop or crash a server uses [NewServer],
// which never returns the user's.
//
// A temporary server listens on 127.0.0.1, with a password of its own, and on a Unix socket in a
// private folder. It does not survive a power failure, in exchange for speed (fsync=off,
// full_page_writes=off). A crash of its processes loses nothing. The server, with its folder or
// container, is removed by [Server.Close]. If the program ends in another way, a watchdog process
// removes it.
//
// The folder of a temporary server is a copy of what initdb made for the first one. That stays in
// the user's cache folder (pgadvisory/templates) until it was not used for a month. So these
// servers have the same system identifier.
package pgtest
