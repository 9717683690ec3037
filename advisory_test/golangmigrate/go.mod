module github.com/pgadvisory/pgadvisory/advisory_test/golangmigrate

go 1.26

require (
	github.com/golang-migrate/migrate/v4 v4.20.1
	github.com/lib/pq v1.10.9
	github.com/pgadvisory/pgadvisory v0.0.0
)

replace github.com/pgadvisory/pgadvisory => ../..
