# bench/cuda/tables.py: a GPU's result as Markdown, the goal beside each figure.
from __future__ import annotations

from typing import Any

from bench import tables
from bench.cuda import gemm_tables, jax_tables
from bench.cuda.gemm_tables import not_measured
from bench.markdown import table

Record = dict[str, Any]

METHOD = (
    "`tools/gpu.sh bench` measures: random normal data; a case gives the CPU's bytes before it is "
    "timed; calls take turns in a CUDA graph through enough buffers that the L2 is cold; medians. "
    "They follow one another without a pause, and mxkern's kernels start while the last thread "
    "blocks of the one ahead are at work, which a copy does not. "
    "A share is the bytes read and written over the time, divided by the same for a "
    "device-to-device copy of the input. Products, other libraries' too, are compared with double "
    "precision before they are timed; the ways to compute one take turns. Those of many rows "
    "multiply the same operands each time, of which the L2 keeps up to 60 MB for all ways alike; "
    "those of few tokens go through 200 MB of weights. "
    "The host's times are of calls one after the other."
)


def all_tables(result: Record) -> str:
    """Everything that was measured on one GPU."""
    parts = [_machine(result["machine"])]
    parts += [section(result) for section in (_quantize, _custom, _types, _curve, _rivals)]
    parts += [*gemm_tables.sections(result), _host(result), jax_tables.section(result)]
    return "\n\n".join(part for part in parts if part)


def counters(result: Record) -> str:
    """What the hardware counted: bench/cuda/counters.py."""
    rows = [
        [
            f"`{record['scheme']}`" if record["scheme"] else "",
            record["operation"],
            f"`{record['kernel']}`",
            f"{record['seconds'] * 1e6:.0f}",
            f"{record['bytes'] / 1e6:.0f}",
            *(f"{record[key] * 100:.0f}" for key in ("dram", "issue", "alu", "fma", "occupancy")),
            f"{record['instructions'] / record['elements']:.1f}" if record["elements"] else "",
            f"{record['registers']:.0f}",
        ]
        for record in result["cuda_counters"]
    ]
    headers = [
        "scheme", "operation", "kernel", "us", "MB", "DRAM %", "issue slots %", "ALU %", "FMA %",
        "warps %", "instructions", "registers",
    ]  # fmt: skip
    facts = result["machine"]
    return (
        f"## What the hardware counts: {facts['gpu']}, commit {facts['commit']}, {facts['date']}"
        f"\n\n`python -m bench.cuda.counters` runs every call once under Nsight Compute, caches "
        f"empty, clocks as they are: times are longer than those above. bfloat16 [16384 x 8192], "
        f"products with weights [4096 x 4096]. MB went to and from DRAM; shares are of what the "
        f"hardware can do at most; instructions are those of a thread for an element, uniform "
        f"ones included.\n\n" + table(headers, rows)
    )


def _machine(facts: Record) -> str:
    return (
        f"CUDA {facts['cuda']}, driver {facts['driver']}, "
        f"mxkern {facts['mxkern']}, commit {facts['commit']}, {facts['date']}, PyTorch "
        f"{facts['packages'].get('torch', 'missing')}. {METHOD}{tables.caution(facts)}"
    )


def share(record: Record) -> float:
    """Bytes over time, divided by the same for a copy."""
    return float(record["bytes"] / record["seconds"] / record["copy_bytes_per_second"])


def _quantize(result: Record) -> str:
    return _by_shape(
        result.get("cuda_quantize", []), "bfloat16 {size}, swizzled scales unless it says so"
    )


def _custom(result: Record) -> str:
    return _by_shape(
        result.get("cuda_quantize_custom", []),
        "Schemes of the user's own, bfloat16 {size}, row-major scales, own amaxes",
    )


def _by_shape(records: list[Record], title: str) -> str:
    sections = []
    for shape in dict.fromkeys(tuple(record["shape"]) for record in records):
        own = [record for record in records if tuple(record["shape"]) == shape]
        copy = own[0]["copy_bytes_per_second"] / 1e12
        rows = [
            [
                f"`{record['scheme']}`" if record["scheme"] else "",
                record["operation"],
                f"{record['seconds'] * 1e6:.1f}",
                f"{record['bytes'] / record['seconds'] / 1e12:.2f}",
                f"{share(record):.2f}",
                f"{record['goal']:.2f}" if record["goal"] else "",
            ]
            for record in own
        ]
        headers = ["scheme", "operation", "us", "TB/s", "of copy", "goal"]
        size = " x ".join(str(n) for n in shape)
        sections.append(
            f"## {title.format(size=f'[{size}]')}; a copy of it moves {copy:.2f} TB/s\n\n"
            + table(headers, rows)
        )
    return "\n\n".join(sections)


def _types(result: Record) -> str:
    records = result.get("cuda_quantize_types", [])
    if not records:
        return ""
    dtypes = list(dict.fromkeys(record["dtype"] for record in records))
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for record in records:
        own = lines.setdefault((record["scheme"], record["operation"]), {})
        own[record["dtype"]] = f"{record['seconds'] * 1e6:.0f} ({share(record):.2f})"
    rows = [
        [f"`{key[0]}`", key[1], *(own[dtype] for dtype in dtypes)] for key, own in lines.items()
    ]
    size = " x ".join(str(n) for n in records[0]["shape"])
    return (
        f"## Types of elements, [{size}], swizzled scales, NVFP4 with a given amax: us (of copy)"
        "\n\n" + table(["scheme", "operation", *dtypes], rows)
    )


def _curve(result: Record) -> str:
    records = result.get("cuda_curve", [])
    if not records:
        return ""
    smallest = records[0]["smallest_kernel_seconds"]
    rows = []
    for record in records:
        floor = smallest + record["bytes"] / record["copy_bytes_per_second"]
        rows.append(
            [
                f"`{record['scheme']}`",
                _size(record["shape"][0] * record["shape"][1] * 2),
                f"{record['seconds'] * 1e6:.1f}",
                f"{record['bytes'] / record['seconds'] / 1e12:.2f}",
                f"{share(record):.2f}",
                f"{record['seconds'] / floor:.2f}",
            ]
        )
    headers = ["scheme", "input", "us", "TB/s", "of copy", "of smallest kernel + bytes"]
    return (
        f"## From small to large: along rows, bfloat16, the smallest kernel takes "
        f"{smallest * 1e6:.1f} us; goal up to 4 MB: 1.5 times it and the bytes\n\n"
        + table(headers, rows)
    )


def _size(count: int) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GB"


def _rivals(result: Record) -> str:
    records = result.get("cuda_rivals", [])
    rows = [
        [
            record["rival"],
            f"`{record['scheme']}`",
            record.get("scale_rule") or "",
            "x".join(map(str, record["shape"])),
            f"{record['rival_seconds'] * 1e6:.1f}",
            f"{record['seconds'] * 1e6:.1f}",
            f"{record['rival_seconds'] / record['seconds']:.2f}",
            f"{record['different']:.1e}" if record["different"] else "none",
        ]
        for record in records
        if "failed" not in record
    ]
    if not records:
        return ""
    headers = ["rival", "scheme", "rule", "shape", "us", "mxkern, us", "times as fast"]
    headers.append("bytes that differ")
    text = "## Quantization beside others: along rows, row-major scales, NVFP4 with a given amax; "
    text += "to_mx and to_dtype beside fake_quantize"
    text += "\n\n" + table(headers, rows) if rows else ""
    return text + not_measured(records)


def _host(result: Record) -> str:
    rows = [
        [
            record["call"],
            f"{record['seconds'] * 1e6:.1f}",
            f"{record['goal_seconds'] * 1e6:.0f}" if record["goal_seconds"] else "",
        ]
        for record in result.get("cuda_host", [])
    ]
    if not rows:
        return ""
    return "## Time on the host\n\n" + table(["call, bfloat16 [256 x 512]", "us", "goal"], rows)
