module github.com/pgadvisory/pgadvisory/advisory_test/cron

go 1.26

require (
	github.com/lib/pq v1.10.9
	github.com/pgadvisory/pgadvisory v0.0.0
	github.com/robfig/cron/v3 v3.0.0
)

replace github.com/pgadvisory/pgadvisory => ../..
