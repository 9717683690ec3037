package main

import (
	"context"
	"flag"
)

func stub(name string) *command {
	return &command{name: name, setup: func(*program, *flag.FlagSet) func(context.Context, []string) error {
		return func(context.Context, []string) error { return nil }
	}}
}

var lsCommand, whoCommand, graphCommand, releaseCommand, checkCommand, benchCommand, completionCommand = stub("ls"), stub("who"), stub("graph"), stub("release"), stub("check"), stub("bench"), stub("completion")
