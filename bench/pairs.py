"""bench/pairs.py: calls of two builds of mxkern, before a change and after it, in turns.

usage: python -m bench.pairs BEFORE AFTER [--part PART] [--rounds N] [--out FILE]

PART is small_calls, cuda_host or layer_calls.

BEFORE and AFTER are folders with a package mxkern each, as build/gpu/python or the target of
`pip install --target`. A round runs the part in a process for each of them; a call's time is the
shortest of all rounds. The part is that of this checkout, and calls what both packages have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "small_calls": ("bench.small_calls", "microseconds", 1.0),
    "cuda_host": ("bench.cuda.host", "seconds", 1e6),
    "layer_calls": ("bench.layer_calls", "microseconds", 1.0),
}
_PROGRAM = "import importlib, json, sys; part = importlib.import_module(sys.argv[1]); " + (
    "print(json.dumps(list(part.run())))"
)


def times_of(package: Path, part: str) -> dict[str, float]:
    """Microseconds of each call, with the package in a folder."""
    module, field, factor = PARTS[part]
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", _PROGRAM, module]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    records = json.loads(done.stdout.splitlines()[-1])
    return {record["call"]: record[field] * factor for record in records}


def compared(before: Path, after: Path, part: str, rounds: int) -> list[dict[str, Any]]:
    """A record a call, with the shortest time of each package."""
    shortest: list[dict[str, float]] = [{}, {}]
    for _ in range(rounds):
        for times, package in zip(shortest, (before, after), strict=True):
            for call, time in times_of(package, part).items():
                times[call] = min(time, times.get(call, time))
    return [
        {
            "call": call,
            "before_microseconds": time,
            "after_microseconds": shortest[1][call],
            "ratio": shortest[1][call] / time,
        }
        for call, time in shortest[0].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="times of calls before a change and after it")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--part", choices=PARTS, default="small_calls")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    before, after = arguments.before.resolve(), arguments.after.resolve()
    records = compared(before, after, arguments.part, arguments.rounds)
    for record in records:
        print(
            f"{record['before_microseconds']:8.2f} {record['after_microseconds']:8.2f} us "
            f"{record['ratio']:6.2f}  {record['call']}"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps({"pairs": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
