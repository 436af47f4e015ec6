"""tests/structure/sources.py: the files of the project, and the layer that each belongs to."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"

# Lowest first. A file belongs to the first folder that holds it.
LAYERS = {
    "include/mxkern/core": 0,
    "include/mxkern/numerics": 1,
    "include/mxkern/tensor": 2,
    "include/mxkern/kernels/ptx": 3,
    "include/mxkern/kernels/device": 4,
    "include/mxkern/kernels/dequantize": 5,
    "include/mxkern/kernels/experts": 5,
    "include/mxkern/kernels/quantize": 6,
    "include/mxkern/kernels/any": 6,
    "include/mxkern/kernels/operands": 7,
    "include/mxkern/kernels/gemm": 8,
    "include/mxkern/kernels/decode": 9,
    "include/mxkern": 10,
    "src/tuning": 11,
    "src/check": 12,
    "src/plan": 12,
    "src/cpu": 13,
    "src/cuda": 13,
    "src/ops": 14,
    "python/bindings": 15,
}
# Inside of src: what works without a device, and so includes no backend, directly or not.
NO_BACKEND = ("src/plan/", "src/tuning/", "src/check/")
BACKENDS = ("src/cpu/", "src/cuda/")
LAYER_NAMES = [
    "core",
    "numerics",
    "tensor",
    "ptx",
    "device",
    "dequantize and experts",
    "quantize",
    "operands",
    "gemm",
    "decode",
    "public headers",
    "tuning",
    "checks and plans",
    "backends",
    "ops",
    "bindings",
]

PACKAGE = ROOT / "python" / "mxkern"

# Lowest first: the rooms of the Python package. A module belongs to the longest name that it begins
# with. The last is the package itself, which gives out what the others hold.
PYTHON_ROOMS = [
    "mxkern._core",
    "mxkern.values",
    "mxkern.arrays",
    "mxkern.faults",
    "mxkern.ops",
    "mxkern.functions",
    "mxkern.jax",
    "mxkern.files",
    "mxkern.analysis",
    "mxkern.checkpoints",
    "mxkern.torch.operators",
    "mxkern.torch.recipes",
    "mxkern.torch.quantized",
    "mxkern.torch.layers",
    "mxkern.torch.parallel",
    "mxkern.torch.models",
    "mxkern.torch",
    "mxkern.cli",
    "mxkern",
]
MOST_AT_THE_ROOT = 6  # modules of the package that are in no room
MOST_IN_A_FOLDER = 30
# Where that is so. Data that programs write is not looked through by anybody.
FOLDERS = ("include", "src", "python", "tests")


def tracked(*patterns: str) -> list[Path]:
    """The files that git knows or would add, by pattern, as paths relative to the root."""
    if not (ROOT / ".git").exists():  # a source distribution: all that is there
        found = (path for pattern in patterns or ("*",) for path in ROOT.rglob(pattern))
        inside = (path.relative_to(ROOT) for path in found if path.is_file())
        made = (".", "build", "PKG-INFO")
        return sorted(path for path in inside if not path.parts[0].startswith(made))
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(Path(line) for line in listed.stdout.splitlines() if (ROOT / line).exists())


def cpp_sources() -> list[Path]:
    """All C++ and CUDA sources."""
    return tracked("*.h", "*.cuh", "*.cc", "*.cu")


def public_headers() -> list[Path]:
    """What an installation holds."""
    return [path for path in cpp_sources() if path.is_relative_to("include")]


def layer_of(path: Path) -> int | None:
    """The layer of a file, or None for tests, examples and the like."""
    for folder, layer in LAYERS.items():
        if path.is_relative_to(folder):
            return layer
    return None


def python_room_of(module: str) -> str:
    """The room of a module of the package, by its full name: "mxkern.ops.gemm"."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next(name for name in names if name in PYTHON_ROOMS)
