# bench/compare/rival.py: running the files of the rivals, each in a process of its own.
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

RIVALS = Path(__file__).resolve().parents[2] / ".cache/rivals"
# Each has its folder of packages: TorchMX needs an older torchao. PyTorch comes from the
# environment.
PACKAGES = {
    "torchao": ("torchao==0.18.0",),
    "torchmx": ("torchmx==0.1.0", "torchao==0.6.1"),
    "pychop": ("pychop==0.6.2",),
    "gfloat": ("gfloat==0.5.2", "array-api-compat==1.16.0"),
    "humming": ("humming-kernels==0.1.19",),  # for GPUs: bench/cuda/few_token_rivals.py
}
MODULES = (
    "bench.compare.quantize.numpy_ml_dtypes",
    "bench.compare.quantize.torchao",
    "bench.compare.quantize.torchmx",
    "bench.compare.fake_quantize.torchao",
    "bench.compare.fake_quantize.torchmx",
    "bench.compare.fake_quantize.pychop",
    "bench.compare.gemm.torch",
    "bench.compare.gemm.torchmx",
    "bench.compare.custom.pychop",
    "bench.compare.custom.gfloat",
    "bench.compare.custom.torch",
)
SECONDS = 3.0  # of one comparison
ROUNDS = 3


def run() -> Iterator[dict[str, Any]]:
    """The records of every rival, or one record that says why there are none."""
    for module in MODULES:
        name = module.rsplit(".", 1)[1]
        environment = dict(os.environ)
        if name in PACKAGES:
            paths = [str(RIVALS / name), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        finished = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", module],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        for line in finished.stdout.splitlines():
            if line.startswith("{"):
                yield json.loads(line)
        if finished.returncode != 0:
            reason = finished.stderr.strip().splitlines()[-1:] or ["no output"]
            yield {"rival": module.removeprefix("bench.compare."), "failed": reason[0]}


def report(records: Iterable[dict[str, Any]]) -> None:
    """Prints records one a line: what a rival's file does when it is run."""
    for record in records:
        print(json.dumps(record), flush=True)


def record(
    operation: str,
    rival: str,
    scheme: str,
    shape: tuple[int, ...],
    dtype: str,
    times: list[float],
) -> dict[str, Any]:
    """times: the rival's seconds, then mxkern's."""
    return {
        "operation": operation,
        "rival": rival,
        "scheme": scheme,
        "shape": list(shape),
        "dtype": dtype,
        "seconds": times[0],
        "mxkern_seconds": times[1],
        "ratio": times[0] / times[1],
    }


def install() -> None:
    """Fills the folders of the rivals; PyTorch is not among what is installed."""
    for name, packages in PACKAGES.items():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
            + ["--target", str(RIVALS / name), *packages],
            check=True,
        )


if __name__ == "__main__":
    install()
