"""fuzz/arguments_fuzzer.py: whatever is passed for any argument, a function gives a result or an
error of its own, which names it.

usage: arguments_fuzzer.py SECONDS [FIRST_SEED]. Reproducible: call i comes from seed i. Arrays are
NumPy's, and PyTorch's and JAX's where these are, on a GPU too where there is one.
"""

import faulthandler
import importlib.util
import inspect
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import ml_dtypes
import numpy as np

import mxkern

NAMES = [
    *("mxfp8", "mxfp4", "nvfp4", "rceil", "even", "stochastic", "swizzled", "auto", "exact"),
    *("e3m4b16", "int4b8:ue4m3", "e4m3b4x4:float32", "fp8_block128", "e5m10", "mse", "up", "row"),
    *("folded", "few_tokens", "bfloat16", "32x32", "cpu", "sm_90", "e5m2", "", "x", "mxfp8\0"),
]
NUMBERS = [
    *(None, True, False, 0, 1, -1, 16, 32, 2**63, 2**64, -(2**70), 10**400, 0.5, -0.0, 1e39, 1j),
    *(float("nan"), float("inf"), Decimal(1), Fraction(1, 2), np.float32(2), np.int64(16)),
    *(np.bool_(True), np.datetime64("now")),
]
OTHERS = [
    *((), (16, 16), (32, 32), (1, 32), [1, 2], [[1.0] * 32] * 2, {}, set(), object(), b"mxfp8"),
    *(memoryview(b"abc"), bytearray(64), range(3), slice(None), Ellipsis, int, np.float32, len),
    *(np.dtype("float16"), mxkern.schemes, mxkern.schemes["mxfp8"]),
]


def numpy_arrays() -> list[Any]:
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    read_only = x.copy()
    read_only.flags.writeable = False
    other_types = ["float64", "float16", "int32", "uint8", "bool", "object", "complex64"]
    return [
        *(x, read_only, x.T, x[:, ::2], x[::-1], x[:0], x[:, :0], x[0], x[None], x[:2], x > 0),
        *(x.astype(name) for name in other_types),
        *(x.astype(ml_dtypes.bfloat16), np.asfortranarray(x), np.broadcast_to(x[0], (4, 64))),
        *(np.array(1.0, np.float32), np.ones(1, np.float32), np.ma.masked_array(x)),
        *(np.zeros((0, 3, 0), np.float32), np.zeros((2,) * 20, np.float32), np.array(["a"])),
        *(x.view(x.dtype.newbyteorder()), np.zeros(4, [("a", "f4")]), memoryview(x)),
    ]


def torch_arrays(device: str) -> list[Any]:
    import torch

    x = torch.randn(4, 64, device=device)
    return [
        *(
            x,
            x.half(),
            x.bfloat16(),
            x.double(),
            x.int(),
            x.T,
            x[:, ::2],
            x[0],
            x[:0],
            x.to("meta"),
        ),
        *(x.to_sparse(), x.clone().requires_grad_(), x.to(torch.complex64).conj(), x[None]),
        *(torch._neg_view(x), torch.nn.Parameter(x.clone()), x.sum(), x.to(torch.float8_e4m3fn)),
        *(x[:1].expand(4, 64), torch.bfloat16, torch.device(device), x.numpy(force=True)),
    ]


def jax_arrays() -> list[Any]:
    import jax

    x = jax.numpy.ones((4, 64))
    return [x, x.astype("bfloat16"), x.T, x[0], x[:0], x.sum(), x.astype("int32")]


def quantized(arrays: list[Any]) -> list[Any]:
    """BlockScaled and prepared operands of the first array, whole and spoilt."""
    x = arrays[0]
    q, n = mxkern.quantize(x, "mxfp8"), mxkern.quantize(x, "nvfp4")
    spoilt: dict[str, list[Any]] = {
        "codes": [None, x],
        "scales": [None, x, 3],
        "scheme": ["nvfp4", "mxfp4", None],
        "shape": [(4, 65), (-4, 64), ("a",), None, (2**40, 2**40), (4, 64.0)],
        "scale_layout": ["swizzled", "x", None],
        "tensor_scale": [3.0, x],
    }
    return [
        *(q, n, q, n, mxkern.quantize(x, "mxfp6", scale_layout="swizzled"), (q, q)),
        (*q.parts, *q.facts),
        *(mxkern.prepare_operand(q), mxkern.prepare_operand(n, keep_source=False)),
        *(q.replace(**{field: value}) for field, values in spoilt.items() for value in values),
        n.replace(tensor_scale=None),
        mxkern.prepare_operand(q).replace(source=None),
    ]


def libraries() -> list[list[Any]]:
    """What there is of each library; the first is a plain array."""
    found = [numpy_arrays()]
    if importlib.util.find_spec("torch"):
        import torch

        found += [torch_arrays(name) for name in ["cpu", "cuda"][: 1 + torch.cuda.is_available()]]
    if importlib.util.find_spec("jax"):
        found.append(jax_arrays())
    return [arrays + quantized(arrays) for arrays in found]


def calls(arrays: list[Any]) -> list[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Functions with the arguments that they need, of one library."""
    x = arrays[0]
    q = mxkern.quantize(x, "mxfp8")
    codes = mxkern.quantize(x, "mxfp4").codes
    four = x[0, :1] * 0 + 4
    ends = four.int() if hasattr(four, "int") else four.astype("int32")
    needed = {
        "quantize": {"x": x, "scheme": "mxfp8"},
        "quantize_columns": {"x": x, "scheme": "nvfp4"},
        "quantize_both": {"x": x, "scheme": "mxfp4"},
        "quantize_mxfp8": {"x": x},
        "quantize_nvfp4": {"x": x},
        "fake_quantize": {"x": x, "scheme": "mxfp8"},
        "dequantize": {"q": q},
        "gemm": {"a": q, "b": q},
        "grouped_gemm": {"a": q, "b": mxkern.quantize(x[None], "nvfp4"), "ends": ends},
        "round_to": {"x": x, "format": "e5m10"},
        "table": {"format": "e3m2"},
        "analyze": {"x": x, "scheme": "mxfp4"},
        "swiglu": {"x": x},
        "combine": {"y": x[:1], "rows": ends - 4, "weights": None, "tokens": 3},
        "expert_layer": {
            "x": x,
            "gate_up": mxkern.quantize(x[None], "nvfp4"),
            "down": mxkern.quantize(x[None, :, :2], "mxfp4"),
            "ends": ends - 3,
            "rows": ends - 4,
        },
        "prepare_both": {"x": x, "scheme": "mxfp6"},
        "prepare_operand": {"x": q},
        "explain_gemm": {"a": q, "b": q},
        "plan_gemm": {"a": q, "b": q},
        "explain_grouped_gemm": {"a": q, "b": mxkern.quantize(x[None], "nvfp4"), "ends": ends},
        "random_hadamard": {"x": x},
        "tensor_amax": {"x": x},
        "swizzle_scales": {"scales": q.scales},
        "unswizzle_scales": {"scales": mxkern.swizzle_scales(q.scales), "rows": 4, "blocks": 2},
        "pack_codes": {"codes": mxkern.unpack_codes(codes, "mxfp4"), "scheme": "mxfp4"},
        "unpack_codes": {"codes": codes, "scheme": "mxfp4"},
    }
    parts = {"codes": q.codes, "scales": q.scales, "scheme": "mxfp8"}
    return [
        *((name, getattr(mxkern, name), arguments) for name, arguments in needed.items()),
        ("BlockScaled.from_parts", mxkern.BlockScaled.from_parts, parts),
        ("grouped_gemm", mxkern.grouped_gemm, {"a": q, "b": q, "ends": ends * 8}),  # of columns
    ]


def main() -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    seconds = float(sys.argv[1])
    first = seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    every = libraries()
    choices = [NAMES, NUMBERS, OTHERS, *every]
    functions = [call for arrays in every for call in calls(arrays)]
    refused = failures = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        source = random.Random(seed)
        name, function, needed = source.choice(functions)
        arguments = dict(needed)
        for _ in range(source.choice([1, 1, 2, 3])):
            argument = source.choice(list(inspect.signature(function).parameters))
            arguments[argument] = source.choice(source.choice(choices))
        try:
            # A number may be an address, as far as anybody can tell: no call may wait for it.
            if not isinstance(arguments.get("stream"), (int, np.integer)):
                function(**arguments)
        except (TypeError, ValueError, RuntimeError) as error:
            refused += 1
            if not str(error).startswith(f"{name}: "):
                failures += 1
                print(f"seed {seed}, {name}: {type(error).__name__}: {error}", file=sys.stderr)
        except BaseException:
            print(f"seed {seed}, {name}", file=sys.stderr)
            raise
        seed += 1
    print(f"Done {seed - first} runs in {seconds:g} second(s), {refused} refused, {failures} wrong")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
