# bench/machine.py: on what a result was measured.
from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import mxkern

PACKAGES = ("numpy", "ml_dtypes", "torch", "torchao", "torchmx")
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "avx512_fp16")
# What hypervisors call any model of a vendor.
HIDDEN_MODELS = ("Intel Xeon Processor", "AMD EPYC Processor", "AMD EPYC")


def describe() -> dict[str, Any]:
    """The machine, the versions and the commit."""
    info = mxkern.info()
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    flags = re.search(r"^flags\s*: (.*)$", cpuinfo, re.MULTILINE)
    present = set(flags[1].split()) if flags else set()
    return {
        "cpu": cpu_model(cpuinfo),
        "cores": len(_usable_cores()),
        "cpu_flags": [flag for flag in CPU_FLAGS if flag in present],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mxkern": mxkern.__version__,
        "build": info.build,
        "instruction_set": info.instruction_set,
        "gemm_unit": info.gemm_unit,
        "threads": info.threads,
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def driver_version() -> str:
    """Of the GPU's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip().splitlines()[0] if found.stdout.strip() else "unknown"


def cpu_model(cpuinfo: str) -> str:
    """The model's name; hypervisors that hide it leave family and model numbers."""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", cpuinfo, re.MULTILINE))
    name = fields.get("model name") or platform.processor() or platform.machine()
    name = re.sub(r"\((R|TM)\)|CPU|@.*", "", name)
    if " ".join(name.split()) in HIDDEN_MODELS:
        name += f" family {fields.get('cpu family')} model {fields.get('model')}"
    return " ".join(name.split())


def slug(name: str) -> str:
    """A name for a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _usable_cores() -> set[int]:
    return os.sched_getaffinity(0) if sys.platform == "linux" else set(range(os.cpu_count() or 1))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """Of the sources; MXKERN_COMMIT says it where they are a copy without their history."""
    if given := os.environ.get("MXKERN_COMMIT"):
        return given

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
