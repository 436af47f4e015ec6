# tests/python/pytorch/quantized/test_operations.py: products of a QuantizedTensor by PyTorch's own
# functions, eager and compiled, and what is prepared for them.
from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from quantized_cases import DTYPE, K, N, parameter, plain, stored  # noqa: E402
from torch.nn.functional import linear  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402
from mxkern.torch import QuantizedTensor  # noqa: E402
from support import SCHEMES, mostly_slow  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


def products(x: Any, w: Any, bias: Any) -> dict[str, Any]:
    flat = x.flatten(0, -2)
    return {
        "linear": linear(x, w, bias),
        "no bias": linear(x, w),
        "matmul": x @ w.t(),
        "T": torch.matmul(x, w.T),
        "mm": flat.mm(w.mT),
        "addmm": torch.addmm(bias, flat, w.t()),
        "scaled addmm": torch.addmm(bias, flat, w.t(), beta=0.5, alpha=2.0),
        "left": (w @ flat.t()).t(),
        "one row": x[0, :1] @ w.t(),
        "empty": linear(x[:0], w, bias),
    }


@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "mxfp8_e4m3", "nvfp4"))
def test_products_are_those_of_gemm(scheme: str) -> None:
    w, x, bias = parameter(scheme), plain(2, 5, K, seed=1), plain(N, seed=2)
    flat = x.flatten(0, 1)
    q = mxkern.quantize(plain(N, K), scheme)

    def gemm(rows: Any = flat, **options: Any) -> Any:
        return mxkern.gemm(rows, q, dtype=DTYPE, **options)

    wanted = {
        "linear": gemm(bias=bias).view(2, 5, N),
        "no bias": gemm().view(2, 5, N),
        "matmul": gemm().view(2, 5, N),
        "T": gemm().view(2, 5, N),
        "mm": gemm(),
        "addmm": gemm(bias=bias),
        "scaled addmm": torch.add(bias * 0.5, gemm(), alpha=2.0),
        "left": gemm(),
        "one row": gemm(x[0, :1]),
        "empty": x.new_empty(0, 5, N),
    }
    for scope in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with scope:
            for name, got in products(x, w, bias).items():
                assert torch.equal(got, wanted[name]), name
    experts = stored(scheme, 3, N, K)
    rows = plain(3, 4, K)
    want = mxkern.gemm(rows, experts.quantized, dtype=DTYPE)
    assert torch.equal(torch.bmm(rows, experts.mT), want)
    assert torch.equal(rows @ experts.transpose(1, 2), want)


@pytest.mark.parametrize("columns", [False, True], ids=["decoded", "columns"])
def test_gradients_of_products(columns: bool) -> None:
    w = parameter("mxfp8", columns=columns)
    for x in (plain(2, 5, K), plain(1, K), plain(K, 7).t()):
        x = x.detach().requires_grad_()
        gradient = plain(*x.shape[:-1], N, seed=3)
        linear(x, w).backward(gradient)
        flat = gradient.reshape(-1, N)
        want = flat @ w.dequantize()
        if columns:
            want = mxkern.gemm(flat, w.columns, dtype=DTYPE)
        torch.testing.assert_close(x.grad, want.view(x.shape), rtol=0.02, atol=0.02)
        if x.is_contiguous():
            assert torch.equal(x.grad, want.view(x.shape))


def test_autocast() -> None:
    w = torch.nn.Parameter(stored().float(), requires_grad=False)
    x = plain(4, K, dtype=torch.float32)
    with torch.autocast(x.device.type, torch.bfloat16):
        got, frozen = linear(x, w), mxt.frozen_linear(x, w)
    want = mxkern.gemm(x.bfloat16(), w.quantized, dtype="bfloat16")
    assert torch.equal(got, want) and torch.equal(frozen, want)


BACKENDS = mostly_slow(("aot_eager", "inductor"), "aot_eager")


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled(backend: str) -> None:
    torch._dynamo.reset()
    w, bias = parameter("nvfp4"), plain(N, seed=2)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = w

        def forward(self, x: Any) -> Any:
            hidden = linear(x, self.weight, bias).relu()
            return hidden + x @ self.weight.detach().t() + self.weight.dequantize().sum()

    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for rows in (3, 5, 8):
        x = plain(2, rows, K, seed=rows)
        torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=0 if "aot" in backend else 4)
        assert torch.equal(
            torch.compile(linear, fullgraph=True, backend=backend)(x, w), linear(x, w)
        )
    # What is copied to the weight is seen.
    w.copy_(plain(N, K, seed=9))
    assert torch.equal(torch.compile(linear, fullgraph=True, backend=backend)(x, w), linear(x, w))


def test_modes_see_the_operators() -> None:
    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if QuantizedTensor in types:
                return NotImplemented
            seen.append(str(op))
            return op(*args, **(kwargs or {}))

    x, w = plain(4, K), parameter()
    with Mode():
        got = linear(x, w)
        mxt.frozen_linear(x, w, input="mxfp8")
    assert torch.equal(got, linear(x, w))
    assert seen.count("mxkern.gemm.default") == 2 and "mxkern.quantize.default" in seen
    with FlopCounterMode(display=False) as counter:
        mxt.frozen_linear(x, w)
    assert counter.get_total_flops() == 2 * 4 * N * K


def test_what_is_prepared_is_a_cache() -> None:
    w, x = parameter("mxfp8"), plain(4, K)
    want = linear(x, w)
    assert bool(w._ready) == x.is_cuda  # by the product of a transpose of it
    w.t().prepare("few_tokens")
    ready = w.operand_for(4)
    assert type(ready) is mxkern.PreparedOperand and ready.scheme == "mxfp8_e4m3"
    assert w.detach().operand_for(4) is ready and w.t().operand_for(4) is ready
    assert ready.form == "source" or type(w.operand_for(4096)) is mxkern.BlockScaled
    torch.testing.assert_close(linear(x, w), want, rtol=0.02, atol=0.02)
    copies = (copy.deepcopy(w), pickle.loads(pickle.dumps(w)), w.clone(), w.to("cpu", copy=True))
    assert not any(other._ready for other in copies)
    experts = stored("mxfp8", 3, N, K).prepare("expanded")
    assert type(experts.operand_for(4)) is mxkern.PreparedOperand
    assert type(experts[1].operand_for(4)) is mxkern.BlockScaled
    w.copy_(plain(N, K, seed=5))
    assert not w._ready and torch.equal(
        mxt.frozen_linear(x, w), mxt.frozen_linear(x, parameter("mxfp8").copy_(plain(N, K, seed=5)))
    )
    for write in (lambda: w.codes.detach().zero_(), lambda: w[:9].copy_(w[9:18])):
        w.prepare("few_tokens")
        ready = w.operand_for(4)
        write()  # as a checkpoint is loaded in place
        assert w.operand_for(4) is not ready
    assert not linear(x, w).any()
