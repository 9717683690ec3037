package harness

// The benchmarks compare a call of this module with the same done by hand, turn about
// in one run, and report the ratio of the medians: "ours/hand" below 1 is quicker than
// by hand. An iteration is one of each.

// BenchmarkDrivers are those that differ in what they send.
var BenchmarkDrivers = Drivers[:2]
