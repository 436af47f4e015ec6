# bench/compare/quantize/torchmx.py: TorchMX's MXTensor.to_mx.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import torch
from torchmx import dtypes
from torchmx.mx_tensor import MXTensor

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import check_equal

SHAPE = (4096, 4096)
CASES = {
    "mxfp8_e4m3": dtypes.float8_e4m3,
    "mxfp6_e2m3": dtypes.float6_e2m3,
    "mxfp4": dtypes.float4_e2m1,
    "mxint8": dtypes.int8,
}


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme."""
    version = importlib.metadata.version("torchmx")
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    for scheme, element in CASES.items():
        theirs = MXTensor.to_mx(x[:128], element, 32).to_dtype(torch.float32)
        ours = mxkern.dequantize(mxkern.quantize(x[:128], scheme, scale_rule="floor"))
        check_equal(f"values of {scheme}", theirs.numpy(), ours.numpy())
        times = best_times(
            [
                lambda element=element: MXTensor.to_mx(x, element, 32),
                lambda scheme=scheme: mxkern.quantize(x, scheme, scale_rule="floor"),
            ],
            SECONDS,
            ROUNDS,
        )
        yield record("quantize", f"TorchMX {version}", scheme, SHAPE, "bfloat16", times)


if __name__ == "__main__":
    report(run())
