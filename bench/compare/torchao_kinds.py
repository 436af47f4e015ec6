# bench/compare/torchao_kinds.py: a function of torchao's for each scheme, eager and where that is
# worth it compiled.
from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3

from bench.compare.rival import record

SHAPE = (4096, 4096)
CASES = {
    "mxfp8_e4m3": torch.float8_e4m3fn,
    "mxfp6_e2m3": DTYPE_FP6_E2M3,
    "mxfp4": torch.float4_e2m1fn_x2,
}
COMPILED = ("mxfp8_e4m3", "mxfp4")

Measure = Callable[[torch.Tensor, str, Any, Any], list[float]]


def records(operation: str, theirs: Any, measure: Measure) -> Iterator[dict[str, Any]]:
    """measure(x, scheme, element, function) gives the times of both, its results checked."""
    version = importlib.metadata.version("torchao")
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    for scheme, element in CASES.items():
        kinds = [("eager", theirs)]
        if scheme in COMPILED:
            kinds.append(("compiled", torch.compile(theirs, fullgraph=True)))
        for kind, function in kinds:
            rival = f"torchao {version} {kind}"
            try:
                times = measure(x, scheme, element, function)
            except Exception as error:  # what a rival cannot do is a result as well
                reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
                name = f"{rival} {operation} {scheme}"
                yield {"rival": name, "failed": f"{type(error).__name__}: {reason}"}
                continue
            yield record(operation, rival, scheme, SHAPE, "bfloat16", times)
