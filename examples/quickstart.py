"""examples/quickstart.py: quantize, look, decode, multiply. Run it with `python quickstart.py`."""

import numpy as np

import mxkern

generator = np.random.default_rng(0)
activations = generator.standard_normal((64, 512), dtype=np.float32)
weight = generator.standard_normal((256, 512), dtype=np.float32)

q = mxkern.quantize_mxfp8(activations)
print(q)
print("codes", q.codes.shape, q.codes.dtype, "scales", q.scales.shape, q.scales.dtype)

decoded = mxkern.dequantize(q)
print("largest error", np.abs(decoded - activations).max())

exact = activations.astype(np.float64) @ weight.T.astype(np.float64)
for scheme in mxkern.schemes:
    a, b = mxkern.quantize(activations, scheme.name), mxkern.quantize(weight, scheme.name)
    product = mxkern.gemm(a, b)
    error = np.linalg.norm(product - exact) / np.linalg.norm(exact)
    print(f"{scheme.name:12} {a.bits_per_element:5.2f} bits  relative error {error:.4f}")
    assert error < 0.25
