package pgtest

import (
	"context"
	"errors"
)

var errNoDocker = errors.New("pgtest: servers in Docker are not supported yet")

func (m machine) docker() (struct{}, error) { return struct{}{}, errNoDocker }

func (m machine) image() string { return m.getenv("PGADVISORY_TEST_IMAGE") }

func newContainer(context.Context, struct{}, string, Options) (*Server, error) {
	return nil, errNoDocker
}
