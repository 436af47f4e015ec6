# bench/report.py: the tables of the documentation, out of bench/results; python -m bench.report.
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench import machine, speed_table, tables
from bench.cuda import gemm_plot
from bench.cuda import tables as cuda_tables

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PAGES = ROOT / "docs" / "performance"
BEGIN = "<!-- begin: python -m bench.report writes this -->"
END = "<!-- end: python -m bench.report writes this -->"
WRITTEN = "<!-- python -m bench.report writes this page -->"

Record = dict[str, Any]


def main() -> None:
    """Writes a page for each machine, their list and README's table, and draws the pictures."""
    results = read()
    if not results:
        sys.exit("bench.report: no results; run python -m bench.runner first")
    for path, text in documents(results).items():
        path.write_text(text)
        print(f"wrote {path}")
    for result in results.values():
        if "cuda_token_curve" in result:
            gemm_plot.draw(result, PAGES)


def read() -> dict[Path, Record]:
    """All results, by their files."""
    return {path: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def documents(results: dict[Path, Record]) -> dict[Path, str]:
    """What the files of the documentation hold with these results."""
    machines: dict[str, list[Record]] = {}
    for result in results.values():
        machines.setdefault(_name(result), []).append(result)
    pages = {_page(own[0]): _whole_page(name, own) for name, own in machines.items()}
    links = "\n".join(f"- [{name}]({_page(own[0]).name})" for name, own in machines.items())
    shown = [
        (result, str(_page(result).relative_to(ROOT)), str(path.relative_to(ROOT)))
        for path, result in _shown(results)
    ]
    index, readme = PAGES / "README.md", ROOT / "README.md"
    filled = {index: _filled(index, links), readme: _filled(readme, speed_table.text(shown))}
    return pages | filled


def _name(result: Record) -> str:
    return str(result["machine"].get("gpu") or result["machine"]["cpu"])


def _page(result: Record) -> Path:
    return PAGES / f"{machine.slug(_name(result))}.md"


def _whole_page(name: str, results: list[Record]) -> str:
    """All tables of one machine."""
    index = "[All machines, and how they are measured](README.md)"
    text = "\n\n".join(_tables(result) for result in results)
    return f"{WRITTEN}\n# {name}\n\n{index}\n\n{text}\n"


def _shown(results: dict[Path, Record]) -> list[tuple[Path, Record]]:
    """What the README summarizes: the CPU that was measured last, and all GPUs."""
    measured = [item for item in results.items() if "cuda_counters" not in item[1]]
    gpus = [item for item in measured if "gpu" in item[1]["machine"]]
    cpus = [item for item in measured if "gpu" not in item[1]["machine"]]
    return sorted(cpus, key=lambda item: item[1]["machine"]["date"])[-1:] + gpus


def _tables(result: Record) -> str:
    if "cuda_counters" in result:
        return cuda_tables.counters(result)
    on_gpu = "gpu" in result["machine"]
    return cuda_tables.all_tables(result) if on_gpu else tables.all_tables(result)


def _filled(path: Path, text: str) -> str:
    """The file with this text between the two marks."""
    content = path.read_text()
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"bench.report: {path} lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


if __name__ == "__main__":
    main()
