# mxkern: OCP MX and NVFP4 quantization and block-scaled GEMM over plain arrays.
"""Microscaling quantization and matrix products as plain functions over plain arrays.

    q = mxkern.quantize_mxfp8(x)                     # NumPy, PyTorch or JAX: [..., K]
    q.codes, q.scales                                # arrays of the same framework
    y = mxkern.dequantize(q, dtype="bfloat16")
    out = mxkern.gemm(a, b)                          # a [M, K], b [N, K]: a . b^T

mxkern.schemes is the table of what there is, mxkern.info() says what this build can do.
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

from mxkern import _core
from mxkern.arrays import meet_frameworks, take_jax_calls_from
from mxkern.functions import *  # noqa: F403
from mxkern.functions import __all__ as _operations
from mxkern.jax import make_jax_calls
from mxkern.ops.explain_gemm import GemmExplanation, GemmPlan, explain_gemm, plan_gemm
from mxkern.ops.explain_grouped_gemm import GroupedGemmExplanation, explain_grouped_gemm
from mxkern.ops.from_parts import made_from_parts as _made_from_parts  # noqa: F401  # BlockScaled.from_parts
from mxkern.ops.summary import summary as _summary  # noqa: F401  # BlockScaled prints with it
from mxkern.values.about import Info, cmake_dir, info
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.code_table import CodeTable, table
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Scheme, schemes
from mxkern.values.threads import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from mxkern.analysis.comparison import compare
    from mxkern.analysis.tensor_analysis import Analysis, analyze

__version__: str = _core.version()

__all__ = [
    "Analysis",
    "BlockScaled",
    "CodeTable",
    "GemmExplanation",
    "GemmPlan",
    "GroupedGemmExplanation",
    "Info",
    "PreparedOperand",
    "Scheme",
    "__version__",
    "analyze",
    "cmake_dir",
    "compare",
    "explain_gemm",
    "explain_grouped_gemm",
    "get_num_threads",
    "info",
    "plan_gemm",
    "schemes",
    "set_num_threads",
    "table",
]
__all__ += _operations


def _keep_out_of_graphs(function: Any) -> Any:
    """What torch.compile looks for in a function before it looks inside. It then says this, and
    not where inside it got stuck. The operators of mxkern.torch come first."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = (
        "with `import mxkern.torch` torch.compile takes mxkern's functions as operators; "
        "analyze, compare, plan_gemm, explain_gemm, explain_grouped_gemm, info, table, "
        "get_num_threads, set_num_threads and BlockScaled.from_parts are to be called before"
    )
    return function


for _function in [f for f in map(globals().get, __all__) if isinstance(f, FunctionType)]:
    _keep_out_of_graphs(_function)
_keep_out_of_graphs(BlockScaled.from_parts.__func__)  # type: ignore[attr-defined]

take_jax_calls_from(make_jax_calls)
meet_frameworks()


# Rooms that need no import of their own. They are imported when they are first used, as they need
# NumPy or a framework; mxkern.jax is there already, and imports JAX itself then.
_ROOMS = {
    "analysis": "mxkern.analysis",
    "checkpoints": "mxkern.checkpoints",
    "jax": "mxkern.jax",
    "torch": "mxkern.torch",
}


_OF_ANALYSIS = ("Analysis", "analyze", "compare")


def __getattr__(name: str) -> Any:
    if name in _OF_ANALYSIS:
        value = getattr(_room("analysis"), name)
        if isinstance(value, FunctionType):
            _keep_out_of_graphs(value)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return _room(name)
    raise AttributeError(f"module 'mxkern' has no attribute {name!r}")


def _room(name: str) -> Any:
    try:
        return import_module(_ROOMS[name])
    except ImportError as error:  # hasattr, for one, knows no other error than this
        raise AttributeError(f"mxkern.{name} cannot be imported: {error}") from error


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
