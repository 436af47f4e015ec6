# tests/python/pytorch/quantized/test_lora.py: the linear layer of a stored weight: what it
# computes, the gradients that adapters get through it, and programs that are exported with it.
from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn.functional import linear  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import mxkern  # noqa: E402
from mxkern.torch import Operand, QuantizedTensor, frozen_linear  # noqa: E402
from support import SCHEMES, mostly_slow, refused  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

N, K = 80, 96
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LEADING = [(7,), (2, 5), (3, 1, 4), (), (0,), (0, 3), (2, 0)]


def plain(*shape: int, dtype: Any = torch.bfloat16, seed: int = 0) -> Any:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), device="cpu")
    return values.to(torch.get_default_device(), dtype)


def stored(scheme: str, **options: Any) -> Any:
    w = QuantizedTensor.from_float(plain(N, K), scheme, **options)
    return torch.nn.Parameter(w, requires_grad=False)


def decibels(got: Any, want: Any) -> float:
    got, want = got.double(), want.double()
    return 20 * math.log10(float(want.norm() / (want - got).norm()))


def cosine(got: Any, want: Any) -> float:
    got, want = got.double().flatten(), want.double().flatten()
    return float(got @ want / (got.norm() * want.norm()))


INPUTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "weight only": ({}, None),
    "mxfp8": ({"input": "mxfp8"}, {"scheme": "mxfp8"}),
    "floor": ({"input": Operand("mxfp6", "floor")}, {"scheme": "mxfp6", "scale_rule": "floor"}),
    "nvfp4": ({"input": "nvfp4"}, {"scheme": "nvfp4"}),
    "4/6": (
        {"input": Operand("nvfp4", four_over_six=True)},
        {"scheme": "nvfp4", "four_over_six": True},
    ),
    "static": ({"input": "nvfp4", "amax": 9.0}, {"scheme": "nvfp4", "amax": 9.0}),
}


def assert_same(got: Any, want: Any) -> None:
    """To the bit; on a GPU eager products read what is prepared, and add in another order."""
    if got.is_cuda and got.numel() > 0:
        most = float(want.abs().max())
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-3 * most)
    else:
        assert torch.equal(got, want)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "mxfp4", "nvfp4"))
def test_it_is_the_composition_of_functions(scheme: str, name: str) -> None:
    options, quantized = INPUTS[name]
    if "amax" in options:
        options = options | {"amax": torch.tensor(options["amax"])}
    q, w = mxkern.quantize(plain(N, K), scheme), stored(scheme)
    for dtype in DTYPES:
        bias = plain(N, dtype=dtype, seed=3)
        for leading in LEADING:
            x = plain(*leading, K, dtype=dtype, seed=1)
            rows = x.reshape(math.prod(leading), K)
            a = rows if quantized is None else mxkern.quantize(rows, **quantized)
            want = mxkern.gemm(a, q, dtype=dtype, bias=bias).view(*leading, N)
            made = [frozen_linear(x, w, bias, **options)]
            made.append(frozen_linear(x.requires_grad_(), w, bias, **options))
            if quantized is None and leading:
                made.append(linear(x.detach(), w, bias))
            for got in made:
                assert got.dtype == dtype
                assert_same(got, want)


@pytest.mark.parametrize(
    ("scheme", "input", "bar"),
    [("mxfp4", None, 18), ("mxfp8", None, 25), ("nvfp4", None, 18), ("nvfp4", "nvfp4", 15)]
    + [("mxfp8", "mxfp8", 25), ("mxfp4", "mxfp8", 17), ("mxfp4", "mxfp4", 12)],
)
def test_how_close_it_is_to_the_plain_layer(scheme: str, input: Any, bar: float) -> None:
    x, w = plain(128, 512, seed=1), plain(256, 512, seed=2)
    got = frozen_linear(x, QuantizedTensor.from_float(w, scheme), input=input)
    assert decibels(got, x.double() @ w.double().T) >= bar


@pytest.mark.parametrize("columns", [False, True], ids=["decoded", "columns"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradient_of_the_input(scheme: str, columns: bool) -> None:
    w = stored(scheme, columns=columns)
    values = w.dequantize("float32")
    if columns:
        values = mxkern.dequantize(w.columns).T
    for leading in ((64,), (2, 5), (3, 1, 4), ()):
        for input in (None, "mxfp8"):
            x = plain(*leading, K, seed=1).requires_grad_()
            bias = plain(N, dtype=torch.float32, seed=3).requires_grad_()
            gradient = plain(*leading, N, seed=2)
            frozen_linear(x, w, bias, input=input).backward(gradient)
            want = gradient.double() @ values.double()
            assert x.grad.shape == x.shape and cosine(x.grad, want) >= 0.9999
            assert bias.grad.dtype == torch.float32 and w.grad is None
            flat = gradient.reshape(-1, N)
            torch.testing.assert_close(bias.grad, flat.sum(0, dtype=torch.float32))
    x = plain(0, K).requires_grad_()
    frozen_linear(x, w, bias).sum().backward()
    assert x.grad.shape == (0, K)


def test_gradients_that_are_expanded_and_needs() -> None:
    w, x = stored("mxfp8"), plain(6, K).requires_grad_()
    frozen_linear(x, w).sum().backward()
    want = torch.ones(6, N, dtype=x.dtype) @ w.dequantize()
    assert torch.equal(x.grad, want)
    bias = plain(N).requires_grad_()
    frozen_linear(x.detach(), w, bias).sum().backward()
    assert torch.equal(bias.grad, torch.full_like(bias, 6))
    assert not frozen_linear(x.detach(), w).requires_grad
    with torch.no_grad():
        assert not frozen_linear(x, w, bias).requires_grad
    again = plain(6, K).requires_grad_()
    checkpoint(
        lambda x: frozen_linear(x, w, input="mxfp8"), again, use_reentrant=False
    ).sum().backward()
    assert torch.equal(again.grad, want)


def test_a_weight_that_changes_before_backward_is_noticed() -> None:
    w, x = stored("mxfp8"), plain(6, K).requires_grad_()
    y = frozen_linear(x, w)
    with torch.no_grad():
        w.copy_(plain(N, K, seed=5))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


class Adapted(torch.nn.Module):
    """A linear layer with an adapter of low rank beside it."""

    def __init__(self, weight: Any, rank: int = 4) -> None:
        super().__init__()
        self.weight = weight
        self.bias = torch.nn.Parameter(torch.zeros(N, dtype=torch.bfloat16))
        self.down = torch.nn.Parameter(plain(rank, K, seed=7) / K**0.5)
        self.up = torch.nn.Parameter(torch.zeros(N, rank, dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        base = frozen_linear(x, self.weight, self.bias)
        return base + linear(linear(x, self.down), self.up)


@pytest.mark.parametrize("columns", [False, True], ids=["decoded", "columns"])
def test_adapters_train_and_the_base_does_not_change(columns: bool) -> None:
    lower = Adapted(stored("mxfp4", columns=columns))
    upper = torch.nn.Linear(N, 8, dtype=torch.bfloat16)
    model = torch.nn.Sequential(lower, torch.nn.GELU(), upper)
    before = [part.clone() for part in lower.weight.parts if part is not None]
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert names == {"0.bias", "0.down", "0.up", "2.weight", "2.bias"}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, target = plain(64, K, seed=1), plain(64, 8, seed=2)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.mse_loss(model(x).float(), target.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2, losses
    assert lower.up.abs().max() > 0
    after = [part for part in lower.weight.parts if part is not None]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("backend", mostly_slow(("aot_eager", "inductor"), "aot_eager"))
@pytest.mark.parametrize("input", [None, Operand("mxfp8", "floor")], ids=["plain", "dynamic"])
def test_compiled_layers_give_the_same_gradients(backend: str, input: Any) -> None:
    torch._dynamo.reset()
    for columns in (False, True):
        w = stored("nvfp4", columns=columns)

        def layer(x: Any, bias: Any, w: Any = w) -> Any:
            return frozen_linear(x, w, bias, input=input)

        compiled = torch.compile(layer, fullgraph=True, backend=backend)
        for rows in (4, 9):
            results = []
            for call in (layer, compiled):
                x, bias = plain(2, rows, K).requires_grad_(), plain(N, seed=3).requires_grad_()
                y = call(x, bias)
                y.backward(plain(2, rows, N, seed=4))
                results.append((y.detach(), x.grad, bias.grad))
            for got, want in zip(*results, strict=True):
                assert torch.equal(got, want)
        with torch.no_grad():
            assert torch.equal(compiled(x, bias), layer(x, bias))


class Exported(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = stored("mxfp4"), stored("nvfp4")
        self.bias = torch.nn.Parameter(plain(N))
        self.input = Operand("mxfp8", "floor")

    def forward(self, x: Any) -> Any:
        hidden = frozen_linear(x, self.first, input=self.input)
        hidden = torch.nn.functional.pad(hidden.relu(), (0, K - N))
        return frozen_linear(hidden, self.second, self.bias) + linear(hidden, self.first)


def exported(model: Any, x: Any, **options: Any) -> Any:
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    return torch.export.export(model, (x,), dynamic_shapes=shapes, **options)


@pytest.mark.parametrize("strict", [False, True], ids=["not strict", "strict"])
@torch.no_grad()
def test_exported_programs_are_equal(strict: bool, tmp_path: Any) -> None:
    model, x = Exported(), plain(3, 5, K)
    program = exported(model, x, strict=strict)
    lowered = program.run_decompositions()
    programs = [program, lowered]
    if torch.__version__ >= "2.12":  # before, no file has a float8_e8m0fnu
        torch.export.save(lowered, tmp_path / "program.pt2")
        programs.append(torch.export.load(tmp_path / "program.pt2"))
    for rows in (x, plain(2, 5, K, seed=4)):
        for made in programs:
            assert_same(made.module()(rows), model(rows))
    called = [str(node.target) for node in lowered.graph.nodes if "mxkern" in str(node.target)]
    assert sorted(called) == ["mxkern.gemm.default"] * 3 + ["mxkern.quantize.default"]


@pytest.mark.slow
@torch.no_grad()
def test_ahead_of_time_inductor(tmp_path: Any) -> None:
    model, x = Exported(), plain(3, 5, K)
    path = torch._inductor.aoti_compile_and_package(
        exported(model, x), package_path=str(tmp_path / "model.pt2")
    )
    program = torch._inductor.aoti_load_package(path)
    for rows in (x, plain(2, 5, K, seed=4)):
        assert torch.equal(program(rows), model(rows))


def test_what_it_refuses() -> None:
    w, x = stored("mxfp8"), plain(4, K)
    refused(TypeError, lambda: frozen_linear(x, plain(N, K)), "weight", "from_float")
    refused(TypeError, lambda: frozen_linear(x, w.t()), "(96, 80)", "[N, K]")
    experts = QuantizedTensor.from_float(plain(2, N, K), "mxfp8")
    refused(TypeError, lambda: frozen_linear(x, experts), "(2, 80, 96)", "grouped_gemm")
    refused(ValueError, lambda: frozen_linear(plain(4, N), w), "(4, 80)", "[..., 96]")
    refused(ValueError, lambda: frozen_linear(x, w, amax=1.0), "input is None", "nvfp4")
    refused(ValueError, lambda: frozen_linear(x, w, input="mxfp5"), "did you mean")
    stochastic = Operand("mxfp8", rounding="stochastic")
    refused(ValueError, lambda: frozen_linear(x, w, input=stochastic), "'stochastic'", "'nearest'")
    refused(TypeError, lambda: frozen_linear(x.double(), w), "float64", "convert")
    trained = torch.nn.Parameter(w.detach())
    refused(ValueError, lambda: frozen_linear(x, trained), "requires grad", "requires_grad=False")
