# bench/cuda/rivals.py: quantization beside others on the same GPU: PyTorch under torch.compile, and
# torchao's, where it was downloaded (python -m bench.compare.rival).
from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mxkern
from bench.compare.rival import RIVALS
from bench.cuda.timing import copies_needed, copy_bytes_per_second, median_seconds

SHAPES = ((16384, 8192), (4096, 4096))
MX_FORMATS = "torchao.prototype.mx_formats."
SCHEMES = {"mxfp8_e4m3": torch.float8_e4m3fn, "mxfp4": torch.float4_e2m1fn_x2}

Result = tuple[torch.Tensor, torch.Tensor]  # codes and scales


def find() -> None:
    """Lets the rivals' packages be imported, from folders of MXKERN_RIVALS or where they were
    downloaded. They come last: PyTorch is the environment's."""
    usual = os.pathsep.join(str(RIVALS / name) for name in ("torchao", "humming"))
    folders = os.environ.get("MXKERN_RIVALS", usual).split(os.pathsep)
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    # torchao's compiled extensions take seconds to load and have nothing that is measured here.
    os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")


def mxfp8(x: torch.Tensor) -> Result:
    """MXFP8 E4M3 with the scale rule of OCP, row-major scales."""
    blocks = x.float().reshape(x.shape[0], -1, 32)
    amax = blocks.abs().amax(-1)
    exponent = (amax.view(torch.int32) >> 23) & 0xFF
    scale = (exponent - 8).clamp(0, 254)
    multiplier = ((254 - scale) << 23).view(torch.float32)
    codes = (blocks * multiplier[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.reshape(x.shape), scale.to(torch.uint8)


def nvfp4(x: torch.Tensor, amax: torch.Tensor) -> Result:
    """NVFP4 with an amax that is known, row-major scales."""
    blocks = x.float().reshape(x.shape[0], -1, 16)
    encode = 2688.0 / amax
    scale = (blocks.abs().amax(-1) * (encode * (1.0 / 6.0))).clamp(max=448).to(torch.float8_e4m3fn)
    inverse = 1.0 / (scale.float() * (1.0 / encode))
    magnitude = (blocks * inverse[..., None]).abs().clamp(max=6)
    code = (magnitude > 0.25).to(torch.uint8)
    for step, inclusive in (
        (0.75, True),
        (1.25, False),
        (1.75, True),
        (2.5, False),
        (3.5, True),
        (5.0, False),
    ):
        code = code + ((magnitude >= step) if inclusive else (magnitude > step)).to(torch.uint8)
    code = code | (torch.signbit(blocks).to(torch.uint8) << 3)
    pairs = code.reshape(x.shape[0], -1, 2)
    return pairs[..., 0] | (pairs[..., 1] << 4), scale


def run() -> Iterator[dict[str, Any]]:
    """One record a case and shape, results first, then the time of both; and one a refusal."""
    find()
    for shape in SHAPES:
        inputs = [
            torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            for _ in range(copies_needed(shape[0] * shape[1] * 2))
        ]
        side = _Side(inputs, copy_bytes_per_second(shape))
        if shape == SHAPES[0]:
            rival = f"torch.compile, PyTorch {torch.__version__}"
            compiled = torch.compile(mxfp8, fullgraph=True)
            yield side.record(rival, "mxfp8_e4m3", compiled, scale_rule="floor")
            compiled_nvfp4 = torch.compile(nvfp4, fullgraph=True)
            amax = mxkern.tensor_amax(inputs[0])
            yield side.record(rival, "nvfp4", partial(_swapped, compiled_nvfp4, amax), amax=amax)
        yield from _torchao(side)
        torch.compiler.reset()


def _torchao(side: _Side) -> Iterator[dict[str, Any]]:
    try:
        version = importlib.metadata.version("torchao")
        mx = importlib.import_module(MX_FORMATS + "mx_tensor")
        kernels = importlib.import_module(MX_FORMATS + "kernels")
        nv = importlib.import_module(MX_FORMATS + "nvfp4_tensor")
        modes = importlib.import_module(MX_FORMATS + "config").ScaleCalculationMode
    except ImportError as error:
        yield {"rival": "torchao", "failed": f"{type(error).__name__}: {error}"}
        return
    x = side.inputs[0]
    refused: dict[str, Callable[[], object]] = {
        "triton_to_mxfp8_dim0": lambda: kernels.triton_to_mxfp8_dim0(x),
        "triton_to_mxfp8_dim1": lambda: kernels.triton_to_mxfp8_dim1(x),
        "mxfp8_quantize_cuda": lambda: kernels.mxfp8_quantize_cuda(x),
        "NVFP4Tensor.to_nvfp4(use_triton_kernel=True)": lambda: nv.NVFP4Tensor.to_nvfp4(
            x, use_triton_kernel=True, is_swizzled_scales=True
        ),
    }
    for name, call in refused.items() if side.shape == SHAPES[0] else ():
        try:
            call()
        except Exception as error:  # what a rival cannot do is a result as well
            text = f"{type(error).__name__}: {error}"
            yield {"rival": f"torchao {version}: {name}", "failed": text}
    for scheme, element in SCHEMES.items():
        for rule in ("floor", "rceil"):
            compiled = torch.compile(partial(_to_mx, mx.to_mx, element, modes(rule)))
            yield side.record(
                f"torchao {version}: to_mx, compiled", scheme, compiled, scale_rule=rule
            )
    for scheme, element in SCHEMES.items():
        rival = f"torchao {version}: to_mx and to_dtype, compiled"
        compiled = torch.compile(partial(_to_mx_and_back, mx, element, modes("floor")))
        try:
            yield side.fake_record(rival, scheme, compiled)
        except Exception as error:
            yield {
                "rival": f"{rival}, {scheme}",
                "failed": f"{type(error).__name__}: {error}"[:200],
            }
    amax = mxkern.tensor_amax(x)
    tensor_scale = nv.per_tensor_amax_to_scale(amax)
    compiled = torch.compile(nv.nvfp4_quantize)
    yield side.record(
        f"torchao {version}: nvfp4_quantize, compiled",
        "nvfp4",
        lambda x: compiled(x, 16, tensor_scale)[::-1],
        amax=amax,
    )


def _swapped(function: Any, second: Any, first: Any) -> Result:
    result: Result = function(first, second)
    return result


def _to_mx(to_mx: Any, element: Any, mode: Any, x: torch.Tensor) -> Result:
    scales, codes = to_mx(x, element, 32, mode)
    return codes, scales


def _to_mx_and_back(mx: Any, element: Any, mode: Any, x: torch.Tensor) -> torch.Tensor:
    scales, codes = mx.to_mx(x, element, 32, mode)
    result: torch.Tensor = mx.to_dtype(codes, scales, element, 32, x.dtype)
    return result


def disagreement(x: torch.Tensor, q: mxkern.BlockScaled, other: Result, rival: str) -> float:
    """The share of `other`'s codes or scales that are not q's, the larger one. Divisions that round
    differently move codes now and then, and scales where many blocks have the same amax; what is
    decoded has to be as near to x all the same."""
    codes, scales = other
    theirs = q.replace(codes=codes.view(q.codes.dtype), scales=scales.view(q.scales.dtype))
    different = max(
        (a.view(torch.uint8) != b.view(torch.uint8)).float().mean().item()
        for a, b in zip(theirs.parts[:2], q.parts[:2], strict=True)
    )
    own, error = (
        (mxkern.dequantize(parts, dtype="float32") - x.float()).norm().item()
        for parts in (q, theirs)
    )
    assert different < 0.05, f"{rival}, {q.scheme}: {different:.1%} of its bytes differ"
    assert abs(error - own) <= 5e-3 * own, f"{rival}, {q.scheme}: its error is {error / own:.4f}x"
    return different


class _Side:
    """Both sides quantize the same tensors in turn, more of them than the cache holds. In a graph
    what a rival allocates is the same memory each time, as mxkern's result is."""

    def __init__(self, inputs: list[torch.Tensor], copy: float) -> None:
        self.inputs = inputs
        self.shape = tuple(inputs[0].shape)
        self.copy = copy

    def record(
        self, rival: str, scheme: str, call: Callable[[torch.Tensor], Result], **options: Any
    ) -> dict[str, Any]:
        x = self.inputs[0]
        q = mxkern.quantize(x, scheme, **options)
        different = disagreement(x, q, call(x), rival)
        return {
            "scheme": scheme,
            "rival": rival,
            "scale_rule": options.get("scale_rule"),
            "shape": list(self.shape),
            "rival_seconds": median_seconds([partial(call, x) for x in self.inputs]),
            "seconds": median_seconds(
                [partial(mxkern.quantize, x, scheme, out=q, **options) for x in self.inputs]
            ),
            "bytes": x.nbytes + q.nbytes,
            "different": different,
            "copy_bytes_per_second": self.copy,
        }

    def fake_record(
        self, rival: str, scheme: str, call: Callable[[torch.Tensor], torch.Tensor]
    ) -> dict[str, Any]:
        """The same of fake_quantize, by the rule `floor`."""
        x = self.inputs[0]
        y = mxkern.fake_quantize(x, scheme, scale_rule="floor")
        different = (call(x) != y).float().mean().item()
        assert different == 0, f"{rival}, {scheme}: {different:.1%} of its values differ"
        own = partial(mxkern.fake_quantize, scheme=scheme, scale_rule="floor", out=y)
        return {
            "scheme": scheme,
            "rival": rival,
            "scale_rule": "floor",
            "shape": list(self.shape),
            "rival_seconds": median_seconds([partial(call, x) for x in self.inputs]),
            "seconds": median_seconds([partial(own, x) for x in self.inputs]),
            "bytes": x.nbytes + y.nbytes,
            "different": different,
            "copy_bytes_per_second": self.copy,
        }
