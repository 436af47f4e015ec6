# mxkern/torch/parallel: layers over several devices.
