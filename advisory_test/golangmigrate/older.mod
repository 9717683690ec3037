module github.com/pgadvisory/pgadvisory/advisory_test/golangmigrate

go 1.26.0

require (
	github.com/golang-migrate/migrate/v4 v4.16.1
	github.com/lib/pq v1.10.9
	github.com/pgadvisory/pgadvisory v0.0.0
)

require (
	github.com/distribution/reference v0.6.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.72.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/atomic v1.7.0 // indirect
)

replace github.com/pgadvisory/pgadvisory => ../..
