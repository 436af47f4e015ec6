# bench/tables.py: a result as Markdown, the goal beside each figure.
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.markdown import table

Record = dict[str, Any]


def all_tables(result: Record) -> str:
    """Everything that was measured on one machine."""
    parts = [machine(result["machine"])]
    parts += [
        section(result)
        for section in (
            _quantize,
            _dequantize,
            _fake_quantize,
            _gemm,
            _few_rows,
            _weights,
            _memory,
            _small_calls,
            _rivals,
        )
    ]
    return "\n\n".join(part for part in parts if part)


def machine(facts: Record) -> str:
    """What the figures were measured on."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    return (
        f"{machine_line(facts)}. mxkern {facts['mxkern']} "
        f"({facts['build']}), commit {facts['commit']}. Python {facts['python']}, {packages}. "
        f"CPU flags: {', '.join(facts['cpu_flags'])}.{caution(facts)}"
    )


def caution(facts: Record) -> str:
    """What a reader must know before trusting the figures."""
    return f" {facts['caution']}" if "caution" in facts else ""


def machine_line(facts: Record) -> str:
    """Cores, instruction set, threads and the day."""
    return (
        f"{facts['cores']} cores of {facts['cpu']} ({facts['instruction_set']}, products by "
        f"{facts['gemm_unit']}), {facts['threads']} threads, {facts['date']}"
    )


def _weights(result: Record) -> str:
    """Products with prepared weights, with the goals that they have."""
    records = result.get("gemm_weights", [])
    if not records:
        return ""
    rows = []
    for record in records:
        rival = record.get("torch_seconds")
        rows.append(
            [
                f"`{record['scheme']}`",
                f"{record['rows']} {record['dtype']}",
                f"{1e3 * record['seconds']:.2f} ms",
                f"{record['read_share']:.2f}" if record["rows"] <= 4 else "",
                f"{record['unprepared_seconds'] / record['seconds']:.1f}x",
                "" if rival is None else f"{rival / record['seconds']:.1f}x",
            ]
        )
    headers = ["weights", "rows", "time", "of read speed", "of unprepared", "of PyTorch bfloat16"]
    text = "### gemm with prepared weights of 8192 x 8192, out of the caches\n\n"
    text += table(headers, rows)
    for record in result.get("gemm_experts", []):
        text += (
            f"\n\n`grouped_gemm` of {record['shape'][0]} rows by {record['used']} of "
            f"{record['experts']} experts of {record['shape'][1]} x {record['shape'][2]}, "
            f"`{record['scheme']}`: {1e3 * record['seconds']:.2f} ms, "
            f"{record['read_share']:.2f} of the speed at which memory is read."
        )
    return text


def _quantize(result: Record) -> str:
    kinds = dict.fromkeys(
        (record["direction"], record["scale_layout"]) for record in result.get("quantize", [])
    )
    tables = [
        f"## quantize: {direction}, {layout} scales\n\n"
        + _speeds(_rows(result, "quantize", direction=direction, scale_layout=layout))
        for direction, layout in kinds
    ]
    return "\n\n".join(tables)


def _dequantize(result: Record) -> str:
    kinds = dict.fromkeys(record["scale_layout"] for record in result.get("dequantize", []))
    tables = [
        f"## dequantize: {layout} scales\n\n"
        + _speeds(_rows(result, "dequantize", scale_layout=layout))
        for layout in kinds
    ]
    return "\n\n".join(tables)


def _fake_quantize(result: Record) -> str:
    records = result.get("fake_quantize", [])
    return "## fake_quantize\n\n" + _speeds(records) if records else ""


def _speeds(records: Sequence[Record]) -> str:
    """One row a scheme; a column each dtype and size: GB/s and the share of memcpy's."""
    columns = dict.fromkeys((record["dtype"], record["megabytes"]) for record in records)
    found = _by(records)
    rows = []
    for scheme in dict.fromkeys(record["scheme"] for record in records):
        cells = [found[scheme, dtype, size] for dtype, size in columns]
        rows.append(
            [
                f"`{scheme}`",
                "" if cells[0]["goal"] is None else f"{cells[0]['goal']:.2f}",
                *(f"{_gigabytes(cell)} ({cell['share']:.2f})" for cell in cells),
            ]
        )
    some = [next(r for r in records if (r["dtype"], r["megabytes"]) == c) for c in columns]
    for name, field in (
        ("memcpy, all threads", "memcpy_bytes_per_second"),
        ("memcpy, one thread", "memcpy_one_thread_bytes_per_second"),
    ):
        rows.append([name, "", *(f"{record[field] / 1e9:.1f}" for record in some)])
    headers = ["GB/s (share of memcpy)", "goal"]
    headers += [f"{dtype}, {size} MB" for dtype, size in columns]
    return table(headers, rows)


def _gemm(result: Record) -> str:
    records = result.get("gemm", [])
    if not records:
        return ""
    rows = [
        [
            f"`{record['left']}` x `{record['right']}`",
            f"{record['size']}³",
            f"{record['seconds'] * 1e3:.2f} ms",
            f"{record['flops_per_second'] / 1e9:.0f}",
            f"{record['numpy_seconds'] * 1e3:.2f} ms",
            f"{record['ratio']:.2f}",
            f"{record['goal']:.1f}",
        ]
        for record in records
    ]
    headers = ["operands", "M = N = K", "time", "GFLOP/s", "NumPy float32", "times as fast", "goal"]
    return "## gemm, float32 output\n\n" + table(headers, rows)


def _few_rows(result: Record) -> str:
    records = result.get("gemm_few_rows", [])
    if not records:
        return ""
    by_rows: dict[int, list[Record]] = {}
    for record in records:
        by_rows.setdefault(record["shape"][0], []).append(record)
    rows = [
        [
            f"`{scheme}`",
            *(
                f"{record['seconds'] * 1e3:.2f} ms ({record['ratio']:.2f})"
                for of_rows in by_rows.values()
                for record in of_rows
                if record["scheme"] == scheme
            ),
        ]
        for scheme in dict.fromkeys(record["scheme"] for record in records)
    ]
    numpy = [f"{of_rows[0]['numpy_seconds'] * 1e3:.2f} ms" for of_rows in by_rows.values()]
    _, n, k = records[0]["shape"]
    return (
        f"## gemm of a few float32 rows with weights [{n}, {k}], times as fast as NumPy's float32 "
        "in brackets\n\n"
        + table(
            ["weights", *(f"M = {count}" for count in by_rows)], [*rows, ["NumPy float32", *numpy]]
        )
    )


def _memory(result: Record) -> str:
    rows = [
        [
            f"`{record['scheme']}`",
            f"{record['size']}³",
            *(
                f"{record[field] / 2**20:.1f} MB"
                for field in ("operand_bytes", "dequantized_float32_bytes", "growth_bytes")
            ),
        ]
        for record in result.get("gemm_memory", [])
    ]
    headers = ["scheme", "M = N = K", "both operands", "as float32", "peak growth during gemm"]
    return "## Memory of gemm\n\n" + table(headers, rows) if rows else ""


def _small_calls(result: Record) -> str:
    rows = [
        [
            f"`{record['call']}`",
            f"{record['microseconds']:.2f}",
            f"{record['beyond_allocation_microseconds']:.2f}",
            f"{record['goal_microseconds']:.0f}" if record["goal_microseconds"] else "",
        ]
        for record in result.get("small_calls", [])
    ]
    if not rows:
        return ""
    headers = ["call, 32x32 float32", "us", "us beyond np.empty of the outputs", "goal"]
    text = "## Small calls\n\n" + table(headers, rows)
    for record in result.get("import", []):
        text += (
            f"\n\n`import mxkern`: {record['seconds']:.3f} s (goal {record['goal_seconds']:.2f} s)."
        )
    return text


def _rivals(result: Record) -> str:
    records = result.get("rivals", [])
    rows = [
        [
            record["rival"],
            record["operation"],
            f"`{record['scheme']}`",
            f"{'x'.join(map(str, record['shape']))} {record['dtype']}",
            f"{record['seconds'] * 1e3:.2f} ms",
            f"{record['mxkern_seconds'] * 1e3:.2f} ms",
            f"{record['ratio']:.1f}",
        ]
        for record in records
        if "failed" not in record
    ]
    if not records:
        return ""
    headers = ["rival", "operation", "scheme", "size", "rival's time", "mxkern's", "times as fast"]
    text = "## Beside other libraries\n\nResults were checked against each other first.\n\n"
    text += table(headers, rows)
    failed = [
        f"- {record['rival']}: {record['failed']}" for record in records if "failed" in record
    ]
    return text + ("\n\nNot measured:\n\n" + "\n".join(failed) if failed else "")


def _rows(result: Record, part: str, **wanted: str) -> list[Record]:
    return [
        record
        for record in result.get(part, [])
        if all(record[name] == value for name, value in wanted.items())
    ]


def _by(records: Iterable[Record]) -> dict[tuple[str, str, int], Record]:
    return {(r["scheme"], r["dtype"], r["megabytes"]): r for r in records}


def _gigabytes(record: Record) -> str:
    return f"{record['bytes'] / record['seconds'] / 1e9:.1f}"
