package harness

// OptionsAs returns opts as options of another kind of call, nils included. It panics if one does not fit.
func OptionsAs[O, T any](opts []T) []O {
	list := make([]O, len(opts))
	for i, o := range opts {
		if any(o) != nil {
			list[i] = any(o).(O)
		}
	}
	return list
}

// OptionsFit reports whether optionsAs[O](opts) returns.
func OptionsFit[O, T any](opts []T) bool {
	for _, o := range opts {
		if _, ok := any(o).(O); any(o) != nil && !ok {
			return false
		}
	}
	return true
}
