package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
)

type state string

func (s state) Error() string    { return string(s) }
func (s state) SQLState() string { return string(s) }

func TestFaultOf(t *testing.T) {
	closed := sql.OpenDB(nil)
	closed.Close()
	_, closedErr := closed.Conn(t.Context())
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for want, errs := range map[Fault][]error{
		Passing: {
			refused, &net.DNSError{Err: "no such host", IsNotFound: true}, os.ErrDeadlineExceeded,
			io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn, bound.ErrNoAnswer, advisory.ErrUnconfirmed,
			context.DeadlineExceeded, context.Canceled,
			state("57P01"), state("57P02"), state("57P03"), state("53300"), state("08006"), state("08P01"), state("58030"),
			fmt.Errorf("open: %w", refused),
			errors.Join(errors.New("read only connection"), refused),
		},
		Lasting: {
			state("28P01"), state("28000"), state("3D000"), state("42501"), closedErr,
			&advisory.UnsafeServerError{Reason: advisory.Pooler}, &advisory.UnsafeServerError{Reason: advisory.NotPostgreSQL},
			fmt.Errorf("open: %w", errors.Join(refused, fmt.Errorf("another host: %w", state("28P01")))),
		},
		Unclear: {
			errors.New("cannot parse the DSN"), errors.New("read only connection"), state("57014"), state("XX000"), state(""),
			&advisory.UnsafeServerError{Reason: advisory.Standby},
			&fs.PathError{Op: "open", Path: "client.crt", Err: syscall.ENOENT},
		},
	} {
		for _, err := range errs {
			if got := FaultOf(err); got != want {
				t.Errorf("%v (%T): %d, want %d", err, err, got, want)
			}
		}
	}
}
