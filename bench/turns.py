"""bench/turns.py: calls of layers by two builds of mxkern that take turns, a few calls each.

usage: python -m bench.turns BEFORE AFTER [--rounds N] [--out FILE]

BEFORE and AFTER are folders with a package mxkern each, as bench.pairs takes them. Both stay loaded
in a process of their own, so that a busy moment of the machine falls on both: what counts is the
median of the ratios of a call's two times in a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class Build:
    """A process that measures a call when it is told to."""

    def __init__(self, package: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.layer_calls", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
        )
        self.functions: dict[str, int] = json.loads(self._read())

    def microseconds(self, call: str) -> float:
        """Of a call, by a few of them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{call}\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate("")

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a build's process has ended; its error is above")
        return line


def compared(before: Build, after: Build, rounds: int) -> list[dict[str, Any]]:
    """A record a call that both builds have."""
    calls = [call for call in before.functions if call in after.functions]
    times: dict[str, list[tuple[float, float]]] = {call: [] for call in calls}
    for _ in range(rounds):
        for call in calls:
            times[call].append((before.microseconds(call), after.microseconds(call)))
    return [
        {
            "call": call,
            "before_microseconds": statistics.median(first for first, _ in pairs),
            "after_microseconds": statistics.median(second for _, second in pairs),
            "ratio": statistics.median(second / first for first, second in pairs),
            "before_functions": before.functions[call],
            "after_functions": after.functions[call],
        }
        for call, pairs in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="times of layers before a change and after it")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    before, after = Build(arguments.before.resolve()), Build(arguments.after.resolve())
    records = compared(before, after, arguments.rounds)
    before.close()
    after.close()
    for record in records:
        print(
            f"{record['before_microseconds']:8.1f} {record['after_microseconds']:8.1f} us "
            f"{record['ratio']:6.2f} {record['before_functions']:5} {record['after_functions']:5} "
            f"functions  {record['call']}"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps({"pairs": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
