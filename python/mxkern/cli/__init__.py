# mxkern/cli: the command line.
