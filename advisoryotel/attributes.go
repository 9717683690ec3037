package advisoryotel

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/pgadvisory/pgadvisory/advisory"
)

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

// lockAttributes returns what metrics and spans say about the lock of e.
func lockAttributes(e advisory.Event, withKey bool) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 10) // there may come more
	attrs = append(attrs, postgresql, modeKey.String(e.Mode.String()))
	if e.Label != "" {
		attrs = append(attrs, labelKey.String(e.Label))
	}
	if withKey && !e.Key.IsZero() {
		attrs = append(attrs, keyKey.String(e.Key.String()))
	}
	return attrs
}

// endAttributes returns what metrics and spans say about a call or a hold that e ends.
func endAttributes(e advisory.Event, withKey bool) []attribute.KeyValue {
	attrs := append(lockAttributes(e, withKey), outcomeKey.String(outcome(e)))
	if t := errorType(e.Err); t != "" {
		attrs = append(attrs, errorTypeKey.String(t))
	}
	return attrs
}

// outcome returns how the call or the hold ended.
func outcome(e advisory.Event) string {
	switch {
	case e.Kind == advisory.Acquired:
		return "acquired"
	case e.Kind == advisory.Released:
		return "released"
	case e.Kind == advisory.Lost:
		return "lost"
	case errorType(e.Err) != "":
		return "error"
	}
	return "not_acquired"
}
