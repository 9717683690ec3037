//go:build lockerverify

package locker

func init() { verify = checkInvariants }
