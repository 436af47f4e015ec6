# bench/runner.py: measures everything and writes bench/results; python -m bench.runner.
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench import dequantize, gemm, machine, memory, quantize, small_calls
from bench.compare import rival

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
    "quantize": quantize.run,
    "dequantize": dequantize.run,
    "gemm": gemm.run,
    "gemm_memory": memory.run,
    "small_calls": small_calls.run,
    "import": lambda: [small_calls.import_time()],
    "rivals": rival.run,
}


def measure(
    module: str,
    parts: dict[str, Callable[[], Iterable[dict[str, Any]]]],
    device: str,
    described: dict[str, Any],
) -> dict[str, Any]:
    """Runs the parts chosen on the command line; others keep what the device's file holds."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=measure.__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--out", type=Path, help="the result file; by default named for the device")
    options = parser.parse_args()
    unknown = set(options.parts) - parts.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; expected {', '.join(parts)}")

    path = options.out or RESULTS / f"{machine.slug(device)}.json"
    results = json.loads(path.read_text()) if path.exists() and options.parts else {}
    results["machine"] = described
    for name in options.parts or parts:
        started = time.perf_counter()
        print(f"{name} ...", flush=True)
        results[name] = list(parts[name]())
        print(f"{name}: {len(results[name])} records, {time.perf_counter() - started:.0f} s")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1, default=float) + "\n")
    print(f"wrote {path}; python -m bench.report puts it into the documentation")
    return results


if __name__ == "__main__":
    on_cpu = machine.describe()
    measure("bench.runner", PARTS, f"cpu-{on_cpu['cpu']}", on_cpu)
