package lockfn

import (
	"errors"
	"math"
	"testing"
)

func TestReadToken(t *testing.T) {
	for _, c := range []struct {
		answer string
		epoch  int
		token  uint64
	}{
		{"", 0, 0},
		{"", 5, 0},
		{"000000012748", 0, 1<<48 + 2748},
		{"000000022734", 0, 2<<48 + 2734},
		{"000000013", 6, 7<<48 + 3},
		{"00000001281474976710655", 0, 2<<48 - 1},
		{"00007FFF9", 1, 1<<63 + 9}, // more than an int8 holds
		{"0000FFFF281474976710655", 0, math.MaxUint64},
		{"00000001281474976710655", 65534, math.MaxUint64},
	} {
		if token, err := ReadToken(c.answer, c.epoch); err != nil || token != c.token {
			t.Errorf("%q, epoch %d: %d, %v; want %d", c.answer, c.epoch, token, err, c.token)
		}
	}
	for _, c := range []struct {
		answer string
		epoch  int
	}{
		{"0001000012", 0},
		{"0000FFFF12", 1},
		{"FFFFFFFF12", 65534},
		{"00000001281474976710656", 0},
		{"0000000118446744073709551615", 0},
		{"0000000118446744073709551616", 0},
		{"00000001", 0},
		{"2748", 0},
		{"00000001-5", 0},
		{"0000000x12", 0},
	} {
		if token, err := ReadToken(c.answer, c.epoch); !errors.Is(err, ErrNoToken) || token != 0 || LinkGone(err) {
			t.Errorf("%q, epoch %d: %d, %v", c.answer, c.epoch, token, err)
		}
	}
}
