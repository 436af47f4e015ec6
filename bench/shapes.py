# bench/shapes.py: what is measured: sizes, dtypes, schemes, and the goals beside them.
from __future__ import annotations

import mxkern

DTYPES = ("float32", "bfloat16")
MEGABYTES = (64, 256)  # of the input
COLUMNS = 4096
GEMM_SIZES = (1024, 4096)  # M = N = K
FEW_ROWS = (1, 4, 8)  # of a, times weights of the larger size
SMALL = (32, 32)

SCHEMES = mxkern.schemes.names
# Left and right operand of gemm. A dtype stands for a plain left operand.
GEMM_PAIRS = (
    *((scheme, scheme) for scheme in SCHEMES),
    ("mxfp8_e4m3", "mxfp4"),
    ("nvfp4", "mxfp8_e4m3"),
    ("bfloat16", "mxfp4"),
    ("bfloat16", "nvfp4"),
    ("float32", "mxfp8_e4m3"),
)

SMALL_CALL_MICROSECONDS = 3.0
IMPORT_SECONDS = 0.15
GEMM_GOAL = 0.8  # of NumPy's float32 product
GEMM_GOAL_BF16_DOT = 1.5  # the same where the CPU multiplies bfloat16


def copy_goal(scheme: str) -> float:
    """The share of memcpy's speed to reach: codes of a byte are easier than packed ones."""
    return 0.5 if mxkern.schemes[scheme].bits == 8 else 0.35
