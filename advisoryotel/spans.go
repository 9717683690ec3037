package advisoryotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pgadvisory/pgadvisory/advisory"
)

const (
	acquireSpan = "advisory_lock.acquire"
	holdSpan    = "advisory_lock.hold"
)

type spans struct {
	keys   bool
	off    bool // the provider makes none
	tracer trace.Tracer
}

func newSpans(p trace.TracerProvider, keys bool) *spans {
	_, off := p.(noop.TracerProvider)
	return &spans{keys: keys, off: off, tracer: p.Tracer(scope)}
}

// record makes the span that e ends, if it ends one.
func (s *spans) record(ctx context.Context, e advisory.Event) {
	if s.off {
		return
	}
	defer handlePanic("recording spans")
	switch e.Kind {
	case advisory.Acquired, advisory.NotAcquired:
		s.make(ctx, acquireSpan, trace.SpanKindClient, e.Waited, e)
	case advisory.Released, advisory.Lost:
		if e.Held > 0 {
			s.make(ctx, holdSpan, trace.SpanKindInternal, e.Held, e)
		}
	}
}

func (s *spans) make(ctx context.Context, name string, kind trace.SpanKind, lasted time.Duration, e advisory.Event) {
	end := time.Now()
	of := endOf(e, s.keys)
	attrs := of.attributes()
	if kind == trace.SpanKindClient {
		attrs = append(attrs, operation.String(name))
	}
	if e.Local {
		attrs = append(attrs, localKey.Bool(true))
	}
	if e.PID != 0 {
		attrs = append(attrs, pidKey.Int(e.PID))
	}
	if state := sqlState(e.Err); state != "" {
		attrs = append(attrs, statusCode.String(state))
	}
	if e.Label != "" {
		name += " " + e.Label
	}
	text := ""
	if of.errorType != "" && s.keys {
		text = e.Err.Error() // it names the key
	}
	_, span := s.tracer.Start(ctx, name, trace.WithTimestamp(end.Add(-max(lasted, 0))), trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	if of.errorType != "" {
		span.SetStatus(codes.Error, text)
	}
	span.End(trace.WithTimestamp(end))
}
