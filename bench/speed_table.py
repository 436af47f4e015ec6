# bench/speed_table.py: what the README says of speed, a line for an operation on a machine.
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench import tables
from bench.cuda import gemm_tables
from bench.cuda import tables as cuda_tables
from bench.markdown import table

Record = dict[str, Any]

MEGABYTES = 64  # of the elements, on a CPU
SHAPE = [16384, 8192]  # of the elements, on a GPU
WEIGHTS = [8192, 8192]  # of a product of one token
HOW = (
    "Where there are two figures, they are the lowest and the highest of all schemes; in products "
    "on a GPU, of MXFP8 in four shapes from 4096³ to 16384 x 4096 x 14336. Quantization counts the "
    "bytes that are read and written. Its scales are row-major on a CPU. On a GPU they are "
    "swizzled, the input is not in the cache, and NVFP4's amax is given. The weights of one token "
    "are not in the cache either. A memcpy has as many threads as mxkern, and NumPy multiplies "
    "float32 operands that are dequantized already."
)


def text(results: Sequence[tuple[Record, str, str]]) -> str:
    """The table and its machines: results, each with its page and its file."""
    rows = [
        [operation, f"[{_short(result['machine'])}]({page})", figure, beside]
        for result, page, _ in results
        for operation, figure, beside in _lines(result)
    ]
    machines = [f"- {_facts(result['machine'], file)}" for result, _, file in results]
    headers = ["operation", "machine", "mxkern", "beside it"]
    return "\n\n".join([HOW, table(headers, rows), "The machines:\n\n" + "\n".join(machines)])


def _short(facts: Record) -> str:
    return str(facts.get("gpu") or f"{facts['cores']} cores of {facts['cpu']}")


def _facts(facts: Record, file: str) -> str:
    on_gpu = "gpu" in facts
    what = f"One {facts['gpu']}, {facts['date']}" if on_gpu else tables.machine_line(facts)
    return f"{what}, commit {facts['commit']} ([result]({file})).{tables.caution(facts)}"


def _lines(result: Record) -> Iterator[tuple[str, str, str]]:
    return _on_gpu(result) if "gpu" in result["machine"] else _on_cpu(result)


def _on_cpu(result: Record) -> Iterator[tuple[str, str, str]]:
    kinds = {"quantize": {"direction": "rows"}, "dequantize": {}}
    for operation, kind in kinds.items():
        wanted = {"scale_layout": "row_major", "dtype": "bfloat16", "megabytes": MEGABYTES, **kind}
        records = [r for r in result.get(operation, []) if wanted.items() <= r.items()]
        if records:
            speeds = _range((r["bytes"] / r["seconds"] / 1e9 for r in records), ".1f")
            shares = _range((r["share"] for r in records), ".2f")
            yield (
                f"`{operation}`, {MEGABYTES} MB of bfloat16",
                f"{speeds} GB/s",
                f"{shares} of memcpy",
            )
    products = [r for r in result.get("gemm", []) if r["left"] == r["right"]]
    for size in dict.fromkeys(record["size"] for record in products):
        records = [record for record in products if record["size"] == size]
        yield (
            f"`gemm`, {size}³",
            f"{_range((r['flops_per_second'] / 1e9 for r in records), '.0f')} GFLOP/s",
            f"{_range((r['ratio'] for r in records), '.1f')} times as fast as NumPy",
        )


def _on_gpu(result: Record) -> Iterator[tuple[str, str, str]]:
    quantized = [r for r in result.get("cuda_quantize", []) if r["scheme"] and r["shape"] == SHAPE]
    for name, operation in {"quantize": "rows", "quantize_both": "both"}.items():
        records = [record for record in quantized if record["operation"] == operation]
        if records:
            speeds = _range((r["bytes"] / r["seconds"] / 1e12 for r in records), ".1f")
            yield (
                f"`{name}`, bfloat16 {SHAPE}",
                f"{speeds} TB/s",
                f"{_range(map(cuda_tables.share, records), '.2f')} of a copy",
            )
    products = gemm_tables.by_name(result.get("cuda_gemm", []))
    shapes = [variants for name, variants in products.items() if "tokens" not in name]
    if shapes:
        folded = [of["folded: activations in the call"] for of in shapes]
        exact = [of["exact: weights ahead"] for of in shapes]
        other = [of[gemm_tables.BF16] for of in shapes]
        yield (
            "`gemm` of MXFP8 to bfloat16, weights prepared",
            f"{_teraflops(folded)} TFLOP/s folded, {_teraflops(exact)} exact",
            f"{_times(folded, other)} and {_times(exact, other)} times as fast as cuBLAS in "
            "bfloat16",
        )
    few = {
        record["scheme"]: record
        for record in result.get("cuda_few_tokens", [])
        if record["tokens"] == 1 and record["shape"] == WEIGHTS
    }
    if few:
        own, other = few["mxfp4"], few["bfloat16"]
        yield (
            f"`gemm`, one bfloat16 token, MXFP4 weights {WEIGHTS}",
            f"{own['seconds'] * 1e6:.1f} us",
            f"{other['seconds'] * 1e6:.1f} us by cuBLAS in bfloat16",
        )


def _teraflops(products: Iterable[Record]) -> str:
    return _range(map(gemm_tables.teraflops, products), ".0f")


def _times(own: Iterable[Record], other: Iterable[Record]) -> str:
    ratios = (b["seconds"] / a["seconds"] for a, b in zip(own, other, strict=True))
    return _range(ratios, ".2f")


def _range(values: Iterable[float], form: str) -> str:
    """The lowest and the highest."""
    ordered = sorted(values)
    low, high = format(ordered[0], form), format(ordered[-1], form)
    return low if low == high else f"{low} to {high}"
