# mxkern/jax/ffi.py: the library's operations as parts of programs that JAX compiles: XLA
# calls them by its foreign function interface, on the CPU and on a CUDA device's stream.
from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mxkern import _core
from mxkern.arrays.adapter import built_with_cuda
from mxkern.jax.mesh_axes import over_their_axes


def missing(backend: str) -> str | None:
    """What programs for a backend of JAX's lack to call the library, if anything."""
    if backend not in ("cpu", "gpu"):
        return "programs for the CPU or a GPU"
    if backend == "gpu" and not built_with_cuda:
        return "an mxkern built with MXKERN_CUDA=ON"
    return _not_registered()


def call(
    operation: str,
    results: Sequence[Any],
    arrays: Sequence[Any],
    numbers: Sequence[int],
    *,
    takes_batches: bool = False,
) -> Any:
    """The arrays that an operation of _core.xla_handlers() makes of others; of results, their
    shapes and dtypes. Under jax.vmap once for each element, as a tensor scale belongs to one
    tensor; where a further leading dimension changes nothing for an element, once for all."""
    way = "broadcast_all" if takes_batches else "sequential"
    results, arrays = over_their_axes(results, arrays)
    function = jax.ffi.ffi_call(f"mxkern_{operation}", results, vmap_method=way)
    unsigned = [number % 2**64 for number in numbers]
    return function(*arrays, numbers=np.array(unsigned, np.uint64).view(np.int64))


@functools.cache
def _not_registered() -> str | None:
    """Tells XLA of the operations, once; or why not."""
    built = _core.xla_version()
    if built is None:
        return "an mxkern built where jaxlib's headers are (pip install jaxlib)"
    if not hasattr(jax, "ffi"):
        return "a newer JAX, with jax.ffi"
    try:
        running = _version_of(Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h")
    except OSError as error:
        return f"a jaxlib with the headers of XLA's interface ({error})"
    if running < built:  # an older XLA would not even start
        older, newer = (".".join(map(str, version)) for version in (running, built))
        return f"a JAX whose XLA has version {newer} or newer of its interface, not {older}"
    for name, (on_cpu, on_cuda) in _core.xla_handlers().items():
        jax.ffi.register_ffi_target(f"mxkern_{name}", on_cpu, platform="cpu")
        if built_with_cuda:
            jax.ffi.register_ffi_target(f"mxkern_{name}", on_cuda, platform="CUDA")
    return None


def _version_of(header: Path) -> tuple[int, int]:
    text = header.read_text()
    major, minor = (
        int(found[1]) if (found := re.search(rf"define XLA_FFI_API_{part} (\d+)", text)) else -1
        for part in ("MAJOR", "MINOR")
    )
    return (major, minor)
