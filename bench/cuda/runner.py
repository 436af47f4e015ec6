# bench/cuda/runner.py: measures on this GPU, writes bench/results; python -m bench.cuda.runner.
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from bench import machine
from bench.cuda import few_tokens, gemm, gemm_errors, host, quantize, rivals, tables
from bench.runner import RESULTS

PARTS: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
    "cuda_quantize": quantize.run,
    "cuda_curve": quantize.curve,
    "cuda_rivals": rivals.run,
    "cuda_gemm": gemm.run,
    "cuda_gemm_errors": gemm_errors.run,
    "cuda_few_tokens": few_tokens.run,
    "cuda_token_curve": few_tokens.curve,
    "cuda_host": host.run,
}


def main() -> None:
    """Runs the chosen parts; parts that are not chosen keep what the file holds."""
    parser = argparse.ArgumentParser(prog="python -m bench.cuda.runner", description=main.__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="the result file; by default named for the GPU")
    options = parser.parse_args()
    unknown = set(options.parts) - PARTS.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; expected {', '.join(PARTS)}")

    name = torch.cuda.get_device_name()
    path = options.out or RESULTS / f"gpu-{machine.slug(name)}.json"
    results = json.loads(path.read_text()) if path.exists() and options.parts else {}
    results["machine"] = {
        **machine.describe(),
        "gpu": name,
        "cuda": torch.version.cuda,
        "driver": machine.driver_version(),
    }
    for part in options.parts or PARTS:
        started = time.perf_counter()
        results[part] = list(PARTS[part]())
        print(f"{part}: {len(results[part])} records, {time.perf_counter() - started:.0f} s")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1, default=float) + "\n")
    print(tables.all_tables(results))
    print(f"wrote {path}; python -m bench.report puts it into the documentation")


if __name__ == "__main__":
    main()
