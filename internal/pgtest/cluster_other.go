//go:build !unix

package pgtest

import (
	"context"
	"errors"
)

func newCluster(context.Context, string, string, []setting) (*Server, error) {
	return nil, errors.New("pgtest: on this system PostgreSQL's programs are not started; set DATABASE_URL, or PGADVISORY_TEST_SERVER=docker")
}

func (machine) embedded(context.Context) (string, error) {
	return "", errors.New("on this system PostgreSQL's programs are not started")
}
