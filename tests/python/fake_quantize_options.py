# tests/python/fake_quantize_options.py: options of fake_quantize that tests of every device go
# through.
from __future__ import annotations

from typing import Any

MX_OPTIONS: list[dict[str, Any]] = [
    {},
    {"scale_rule": "floor"},
    {"rounding": "stochastic", "seed": 2**64 - 1, "offset": 5},
    {"block": "32x32"},
]
NVFP4_OPTIONS: list[dict[str, Any]] = [
    {},
    {"four_over_six": True},
    {"four_over_six": "mae"},
    {"amax": 3.0},
    {"tensor_scale": 0.01, "rounding": "stochastic", "seed": 1},
    {"block": (16, 16)},
]


def options_of(scheme: str) -> list[dict[str, Any]]:
    return NVFP4_OPTIONS if scheme == "nvfp4" else MX_OPTIONS
