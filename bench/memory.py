# bench/memory.py: how much memory a gemm takes while it runs, beside what its operands take.
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIZE = 4096
SCHEMES = ("mxfp8_e4m3", "mxfp4", "nvfp4")


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme, each measured in a process of its own; Linux only."""
    if not Path("/proc/self/clear_refs").exists():
        return
    for scheme in SCHEMES:
        finished = subprocess.run(
            [sys.executable, "-m", "bench.memory", scheme],
            capture_output=True,
            text=True,
            check=True,
        )
        yield json.loads(finished.stdout)


def _measure(scheme: str) -> dict[str, Any]:
    import numpy as np

    import mxkern
    from bench.inputs import random_values

    a = mxkern.quantize(random_values((SIZE, SIZE), seed=1), scheme)
    b = mxkern.quantize(random_values((SIZE, SIZE), seed=2), scheme)
    out = np.zeros((SIZE, SIZE), np.float32)
    out += 1  # zeros are not in memory before they are written
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status("VmRSS")
    mxkern.gemm(a, b, out=out)
    return {
        "scheme": scheme,
        "size": SIZE,
        "operand_bytes": a.nbytes + b.nbytes,
        "dequantized_float32_bytes": 2 * 4 * SIZE * SIZE,
        "growth_bytes": _status("VmHWM") - before,
    }


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1])))
