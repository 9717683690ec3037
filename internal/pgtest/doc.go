// Package pgtest gives tests and examples a PostgreSQL server.
//
// It takes the first of these that it finds:
//
//  1. the server that DATABASE_URL names (a postgres:// URL), or else PGHOST
//     with PGPORT, PGUSER, PGPASSWORD, PGDATABASE and PGSSLMODE;
//  2. a temporary server of the PostgreSQL programs on this machine: those in
//     PATH, those that pg_config names, or the newest in the usual folders
//     of Debian, Red Hat and Homebrew;
//  3. a temporary server in a Docker container, which a separate program runs: the go
//     command compiles it, in the module's folder, when it is first needed.
//
// Variables change the choice:
//
//	PGADVISORY_TEST_SERVER  url, binaries or docker: only this one
//	PGADVISORY_TEST_BINDIR  the folder with initdb and postgres to use
//	PGADVISORY_TEST_IMAGE   the image for Docker, by default postgres:18
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
