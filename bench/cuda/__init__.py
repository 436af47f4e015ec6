# bench/cuda: what the kernels reach on a GPU, beside a copy on the same GPU in the same run.
