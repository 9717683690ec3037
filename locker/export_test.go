package locker

func init() { verify = checkInvariants }
