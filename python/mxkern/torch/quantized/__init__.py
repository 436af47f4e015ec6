# mxkern/torch/quantized: tensors that are stored quantized, and what PyTorch does to them.
