// Package adapt has locks in the shapes that schedulers and migration tools expect. It imports
// none of those tools.
package adapt
