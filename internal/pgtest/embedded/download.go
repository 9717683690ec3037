package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// maxArchive limits what is downloaded before the checksum can be known to be wrong. The archives
// have up to 62 MB.
const maxArchive = 512 << 20

// download writes the archive to file. It fails unless the archive has the checksum.
func (f fetch) download(ctx context.Context, file string) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(f.patience, func() { cancel(fmt.Errorf("the server has sent nothing for %v", f.patience)) })
	defer stalled.Stop()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return err
	}
	response, err := f.client.Do(request)
	if err != nil {
		return errors.Unwrap(err) // of a *url.Error, which has the URL once more
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %q", response.Status)
	}
	size := "of unknown size"
	if response.ContentLength >= 0 {
		size = fmt.Sprintf("of %.1f MB", float64(response.ContentLength)/1e6)
	}
	fmt.Fprintf(f.news, "PostgreSQL is not on this machine: fetching it once, an archive %s, from %s to %s\n", size, f.url, f.to)

	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	sum := sha256.New()
	from := reader(func(p []byte) (int, error) {
		stalled.Reset(f.patience)
		return response.Body.Read(p)
	})
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, maxArchive))
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != f.sha256 {
		return fmt.Errorf("the archive, of %d bytes, has the checksum (SHA-256) %s, not %s: it was damaged or changed", n, got, f.sha256)
	}
	return to.Close()
}

// A reader is a function that reads.
type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
