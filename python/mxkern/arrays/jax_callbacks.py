# mxkern/arrays/jax_callbacks.py: calls back to Python as parts of programs that JAX compiles. They
# read and write JAX's memory: as NumPy arrays on the CPU, as tensors of PyTorch on a CUDA device.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.tree_util import tree_leaves, tree_map

from mxkern.arrays.adapter import built_with_cuda
from mxkern.prepared_operand import PreparedOperand

# An older JAX has pure_callback only. It makes arrays on JAX's own threads, which threads of Python
# that run programs at once have been seen to wait for without end, and copies them.
try:
    from jax.experimental.buffer_callback import buffer_callback
except ImportError:
    buffer_callback = None

_CPU = 1  # as DLPack counts kinds of devices
_READ_EARLY = "few_tokens"  # the form that products read before their stream's turn


def missing() -> str | None:
    """What programs for JAX's default backend lack to call back, if anything."""
    backend = jax.default_backend()
    if backend == "cpu":
        return None
    if backend != "gpu":
        return "programs for the CPU or a GPU"
    if not built_with_cuda:
        return "an mxkern built with MXKERN_CUDA=ON"
    if buffer_callback is None:
        # With pure_callback arrays would be copied to the host and home again.
        return "a newer JAX, with jax.experimental.buffer_callback"
    try:
        import torch

        is_there = torch.cuda.is_available()
    except ImportError:
        is_there = False
    return None if is_there else "PyTorch with CUDA"


def call_back(function: Callable[..., Any], result: Any, *arguments: Any) -> Any:
    """function(out, *arguments) with arrays of NumPy or PyTorch, when the compiled program runs.
    Under jax.vmap once for each element, as a tensor scale belongs to one tensor."""
    if buffer_callback is None:

        def make(*arrays: Any) -> Any:
            return function(None, *tree_map(np.asarray, arrays))

        return jax.pure_callback(make, result, *arguments, vmap_method="sequential")

    def write(context: Any, out: Any, *arrays: Any) -> None:
        kind, index = tree_leaves(out)[0].__dlpack_device__()
        if kind == _CPU:
            function(*tree_map(np.asarray, (out, *arrays)))
        else:
            _write_on_stream(context.stream, index, function, out, *arrays)

    if jax.default_backend() == "cpu":
        return buffer_callback(write, result, vmap_method="sequential")(*arguments)
    from mxkern.arrays.jax_cuda_arrays import as_known, of_dtype

    # A bitcast costs a compiled program nothing.
    written = tree_map(lambda leaf: jax.eval_shape(as_known, leaf), result)
    known = tree_map(as_known, arguments)
    made = buffer_callback(write, written, vmap_method="sequential")(*known)
    return tree_map(of_dtype, made, result)


def _write_on_stream(handle: int, index: int, function: Callable[..., Any], *arrays: Any) -> None:
    """Launches kernels on the program's stream, and does not wait for them."""
    import torch

    from mxkern.arrays.torch_arrays import stream_scope

    # Of a capsule PyTorch does not ask which stream it is ready on, which takes it a while.
    tensors = tree_map(lambda buffer: torch.from_dlpack(buffer.__dlpack__()), arrays)
    with stream_scope(handle, index):
        if any(isinstance(side, PreparedOperand) and side.form == _READ_EARLY for side in tensors):
            # While the kernel ahead is at work, which may be JAX's that makes it: so one more is
            # between the two.
            torch.zeros(1, device=tree_leaves(tensors)[0].device)
        function(*tensors)
