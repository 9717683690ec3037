package advisoryotel

import "go.opentelemetry.io/otel/attribute"

const (
	systemName   = attribute.Key("db.system.name")
	operation    = attribute.Key("db.operation.name")
	statusCode   = attribute.Key("db.response.status_code")
	errorTypeKey = attribute.Key("error.type")

	labelKey   = attribute.Key("postgresql.advisory_lock.label")
	modeKey    = attribute.Key("postgresql.advisory_lock.mode")
	outcomeKey = attribute.Key("postgresql.advisory_lock.outcome")
	keyKey     = attribute.Key("postgresql.advisory_lock.key")
	localKey   = attribute.Key("postgresql.advisory_lock.local")
	pidKey     = attribute.Key("postgresql.backend.pid")
)

var postgresql = systemName.String("postgresql")
