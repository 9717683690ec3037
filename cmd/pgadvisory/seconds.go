package main

import (
	"errors"
	"strconv"
	"time"
)

// A seconds is a flag with a number of seconds, as flock(1) takes, or a duration such as 800ms.
type seconds struct {
	time.Duration
	set bool
}

func (s *seconds) String() string {
	if s == nil || !s.set && s.Duration == 0 {
		return ""
	}
	return s.Duration.String()
}

func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		n, nerr := strconv.ParseFloat(text, 64)
		if nerr != nil || n > 1e9 || n < -1e9 || n != n {
			return errors.New("give a number of seconds, such as 5 or 0.5, or a duration, such as 800ms")
		}
		d = time.Duration(n * float64(time.Second))
	}
	if d < 0 {
		return errors.New("give a time that is not negative")
	}
	s.Duration, s.set = d, true
	return nil
}
