//go:build !linux

package netns

import "errors"

func inside(string, func() error) error {
	return errors.New("netns: network namespaces need Linux")
}
