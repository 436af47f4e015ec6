# bench/cuda/jax_tables.py: the layers of a token step in a program of JAX, as Markdown.
from __future__ import annotations

from typing import Any

from bench.cuda.gemm_tables import not_measured
from bench.markdown import table

Record = dict[str, Any]

_OWN, _OTHER = "mxkern, mxfp4", "XLA, bfloat16"


def section(result: Record) -> str:
    """Every time, recorded in CUDA graphs by XLA and not."""
    records = result.get("cuda_jax_layers", [])
    if not records:
        return ""
    times = _times(result)
    ways = [(way, recorded) for way in (_OWN, _OTHER) for recorded in (True, False)]
    rows = [
        [
            f"{extent} x {extent}",
            str(tokens),
            *(times.get((extent, tokens, *way), "") for way in ways),
        ]
        for extent, tokens in dict.fromkeys(key[:2] for key in times)
    ]
    text = "## Layers of a token step in one program of JAX\n\nMicroseconds a layer; XLA records "
    text += "rows of calls in CUDA graphs, unless it is told not to"
    text += "; a step donates its activations\n\n" if records[0].get("donated") else "\n\n"
    columns = [f"{way}, {'recorded' if recorded else 'not'}" for way, recorded in ways]
    text += table(["weights", "tokens", *columns], rows) if rows else ""
    return text + not_measured(records)


def _times(result: Record) -> dict[tuple[int, int, str, bool], str]:
    return {
        (r["shape"][0], r["tokens"], r["way"], r["recorded"]): f"{r['seconds'] * 1e6:.1f}"
        for r in result.get("cuda_jax_layers", [])
        if "failed" not in r
    }
