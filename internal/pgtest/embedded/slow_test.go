package main

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A roundTripper is a function that answers.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// A server may be slow for hours, as long as it sends something now and then.
func TestSlowServer(t *testing.T) {
	jar, sum := pack(t, programs...)
	f := fetchFrom(t, sum, nil)
	for name, pause := range map[string]time.Duration{"slow": f.patience - 1, "silent": f.patience + 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f.client = &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
					rest := jar
					body := reader(func(p []byte) (int, error) {
						select {
						case <-request.Context().Done():
							return 0, request.Context().Err()
						case <-time.After(pause):
						}
						if len(rest) == 0 {
							return 0, io.EOF
						}
						n := copy(p, rest[:min(len(rest), 100)])
						rest = rest[n:]
						return n, nil
					})
					return &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(jar)), Body: io.NopCloser(body)}, nil
				})}
				if name == "silent" {
					f.fails(t, "the server has sent nothing for 1m0s")
				} else {
					f.succeeds(t)
				}
			})
		})
		f = fetchFrom(t, sum, nil)
	}
}
