# mxkern/checkpoints/dtype.py: the dtype that a converted model runs in, as its configuration says
# it.
from __future__ import annotations

from typing import Any

# What transformers decompresses quantized layers to, whatever the configuration says; the others
# have to be the same, and are converted as they are loaded.
DTYPE = "bfloat16"
KEYS = ("dtype", "torch_dtype")  # of newer and older versions


def with_dtype(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with that dtype, and so those in it that have one."""
    said = _replaced(config)
    if not any(key in said for key in KEYS):
        said[KEYS[1]] = DTYPE  # which all versions read
    return said


def _replaced(config: dict[str, Any]) -> dict[str, Any]:
    said = dict(config)
    for key, value in config.items():
        if key in KEYS:
            said[key] = DTYPE
        elif key.endswith("_config") and isinstance(value, dict):
            said[key] = _replaced(value)
    return said
