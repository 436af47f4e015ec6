# mxkern/ops: the operations, one file each, as in the library.
