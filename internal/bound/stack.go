package bound

// deepen makes room for a driver on the stack of a new goroutine, at once and while
// there is nothing on it. Else the stack would grow on the way, several times, and to
// move the frames of database/sql and a driver takes longer than all the rest of a
// call does in this process.
//
//go:noinline
func deepen() byte {
	var room [14 << 10]byte // of a stack of 16 KiB, the largest that is cached
	return room[somewhere]
}

// somewhere is not known to the compiler.
var somewhere uint8
