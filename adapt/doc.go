// Package adapt wraps locks in the interfaces that schedulers and migration tools expect. It
// imports none of those tools.
package adapt
