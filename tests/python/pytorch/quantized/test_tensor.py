# tests/python/pytorch/quantized/test_tensor.py: a weight of codes and scales is a tensor that
# PyTorch carries, and multiplies; everything else is refused.
from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from quantized_cases import (  # noqa: E402
    DTYPE,
    K,
    N,
    addresses,
    on_bytes,
    parameter,
    plain,
    same,
    stored,
)

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402
from mxkern.torch import QuantizedTensor  # noqa: E402
from support import SCHEMES, assert_same_parts, refused  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

SHAPES = [(N, K), (5, 33), (1, 1), (3, N, K), (2, 7, 40)]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_holds_what_quantize_gives(scheme: str, shape: tuple[int, ...]) -> None:
    w = plain(*shape)
    q = QuantizedTensor.from_float(w, scheme)
    assert (tuple(q.shape), q.dtype, q.device) == (shape, DTYPE, w.device)
    assert q.is_contiguous() and not q.requires_grad and q.columns is None
    assert q.codes.dtype == q.scales.dtype == torch.uint8
    want = mxkern.quantize(w, scheme)
    assert_same_parts(on_bytes(q.quantized), on_bytes(want), scheme)
    assert torch.equal(q.dequantize(), mxkern.dequantize(want, dtype=DTYPE))
    assert torch.equal(q.dequantize("float32"), mxkern.dequantize(want))
    wrapped = QuantizedTensor.from_quantized(want, DTYPE)
    assert addresses(wrapped)[:2] == [want.codes.data_ptr(), want.scales.data_ptr()]
    same(wrapped, q)
    both = QuantizedTensor.from_float(w, scheme, columns=True)
    sides = zip((both.quantized, both.columns), mxkern.quantize_both(w, scheme), strict=True)
    for side, made in sides:
        assert_same_parts(on_bytes(side), on_bytes(made), scheme)


def test_options_are_those_of_quantize() -> None:
    w = plain(N, K)
    q = QuantizedTensor.from_float(w, "mxfp8", scale_rule="floor", scale_layout="swizzled")
    want = mxkern.quantize(w, "mxfp8", scale_rule="floor", scale_layout="swizzled")
    assert_same_parts(on_bytes(q.quantized), on_bytes(want), "floor")
    q = QuantizedTensor.from_float(w, mxt.Operand("nvfp4", four_over_six="mae"), amax=9.0)
    want = mxkern.quantize(w, "nvfp4", four_over_six="mae", amax=9.0)
    assert_same_parts(on_bytes(q.quantized), on_bytes(want), "mae")
    q = QuantizedTensor.from_float(w, mxkern.schemes["mxfp4"], block="32x32")
    assert_same_parts(
        on_bytes(q.quantized), on_bytes(mxkern.quantize(w, "mxfp4", block="32x32")), "square"
    )


def test_what_it_is_not_made_of() -> None:
    w, make, wrap = plain(N, K), QuantizedTensor.from_float, QuantizedTensor.from_quantized
    rows, columns = mxkern.quantize_both(w, "mxfp4")
    refused(TypeError, lambda: make([1.0], "mxfp4"), "w is a list", "torch.Tensor")
    refused(ValueError, lambda: make(w[0], "mxfp4"), "(96,)", "[E, N, K]")
    refused(ValueError, lambda: make(w, "mxfp5"), "did you mean")
    refused(TypeError, lambda: make(w.double(), "mxfp4"), "float64", "convert")
    stochastic = mxt.Operand("mxfp4", rounding="stochastic")
    refused(ValueError, lambda: make(w, stochastic), "'stochastic'", "'nearest'")
    refused(TypeError, lambda: wrap(w), "BlockScaled")
    refused(ValueError, lambda: wrap(rows, columns=rows), "quantize_both")
    refused(TypeError, lambda: wrap(rows, torch.float8_e5m2), "float8_e5m2", "dequantize()")
    assert wrap(rows, "float16", columns=columns).dtype == torch.float16


def test_it_prints_what_it_is() -> None:
    text = repr(parameter("nvfp4", columns=True))
    wanted = f"QuantizedTensor(nvfp4, (48, 96), bfloat16, {plain(1).device}, with columns, "
    assert text == f"{wanted}5192 bytes)"


CARRIERS: dict[str, Callable[[Any], Any]] = {
    "detach": lambda q: q.detach(),
    "clone": lambda q: q.clone(),
    "data": lambda q: q.data,
    "view": lambda q: q.view(q.shape).view(*q.shape[:-1], -1),
    "as_strided": lambda q: q.as_strided(q.shape, q.stride()),
    "whole slice": lambda q: q[:],
    "twice transposed": lambda q: q.mT.mT,
    "deepcopy": copy.deepcopy,
    "pickle": lambda q: pickle.loads(pickle.dumps(q)),
    "other device": lambda q: q.to("cpu", copy=True).to(q.device),
    "other dtype": lambda q: q.to(torch.float16).to(q.dtype),
    "meta and back": lambda q: torch.empty_like(q.to("meta"), device=q.device).copy_(q),
    "new_zeros": lambda q: q.new_zeros(q.shape).copy_(q),
}


VIEWS = ("detach", "data", "view", "as_strided", "whole slice", "twice transposed")


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("name", CARRIERS)
def test_it_is_carried(name: str, columns: bool) -> None:
    for scheme, shape in (("mxfp6", (N, K)), ("nvfp4", (3, 7, 40)), ("mxfp8", (5, 33))):
        for layout in ("row_major", "swizzled"):
            q = stored(scheme, *shape, columns=columns, scale_layout=layout)
            got = CARRIERS[name](q)
            same(got, q)
            is_view = name in VIEWS
            assert (addresses(got) == addresses(q)) == is_view


def test_a_parameter_stays_one() -> None:
    w = parameter("nvfp4")
    for made in (copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        assert isinstance(made, torch.nn.Parameter) and not made.requires_grad
        same(made, w)
    both = copy.deepcopy([w, w])
    assert both[0] is both[1]
    layer = torch.nn.Linear(K, N)
    layer.weight = w
    layer.to(torch.float16)
    assert (layer.weight.dtype, layer.bias.dtype) == (torch.float16, torch.float16)
    assert torch.equal(layer.weight.codes, w.codes)
    layer.to("meta")
    assert layer.weight.is_meta and layer.weight.codes.is_meta
    layer.to_empty(device="cpu")
    assert layer.weight.device.type == "cpu" and type(layer.weight) is QuantizedTensor


def test_on_meta() -> None:
    with torch.device("meta"):
        q = QuantizedTensor.from_float(torch.empty(N, K), "nvfp4", columns=True)
    assert q.is_meta and all(part.is_meta for part in q.parts)
    assert [tuple(part.shape) for part in q.parts] == [
        tuple(part.shape) for part in stored("nvfp4", columns=True).parts
    ]


def test_copy_writes_in_place() -> None:
    new = plain(N, K, dtype=torch.float32, seed=1)
    for scheme in SCHEMES:
        for columns in (False, True):
            q = stored(scheme, columns=columns, scale_layout="swizzled")
            before = addresses(q)
            assert q.copy_(new) is q and addresses(q) == before
            sides = (q.quantized, q.columns)[: 1 + columns]
            wanted = mxkern.quantize_both(new, scheme, scale_layout="swizzled")
            for side, want in zip(sides, wanted, strict=False):
                assert_same_parts(on_bytes(side), on_bytes(want), scheme)
            other = stored(scheme, columns=True, scale_layout="swizzled")
            assert addresses(q.copy_(other)) == before
            assert torch.equal(q.dequantize(), other.dequantize())
    q = stored("mxfp8", scale_rule="floor")
    q.copy_(new)
    want = mxkern.quantize(new, "mxfp8", scale_rule="floor")
    assert_same_parts(on_bytes(q.quantized), on_bytes(want), "its own rule")


def test_copies_that_are_refused() -> None:
    q, way_out = stored("mxfp4"), "assign=True"
    before = q.clone()
    refused(ValueError, lambda: q.copy_(plain(N, K + 1)), "(48, 97)", "(48, 96)", way_out)
    refused(ValueError, lambda: q.copy_(plain(K)), "(96,)", way_out)
    refused(ValueError, lambda: q.copy_(stored("mxfp8")), "mxfp8_e4m3", "mxfp4", way_out)
    swizzled = stored("mxfp4", scale_layout="swizzled")
    refused(ValueError, lambda: q.copy_(swizzled), "layout", way_out)
    refused(ValueError, lambda: stored("mxfp4", columns=True).copy_(q), "columns", way_out)
    refused(NotImplementedError, lambda: plain(N, K).copy_(q), "dequantize()")
    refused(TypeError, lambda: q.copy_(plain(N, K, dtype=torch.float64)), "float64")
    same(q, before)


def test_rows_are_views() -> None:
    for scheme in SCHEMES:
        q = stored(scheme)
        values, start = q.dequantize(), addresses(q)[0]
        for got, want in (
            (q.narrow(0, 3, 7), values[3:10]),
            (q[40:], values[40:]),
            (q[-3:100], values[-3:]),
            (q[9:3], values[9:3]),
            *zip(q.split(20), values.split(20), strict=True),
            *zip(q.split([10, 0, 38]), values.split([10, 0, 38]), strict=True),
            *zip(q.chunk(5), values.chunk(5), strict=True),
        ):
            assert type(got) is QuantizedTensor and torch.equal(got.dequantize(), want)
        assert q[2:].codes.data_ptr() == start + 2 * q.codes.stride(0)
        q[8:16].copy_(q[:8])
        assert torch.equal(q.dequantize(), torch.cat([values[:8], values[:8], values[16:]]))
        zeros = q.new_zeros((N + 2, K))
        zeros[:N].copy_(q)
        assert torch.equal(zeros.dequantize()[:N], q.dequantize())
        assert not zeros.dequantize()[N:].any()


def test_experts_are_views() -> None:
    for layout in ("row_major", "swizzled"):
        q = stored("nvfp4", 3, N, K, columns=True, scale_layout=layout)
        values = q.dequantize()
        for got, want in ((q[1], values[1]), (q[-1], values[-1]), (q[1:], values[1:])):
            assert torch.equal(got.dequantize(), want) and got.columns is not None
        with pytest.raises(IndexError):
            q[3]
        for got, want in zip(q, values, strict=True):
            assert torch.equal(got.dequantize(), want)
        assert torch.equal(mxkern.dequantize(q[2].columns), mxkern.dequantize(q.columns)[2])


def test_a_part_of_a_shared_tensor_scale_takes_no_plain_values() -> None:
    refused(ValueError, lambda: stored("nvfp4")[:8].copy_(plain(8, K)), "tensor scale")
    q, new = stored("mxfp4"), plain(8, K, seed=1)
    q[:8].copy_(new)
    assert torch.equal(
        q[:8].dequantize(), mxkern.dequantize(mxkern.quantize(new, "mxfp4"), dtype=DTYPE)
    )


REFUSED: dict[str, Callable[[Any], Any]] = {
    "add": lambda q: q + 1,
    "reflected": lambda q: torch.ones_like(q.dequantize()) + q,
    "sum": lambda q: q.sum(),
    "cat": lambda q: torch.cat([q, q]),
    "reshape": lambda q: q.reshape(-1),
    "flatten": lambda q: q.view(-1),
    "columns": lambda q: q.narrow(1, 0, 32),
    "column": lambda q: q[:, 0],
    "row": lambda q: q[3],
    "steps": lambda q: q[::2],
    "rows of a transpose": lambda q: q.t()[:2],
    "rows with columns": lambda q: stored("mxfp4", columns=True)[:2],
    "rows of swizzled scales": lambda q: stored("mxfp4", scale_layout="swizzled")[:2],
    "strided": lambda q: q.as_strided((2, 2), (1, 1)),
    "other axes": lambda q: stored("mxfp4", 3, N, K).transpose(0, 1),
    "zeros of one dimension": lambda q: q.new_zeros(3),
    "multiplied in place": lambda q: q.mul_(2),
    "mask": lambda q: q.masked_fill(plain(N, K) > 0, 0.0),
    "relu": torch.relu,
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_else_decodes(name: str) -> None:
    refused(NotImplementedError, lambda: REFUSED[name](stored()), "weight.dequantize()")


def test_no_other_dtype() -> None:
    for dtype in (torch.float64, torch.int8, torch.float8_e4m3fn):
        refused(TypeError, lambda dtype=dtype: stored().to(dtype), str(dtype), "dequantize()")


FRESH = """
import sys, torch, mxkern.torch
held = torch.load(sys.argv[1], weights_only=True)
w, layer = held["w"], held["layer"]
assert type(w) is mxkern.torch.QuantizedTensor and w.scheme == "nvfp4", w
assert isinstance(layer, torch.nn.Parameter) and layer.columns is not None
print(w.dequantize().double().sum().item())
"""


def test_torch_load_with_weights_only_in_a_fresh_process(tmp_path: Any) -> None:
    w = stored("nvfp4", block="16x16").to("cpu")
    layer = torch.nn.Parameter(parameter("mxfp8", columns=True).to("cpu"), requires_grad=False)
    torch.save({"w": w, "layer": layer}, tmp_path / "w.pt")
    command = [sys.executable, "-c", FRESH, str(tmp_path / "w.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == w.dequantize().double().sum().item()
    file = io.BytesIO((tmp_path / "w.pt").read_bytes())
    again = torch.load(file, weights_only=True)["w"]
    same(again, w)
    assert again.facts.operand == mxt.Operand("nvfp4", block="16x16")
