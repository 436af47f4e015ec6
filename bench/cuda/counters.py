# bench/cuda/counters.py: what the hardware counts while the main kernels run, by Nsight Compute;
# python -m bench.cuda.counters writes bench/results/ncu-<gpu>.json.
from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import torch

import mxkern
from bench import machine
from bench.cuda.cases import SHAPES, cases
from bench.runner import RESULTS

# What is kept of a kernel, the counter that it comes from, and what a unit of that is.
METRICS = {
    "seconds": ("gpu__time_duration.sum", 1e-9),
    "bytes": ("dram__bytes.sum", 1.0),
    "dram": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "issue": ("sm__inst_issued.avg.pct_of_peak_sustained_active", 0.01),
    "instructions": ("smsp__inst_executed.sum", 32.0),
    "alu": ("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", 0.01),
    "fma": ("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", 0.01),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", 0.01),
    "registers": ("launch__registers_per_thread", 1.0),
}  # fmt: skip
SCHEMES = ("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "nvfp4")
MARK = "spin_kernel"  # of torch.cuda._sleep, before every call
PRODUCTS = (("mxfp8_e4m3", 4096), ("nvfp4", 4096), ("mxfp8_e4m3", 16), ("nvfp4", 16))


def main() -> None:
    """Runs this module again under ncu, which needs the right to read counters."""
    parser = argparse.ArgumentParser(prog="python -m bench.cuda.counters", description=main.__doc__)
    parser.add_argument("--calls", action="store_true", help="only make the calls that are counted")
    parser.add_argument("--out", type=Path, help="the result file; by default named for the GPU")
    options = parser.parse_args()
    if options.calls:
        return _make_calls()
    names = [name for name, _ in _names()]
    name = torch.cuda.get_device_name()
    records = list(_records(_profile(), names))
    path = options.out or RESULTS / f"ncu-{machine.slug(name)}.json"
    facts = {**machine.describe(), "gpu": name}
    path.write_text(json.dumps({"machine": facts, "cuda_counters": records}, indent=1) + "\n")
    print(f"wrote {path}; python -m bench.report puts it into the documentation")


def _names() -> Iterator[tuple[tuple[str, str], Callable[[], Callable[[], object]]]]:
    """What is counted: (scheme, operation), and what makes the call."""
    shape = SHAPES[0]
    for case in cases():
        if case.scheme in (*SCHEMES, ""):

            def make(case: Any = case) -> Callable[[], object]:
                x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
                call: Callable[[], object] = case.make(x)[0]
                return call

            yield (case.scheme, case.operation), make
    for scheme, tokens in PRODUCTS:

        def multiply(scheme: str = scheme, tokens: int = tokens) -> Callable[[], object]:
            x, w = (torch.randn(n, 4096, device="cuda").bfloat16() for n in (tokens, 4096))
            weights = mxkern.quantize(w, scheme)
            if tokens <= 256:
                weights = mxkern.prepare_operand(weights, form="few_tokens")
                return lambda: mxkern.gemm(x, weights)
            operands = [mxkern.prepare_operand(q) for q in (mxkern.quantize(x, scheme), weights)]
            return lambda: mxkern.gemm(*operands)

        yield (scheme, f"product of {tokens} tokens"), multiply


def _make_calls() -> None:
    for _, make in _names():
        call = make()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        torch.cuda._sleep(1)
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        del call
        torch.cuda.empty_cache()


def _profile() -> list[dict[str, str]]:
    """One row a kernel, in the order of their launches."""
    found = shutil.which("ncu") or next(iter(sorted(glob("/usr/local/cuda*/bin/ncu"))), None)
    if found is None:
        sys.exit("bench.cuda.counters: no ncu; it comes with CUDA as Nsight Compute")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        metrics = ",".join(metric for metric, _ in METRICS.values())
        command = [
            found, "--csv", "--page", "raw", "--print-units", "base", "--metrics", metrics,
            "--clock-control", "none", "--profile-from-start", "off", "--log-file", str(log),
            sys.executable, "-m", "bench.cuda.counters", "--calls",
        ]  # fmt: skip
        subprocess.run(command, check=True)
        lines = [line for line in log.read_text().splitlines() if line.startswith('"')]
    return list(csv.DictReader(lines))


def _records(rows: Sequence[dict[str, str]], names: Sequence[tuple[str, str]]) -> Iterator[Any]:
    """The kernels after the n-th mark belong to the n-th call."""
    call = -1
    for row in rows:
        kernel = row["Kernel Name"]
        if not kernel:
            continue  # the units
        if MARK in kernel:
            call += 1
            continue
        scheme, operation = names[call]
        values = {
            key: float(row[metric].replace(",", "")) * unit
            for key, (metric, unit) in METRICS.items()
        }
        name = kernel.split("(")[0].split("<")[0].split("::")[-1].removeprefix("void ")
        elements = 0 if operation.startswith("product") else SHAPES[0][0] * SHAPES[0][1]
        yield {
            "scheme": scheme,
            "operation": operation,
            "kernel": name,
            "elements": elements,
            **values,
        }
    if call + 1 != len(names):
        sys.exit(f"bench.cuda.counters: {len(names)} calls, but ncu saw {call + 1}")


if __name__ == "__main__":
    main()
