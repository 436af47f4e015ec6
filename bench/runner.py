# bench/runner.py: measures everything and writes bench/results; python -m bench.runner.
from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench import dequantize, fake_quantize, gemm, machine, memory, quantize, small_calls, weights
from bench.compare import rival

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
    "quantize": quantize.run,
    "dequantize": dequantize.run,
    "fake_quantize": fake_quantize.run,
    "gemm": gemm.run,
    "gemm_few_rows": gemm.run_few_rows,
    "gemm_weights": weights.run,
    "gemm_experts": weights.run_experts,
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
    parser.add_argument("--caution", help="what a reader of the result has to know")
    options = parser.parse_args()
    unknown = set(options.parts) - parts.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; expected {', '.join(parts)}")

    path = options.out or RESULTS / f"{machine.slug(device)}.json"
    stored = json.loads((path.exists() and path.read_text()) or "{}").get("machine")
    if options.parts and stored is not None:
        described = _beside(stored, described, options.caution)
    if options.caution:
        described = described | {"caution": options.caution}
    results: dict[str, Any] = {}
    failed = []
    if not options.parts:
        path.unlink(missing_ok=True)
    for name in options.parts or parts:
        started = time.perf_counter()
        print(f"{name} ...", flush=True)
        try:
            records = list(parts[name]())
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        print(f"{name}: {len(records)} records, {time.perf_counter() - started:.0f} s")
        results = _store(path, {"machine": described, name: records})
    if failed:
        sys.exit(f"{module}: failed: {', '.join(failed)}")
    print(f"wrote {path}; python -m bench.report puts it into the documentation")
    return results


def _beside(
    stored: dict[str, Any], described: dict[str, Any], caution: str | None
) -> dict[str, Any]:
    """What a file says of the machine once it has new parts beside those that it holds."""
    if stored.get("commit") != described.get("commit") and caution is None:
        sys.exit(
            f"the file holds figures of commit {stored.get('commit')}, and these would be of "
            f"{described.get('commit')}; measure all parts, write to another file with --out, or "
            "say with --caution which figures are of which commit"
        )
    return {"caution": stored["caution"], **described} if "caution" in stored else described


def _store(path: Path, records: dict[str, Any]) -> dict[str, Any]:
    """Adds records to a file, which another process may be doing too; returns all of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        results: dict[str, Any] = json.loads(file.read() or "{}") | records
        file.seek(0)
        file.truncate()
        file.write(json.dumps(results, indent=1, default=float) + "\n")
    return results


if __name__ == "__main__":
    on_cpu = machine.describe()
    measure("bench.runner", PARTS, f"cpu-{on_cpu['cpu']}", on_cpu)
