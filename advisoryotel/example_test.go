package advisoryotel_test

import (
	"context"
	"database/sql"
	"log"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisoryotel"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/xact"
)

var (
	ctx    context.Context
	db     *sql.DB
	meters metric.MeterProvider
)

// The program has set its providers with otel.SetMeterProvider and otel.SetTracerProvider.
func ExampleNew() {
	observer, err := advisoryotel.New()
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(db, advisory.WithObserver(observer))
	defer l.Close()
	defer observer.RegisterStats(l)()
}

// Metrics alone, with a provider of its own.
func ExampleWithMeterProvider() {
	observer, err := advisoryotel.New(
		advisoryotel.WithMeterProvider(meters),
		advisoryotel.WithTracerProvider(noop.NewTracerProvider()))
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(db, advisory.WithObserver(observer))
	defer l.Close()
}

// A program with two pools tells their Lockers apart.
func ExampleObserver_RegisterStats() {
	observer, err := advisoryotel.New()
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(db, advisory.WithObserver(observer))
	defer l.Close()
	unregister := observer.RegisterStats(l, attribute.String("db.client.connection.pool.name", "billing"))
	defer unregister()
}

// Calls of packages sqlconn and xact get the Observer as an option. A label is what keeps their metrics
// apart.
func ExampleObserver_Observe() {
	observer, err := advisoryotel.New()
	if err != nil {
		log.Fatal(err)
	}
	err = xact.Do(ctx, db.BeginTx, advisory.Name("account", "7"), func(ctx context.Context, tx *sql.Tx) error { return nil },
		advisory.WithObserver(observer), advisory.Label("account"))
	if err != nil {
		log.Print(err)
	}
}
