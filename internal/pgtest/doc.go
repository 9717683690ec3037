// Package pgtest gives tests and examples a PostgreSQL server.
//
// It takes the first of these that is to be had:
//
//  1. the server that DATABASE_URL names (a postgres:// URL), or else PGHOST
//     with PGPORT, PGUSER, PGPASSWORD, PGDATABASE and PGSSLMODE;
//  2. a throwaway server of the PostgreSQL programs on this machine: those in
//     PATH, those that pg_config tells of, or the newest in the usual folders
//     of Debian, Red Hat and Homebrew;
//  3. a throwaway server in a Docker container, which a program of its own runs: the go
//     command compiles it, in the module's folder, the first time that it is needed.
//
// Variables change the choice:
//
//	PGADVISORY_TEST_SERVER  url, binaries or docker: only this one
//	PGADVISORY_TEST_BINDIR  the folder with initdb and postgres to use
//	PGADVISORY_TEST_IMAGE   the image for Docker, by default postgres:18
//
// and PGADVISORY_TEST_SLOW runs also the tests that [Slow] would skip.
//
// On a server that the user named, only databases of pgtest's own are created
// and dropped: their names begin with pgadvisory_test_. What must configure,
// stop or crash a server takes [NewServer], which never hands out the user's.
//
// A throwaway server listens on 127.0.0.1, with a password of its own, and on a
// Unix socket in a private folder. It trades durability against power cuts for
// speed (fsync=off, full_page_writes=off); a crash of its processes loses
// nothing. It is gone, with its folder or container, after [Server.Close] and
// also when the program ends in any other way: a watchdog process outlives the
// program to see to it.
//
// The folder of a throwaway server is a copy of what initdb made for the first one, which
// stays in the user's cache folder (pgadvisory/templates) until nobody has used it for a
// month. So these servers have one system identifier.
package pgtest
