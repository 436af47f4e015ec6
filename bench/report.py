# bench/report.py: the tables of the documentation, out of bench/results; python -m bench.report.
from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import tables
from bench.cuda import gemm_plot
from bench.cuda import tables as cuda_tables

ROOT = Path(__file__).parent.parent
BEGIN = "<!-- begin: python -m bench.report writes this -->"
END = "<!-- end: python -m bench.report writes this -->"


def main(arguments: Sequence[str]) -> None:
    """Fills docs/performance/README.md and README.md from all results, and draws the pictures."""
    paths = [Path(argument) for argument in arguments]
    paths = paths or sorted((ROOT / "bench" / "results").glob("*.json"))
    if not paths:
        sys.exit("bench.report: no results; run python -m bench.runner first")
    results = [json.loads(path.read_text()) for path in paths]
    fill(
        ROOT / "docs" / "performance" / "README.md",
        "\n\n".join(_tables(result) for result in results),
    )
    summaries = [_summary(result) for result in _shown(results)]
    if summaries:
        fill(ROOT / "README.md", "\n\n".join(summaries))
    for result in results:
        if "cuda_token_curve" in result:
            gemm_plot.draw(result, ROOT / "docs" / "performance")


def _shown(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the README summarizes: the CPU that was measured last, and all GPUs."""
    measured = [result for result in results if "cuda_counters" not in result]
    gpus = [result for result in measured if "gpu" in result["machine"]]
    cpus = [result for result in measured if "gpu" not in result["machine"]]
    return sorted(cpus, key=lambda result: result["machine"]["date"])[-1:] + gpus


def _summary(result: dict[str, Any]) -> str:
    on_gpu = "gpu" in result["machine"]
    return cuda_tables.summary(result) if on_gpu else tables.summary(result)


def _tables(result: dict[str, Any]) -> str:
    if "cuda_counters" in result:
        return cuda_tables.counters(result)
    on_gpu = "gpu" in result["machine"]
    return cuda_tables.all_tables(result) if on_gpu else tables.all_tables(result)


def fill(path: Path, text: str) -> None:
    """Replaces what stands between the two marks."""
    content = path.read_text()
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"bench.report: {path} lacks the marks {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
