package interop

import "hash/crc32"

// crc is the checksum of zlib, PNG and Ethernet.
func crc(s string) uint32 { return crc32.ChecksumIEEE([]byte(s)) }
