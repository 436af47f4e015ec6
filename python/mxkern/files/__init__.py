# mxkern/files: files of tensors, read in parts; knows no quantization.
