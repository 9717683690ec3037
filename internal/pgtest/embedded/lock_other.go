//go:build !linux && !darwin

package main

import (
	"context"
	"errors"
)

func lock(context.Context, string) (func() error, error) {
	return nil, errors.New("there is no archive for this system")
}
