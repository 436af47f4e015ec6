# bench/cuda/gemm_tables.py: products on a GPU as Markdown, the goal beside each figure.
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.cuda import gemm_plot
from bench.markdown import table

Record = dict[str, Any]
BF16, ROWWISE = "cuBLAS bfloat16", "_scaled_mm rowwise"
LLAMA_VARIANTS = {
    "folded: core": "folded core",
    "folded: activations in the call": "activations folded in the call, goal 1.6",
    "folded: both in the call": "both, goal 1.5",
    "from bfloat16: quantize, fold, multiply": "from bfloat16, goal 1.45",
    "exact: both in the call": "exact, both in the call, goal 0.95",
    "exact: weights ahead": "exact, weights ahead, goal 1",
}


def sections(result: Record) -> list[str]:
    """All that was measured of products."""
    products = result.get("cuda_gemm", [])
    return [
        *_squares([record for record in products if "tokens" not in record["name"]]),
        _layers([record for record in products if "tokens" in record["name"]]),
        _errors(result.get("cuda_gemm_errors", [])),
        _few_tokens(result.get("cuda_few_tokens", [])),
        _few_token_rivals(result.get("cuda_few_token_rivals", [])),
        _curve(result),
        _grouped(result.get("cuda_grouped", [])),
        _grouped_columns(result.get("cuda_grouped_columns", [])),
    ]


def teraflops(record: Record) -> float:
    """How many 1e12 operations a second a product does."""
    m, n, k = record["shape"]
    return float(2 * m * n * k / record["seconds"] / 1e12)


def by_name(records: Iterable[Record]) -> dict[str, dict[str, Record]]:
    """Products by their name, then by the way they are computed."""
    names: dict[str, dict[str, Record]] = {}
    for record in records:
        names.setdefault(record["name"], {})[record["variant"]] = record
    return names


# How else products were measured, and what is said of it.
OTHER_LOADS = {
    "rested_seconds": "after a rest, of cuBLAS",
    "short_turn_seconds": "in turns of 1 ms, of cuBLAS",
}
HOW_UNDER_OWN_LOAD = (
    "Each way runs for 60 ms, until the clock has settled at what its power allows, and counts "
    "for the next 20 ms. Beside that: 10 ms after a rest of 0.1 s, of which the second half "
    "counts; and turns of 1 ms in random order, where all ways share one clock, whatever power "
    "each takes.\n\n"
)
HOW_IN_SHORT_TURNS = "In turns of 1 ms in random order, where all ways share one clock.\n\n"


def _times_as_fast(
    own: Record, other: Record, goal: float | None = None, key: str = "seconds"
) -> str:
    text = f"{other[key] / own[key]:.2f}"
    return text if goal is None else f"{text} ({goal:g})"


def _squares(records: list[Record]) -> Iterable[str]:
    others = {key: text for key, text in OTHER_LOADS.items() if records and key in records[0]}
    how = HOW_UNDER_OWN_LOAD if others else HOW_IN_SHORT_TURNS
    for name, variants in by_name(records).items():
        rows = []
        for variant, record in variants.items():
            goals = record["goals"]
            rows.append(
                [
                    variant,
                    f"{record['seconds'] * 1e6:.0f}",
                    f"{teraflops(record):.0f}",
                    *(
                        _times_as_fast(record, variants[rival], goals.get(rival))
                        for rival in (BF16, ROWWISE)
                    ),
                    *(_times_as_fast(record, variants[BF16], key=key) for key in others),
                    f"{record['error']:.1e}" if record["error"] else "",
                ]
            )
        headers = [
            "MXFP8 unless said otherwise",
            "us",
            "TFLOP/s",
            "of cuBLAS bfloat16 (goal)",
            "of rowwise FP8 (goal)",
            *others.values(),
            "error with bfloat16 rounding",
        ]
        yield f"## gemm to bfloat16, M x N x K = {name}\n\n{how}" + table(headers, rows)
        how = ""


def _layers(records: list[Record]) -> str:
    rows = []
    measured = {record["variant"] for record in records}
    columns = {name: title for name, title in LLAMA_VARIANTS.items() if name in measured}
    for name, variants in by_name(records).items():
        base = variants[BF16]
        shown = [variants[variant] for variant in columns]
        rows.append(
            [
                name,
                f"{teraflops(base):.0f}",
                f"{teraflops(variants[ROWWISE]):.0f}",
                *(f"{teraflops(r):.0f} ({base['seconds'] / r['seconds']:.2f})" for r in shown),
            ]
        )
    if not rows:
        return ""
    headers = ["layer", "cuBLAS bfloat16", "rowwise FP8", *columns.values()]
    return (
        "## gemm of MXFP8 in the layers of Llama, TFLOP/s (times cuBLAS bfloat16; goals are for "
        "2048 tokens and more)\n\n" + table(headers, rows)
    )


def _errors(records: list[Record]) -> str:
    if not records:
        return ""
    rows = [
        [
            record["data"],
            " x ".join(f"`{scheme}`" for scheme in record["pair"]),
            *(
                "" if record[name] is None else f"{record[name]:.1e}"
                for name in ("quantization", "folded", "exact", "auto, bfloat16")
            ),
            "folded" if record["auto_is_folded"] else "exact",
        ]
        for record in records
    ]
    headers = [
        "data, K = 8192",
        "operands",
        "quantization itself",
        "folded, goal 5e-4",
        "exact, goal 2e-5",
        "auto, bfloat16 output",
        "auto chose",
    ]
    return "## Error of gemm, relative L2\n\n" + table(headers, rows)


def _few_tokens(records: list[Record]) -> str:
    if not records:
        return ""
    tokens = sorted({record["tokens"] for record in records})
    parts = []
    for shape in dict.fromkeys(tuple(record["shape"]) for record in records):
        own = [record for record in records if tuple(record["shape"]) == shape]
        rows = []
        for scheme in dict.fromkeys(record["scheme"] for record in own):
            line = {record["tokens"]: record for record in own if record["scheme"] == scheme}
            rows.append([f"`{scheme}`", *(_microseconds(line[m]) for m in tokens)])
        headers = [f"weights [{shape[0]} x {shape[1]}], us (goal)", *(f"M = {m}" for m in tokens)]
        parts.append(table(headers, rows))
    settled = ", which begin after 60 ms of the same" if "settle_seconds" in records[0] else ""
    return (
        "## gemm of few tokens: bfloat16 activations, weights reordered ahead and out of the "
        "cache; `bfloat16` is cuBLAS\n\n"
        f"Medians of 15 rounds of 4 ms without a pause{settled}: the "
        "device may come to its limit of power and lower its clock. Where there are two figures, "
        f"the second is of a device that rests for 0.1 s between rounds of 10 ms.{_goals(records)}"
        "\n\n" + "\n\n".join(parts)
    )


def _goals(records: list[Record]) -> str:
    """Which of them are met: after a rest, where that was measured, and without a pause."""
    wanted = [record for record in records if record["goal_seconds"]]
    if not any(record.get("rested_seconds") for record in wanted):
        return ""
    rested = [r for r in wanted if (r.get("rested_seconds") or r["seconds"]) > r["goal_seconds"]]
    always = [record for record in wanted if record["seconds"] > record["goal_seconds"]]
    return (
        f" Of {len(wanted)} goals {len(wanted) - len(rested)} are met after a rest"
        f"{_but_for(rested)}, {len(wanted) - len(always)} without a pause{_but_for(always)}."
    )


def _but_for(records: list[Record]) -> str:
    if not records:
        return ""
    names = (
        f"`{r['scheme']}` [{r['shape'][0]} x {r['shape'][1]}] M = {r['tokens']}" for r in records
    )
    return f", all but {', '.join(names)}"


def _few_token_rivals(records: list[Record]) -> str:
    measured = [record for record in records if "failed" not in record]
    if not records:
        return ""
    tokens = sorted({record["tokens"] for record in measured})
    rows = []
    for shape, scheme in dict.fromkeys((tuple(r["shape"]), r["scheme"]) for r in measured):
        own = [r for r in measured if tuple(r["shape"]) == shape and r["scheme"] == scheme]
        line = {record["tokens"]: record for record in own}
        rows.append(
            [f"`{scheme}` [{shape[0]} x {shape[1]}]", *(_both(line.get(m)) for m in tokens)]
        )
    text = ""
    if measured:
        worst = max(record["rival_error"] for record in measured)
        own_worst = max(record["error"] for record in measured)
        text = (
            f"## gemm of few tokens beside {measured[0]['rival']}\n\nIts time / mxkern's in us, "
            "and how many times as fast mxkern is: bfloat16 activations and outputs, the same "
            "codes and scales, weights out of the cache, both kernels with their own choice of "
            f"tiles. Largest error: {worst:.1e} and {own_worst:.1e}.\n\n"
        )
        text += table(["weights", *(f"M = {m}" for m in tokens)], rows)
    return text + not_measured(records)


def _both(record: Record | None) -> str:
    if record is None:
        return ""
    theirs, ours = record["rival_seconds"], record["seconds"]
    return f"{theirs * 1e6:.1f} / {ours * 1e6:.1f} ({theirs / ours:.2f})"


def _grouped(records: list[Record]) -> str:
    if not records:
        return ""
    return (
        "## grouped_gemm: rows sorted by expert, weights made ready ahead\n\n"
        "us, and how many times as fast as `torch._grouped_mm` of bfloat16 weights, the first row "
        "of each table. Rows are bfloat16, unless it says so: scaled ones are "
        "`torch._scaled_grouped_mm`'s, folded ones of MXFP8 E4M3. Calls take turns with eight "
        "routings; medians of 15 rounds of 4 ms without a pause, which begin after 60 ms of the "
        "same.\n\n" + _tables_of_experts(records)
    )


def _grouped_columns(records: list[Record]) -> str:
    if not records:
        return ""
    return (
        "## grouped_gemm: columns sorted by expert, the gradients of their weights\n\n"
        "us, and how many times as fast as `torch._grouped_mm` of bfloat16 columns, the first row "
        "of each table. Tokens were quantized along the columns, and each expert's are padded to "
        "32; outputs are bfloat16. Calls take turns as above.\n\n" + _tables_of_experts(records)
    )


def _tables_of_experts(records: list[Record]) -> str:
    tokens = sorted({record["tokens"] for record in records})
    parts = []
    for shape in dict.fromkeys(tuple(record["shape"]) for record in records):
        own = [record for record in records if tuple(record["shape"]) == shape]
        base = {r["tokens"]: r["seconds"] for r in own if r["scheme"] == "bfloat16"}
        rows = []
        for name in dict.fromkeys(map(_name_of_grouped, own)):
            line = {r["tokens"]: r["seconds"] for r in own if _name_of_grouped(r) == name}
            share = name != "`bfloat16`"
            cells = [
                f"{line[m] * 1e6:.0f}" + (f" ({base[m] / line[m]:.2f})" if share else "")
                for m in tokens
            ]
            rows.append([name, *cells])
        experts, n, k = shape
        title = f"{experts} experts, {own[0]['experts_of_a_token']} a token, [{n} x {k}]"
        headers = [title, *(f"{m} tokens" if m > 1 else "1 token" for m in tokens)]
        parts.append(table(headers, rows))
    return "\n\n".join(parts)


def _name_of_grouped(record: Record) -> str:
    way = record.get("way")
    return f"`{record['scheme']}`" + (f", {way}" if way else "")


def not_measured(records: Iterable[Record]) -> str:
    """What could not be run, and what it said."""
    failed = [
        f"- {record['rival']}: {record['failed']}" for record in records if "failed" in record
    ]
    return "\n\nNot measured:\n\n" + "\n".join(failed) if failed else ""


def _microseconds(record: Record) -> str:
    goal, rested = record["goal_seconds"], record.get("rested_seconds")
    text = f"{record['seconds'] * 1e6:.1f}" + (f", {rested * 1e6:.1f}" if rested else "")
    return text + (f" ({goal * 1e6:g})" if goal else "")


def _curve(result: Record) -> str:
    if not result.get("cuda_token_curve"):
        return ""
    return (
        "## From one token to many\n\n"
        "![Time of a product with 8192 x 8192 weights over the number of tokens]"
        f"({gemm_plot.file_name(result)})"
    )
