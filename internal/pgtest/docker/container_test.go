package main

import "testing"

func TestSplitImage(t *testing.T) {
	for image, want := range map[string][2]string{
		"postgres:18":               {"postgres", "18"},
		"postgres":                  {"postgres", "latest"},
		"localhost:5000/postgres":   {"localhost:5000/postgres", "latest"},
		"localhost:5000/postgres:9": {"localhost:5000/postgres", "9"},
	} {
		if repository, tag := splitImage(image); repository != want[0] || tag != want[1] {
			t.Errorf("%s: %s and %s", image, repository, tag)
		}
	}
}
