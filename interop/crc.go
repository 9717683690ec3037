package interop

import "hash/crc32"

// crc returns the CRC-32 checksum that zlib, PNG and Ethernet use.
func crc(s string) uint32 { return crc32.ChecksumIEEE([]byte(s)) }
