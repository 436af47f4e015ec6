# mxkern/jax/workspaces.py: how much working memory a program gives products.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.arrays.adapter import CPU, collapsed


def gemm_workspace(
    device: int, left: Any, right: Any, dtype: int, out: tuple[int, int, int], precision: int
) -> int:
    """Bytes of working memory that the program gives. Raises what a product on the device would."""
    problem = _planned(left), _planned(right), (dtype, *out)
    plan = _core.plan_gemm_problem(*problem, precision, device)
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
    """The same of a grouped product."""
    if device == CPU:
        return 0  # of ends that nobody knows yet
    problem = _planned(left), _planned(right), (dtype, *collapsed((1, *shape)))
    return _core.grouped_gemm_problem_bytes(*problem, groups, len(shape) == 3, precision, device)


def _planned(view: Any) -> tuple[int, ...]:
    """What a plan depends on in the view of a stand-in, of which the addresses are no part: XLA's
    buffers are dense and start on 256 bytes."""
    if len(view) == 4:  # prepared
        form, source, _, _ = view
        return (form, source[6] is not None, *_planned(source))
    if len(view) == 8:  # plain
        return (view[1], *view[3:6])
    return (*view[:2], *view[3:6])
