module github.com/pgadvisory/pgadvisory/advisory_test/gocron

go 1.26

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/uuid v1.6.0
	github.com/lib/pq v1.10.9
	github.com/pgadvisory/pgadvisory v0.0.0
)

require (
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
)

replace github.com/pgadvisory/pgadvisory => ../..
