package harness

func First[T, U any](v T, _ U) T { return v }
