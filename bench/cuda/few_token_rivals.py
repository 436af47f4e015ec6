# bench/cuda/few_token_rivals.py: products of few tokens beside Humming 0.1.19, which compiles a
# kernel for each case at run time: the same codes and scales, weights that are not in the cache.
from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

import mxkern
from bench.cuda.few_tokens import ROTATED_BYTES
from bench.cuda.rivals import find
from bench.cuda.timing import median_seconds

SHAPES = ((8192, 8192), (28672, 8192))
TOKENS = (1, 4, 16, 32, 64, 128, 256)
# How checkpoints of these schemes call themselves.
CHECKPOINTS = {
    "mxfp8_e4m3": {"quant_method": "modelopt", "quant_algo": "mxfp8"},
    "mxfp4": {"quant_method": "mxfp4"},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "nvfp4"},
}


def run() -> Iterator[dict[str, Any]]:
    """One record a shape, scheme and number of tokens, or one that says why there are none."""
    find()
    try:
        layers = importlib.import_module("humming.layer")
        tune = importlib.import_module("humming.tune")
        rival = f"Humming {importlib.metadata.version('humming-kernels')}"
    except ImportError as error:
        yield {"rival": "Humming", "failed": f"{type(error).__name__}: {error}"}
        return
    for shape in SHAPES:
        for scheme in CHECKPOINTS:
            try:
                yield from _measure(layers, tune, rival, shape, scheme)
            except RuntimeError as error:  # what a rival cannot do is a result as well
                yield {"rival": f"{rival}, {scheme} {shape}", "failed": str(error).splitlines()[0]}


def _measure(
    layers: Any, tune: Any, rival: str, shape: tuple[int, int], scheme: str
) -> Iterator[dict[str, Any]]:
    torch.cuda.empty_cache()
    n, k = shape
    weights: list[tuple[Any, Any]] = []
    size = 0
    while size < ROTATED_BYTES:
        q = mxkern.quantize(torch.randn(n, k, device="cuda", dtype=torch.bfloat16), scheme)
        layer = _layer(layers, q)
        weights.append((layer, mxkern.prepare_operand(q, form="few_tokens")))
        size += q.nbytes
    decoded = mxkern.dequantize(weights[0][1].source).double()
    # Its own choice of kernels; those for other numbers of tokens need not be compiled.
    choice = [
        part
        for part in tune.get_heuristics_config(weights[0][0].humming_config)
        if any(part[0] < tokens <= part[1] for tokens in TOKENS)
    ]
    for tokens in TOKENS:
        x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
        out = torch.empty(tokens, n, device="cuda", dtype=torch.bfloat16)
        theirs = [partial(layer, x, outputs=out, tuning_config=choice) for layer, _ in weights]
        ours = [partial(mxkern.gemm, x, ready, out=out) for _, ready in weights]
        want = x.double() @ decoded.T
        errors = []
        for call in (theirs[0], ours[0]):
            out.fill_(float("nan"))
            call()
            errors.append(((out.double() - want).norm() / want.norm()).item())
        # Rounding to bfloat16 alone is 1.7e-3.
        assert errors[0] <= 5e-3, f"{rival}, {scheme}, {tokens} tokens: error {errors[0]:.1e}"
        assert errors[1] <= 2.4e-3, f"{scheme}, {tokens} tokens: error {errors[1]:.1e}"
        yield {
            "rival": rival,
            "shape": [n, k],
            "scheme": scheme,
            "tokens": tokens,
            "rival_seconds": median_seconds(theirs),
            "seconds": median_seconds(ours),
            "rival_error": errors[0],
            "error": errors[1],
        }


def _layer(layers: Any, q: mxkern.BlockScaled) -> Any:
    n, k = q.shape
    layer = layers.HummingLayer(
        shape_n=n,
        shape_k=k,
        weight_config=dict(CHECKPOINTS[q.scheme]),
        torch_dtype=torch.bfloat16,
    ).cuda()
    tensors = {"weight": q.codes, "weight_scale": q.scales}
    if q.tensor_scale is None:
        tensors["weight_scale"] = q.scales.view(torch.uint8)
    else:
        tensors["weight_scale_2"] = q.tensor_scale.reshape(1)
    layer.load_from_tensors(tensors)
    layer.transform()
    return layer
