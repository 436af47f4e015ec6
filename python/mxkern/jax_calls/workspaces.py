# mxkern/jax_calls/workspaces.py: how much working memory a program gives products.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.arrays.adapter import CPU, dense_buffer
from mxkern.ops.grouped_gemm import batch_of

_SOMEWHERE = 256  # an address that nobody looks at, aligned as those of XLA's buffers are


def gemm_workspace(
    device: int, left: Any, right: Any, dtype: int, out: tuple[int, int, int], precision: int
) -> int:
    """Bytes of working memory that the program gives. Raises what a product on the device would."""
    buffer = dense_buffer(_SOMEWHERE, dtype, device, out)
    plan = _core.explain_gemm(_on(device, left), _on(device, right), buffer, 0.0, precision, "")
    return 0 if device == CPU else plan.workspace_bytes


def grouped_gemm_workspace(
    device: int,
    left: Any,
    right: Any,
    dtype: int,
    shape: tuple[int, ...],
    precision: int,
    groups: int,
) -> int:
    """The same of a grouped product. Arguments that are checked to lie apart do."""
    if device == CPU:
        return 0  # of ends that nobody knows yet
    addresses = iter(range(2**50, 2**60, 2**50))

    def apart(view: Any) -> Any:
        if len(view) == 4:  # prepared
            form, source, _, size = view
            return (form, apart(source), next(addresses), size)
        if len(view) == 8:  # plain
            return (next(addresses), *view[1:])
        return (*view[:6], *(None if part is None else next(addresses) for part in view[6:]))

    buffer = apart(dense_buffer(0, dtype, device, batch_of(shape)))
    a, b = (apart(_on(device, view)) for view in (left, right))
    where = next(addresses), groups, len(shape) == 3
    return _core.grouped_gemm_workspace_bytes(a, b, *where, buffer, precision)


def _on(device: int, view: Any) -> Any:
    """A view of a stand-in as one of arrays on the device."""
    if len(view) == 4:  # prepared
        form, source, _, size = view
        return (form, _on(device, source), _SOMEWHERE, size)
    return tuple(
        device if i == 2 else item if isinstance(item, (int, type(None))) else _SOMEWHERE
        for i, item in enumerate(view)
    )
