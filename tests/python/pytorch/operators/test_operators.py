# tests/python/pytorch/operators/test_operators.py: mxkern's functions under torch.compile, and
# their operators.
from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import mxkern
from support import SCHEMES, array_of, mostly_slow, random_values

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.utils._pytree as pytree  # noqa: E402
from torch._dynamo.testing import CompileCounter  # noqa: E402

from mxkern.torch import operators  # noqa: E402


def tensor(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return array_of("torch", random_values(shape, dtype, seed))


W = mxkern.quantize(tensor(32, 96, seed=1), "mxfp4")
N = mxkern.quantize(tensor(32, 96, seed=2), "nvfp4")

# Each gives tensors, a BlockScaled or tuples of them.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "quantize": lambda x: mxkern.quantize(x, "mxfp8"),
    "record": lambda x: mxkern.quantize(x, mxkern.schemes["mxfp6"], scale_rule="floor"),
    "computed x": lambda x: mxkern.quantize((x * 2).relu(), "mxfp6_e3m2"),
    "swizzled": lambda x: mxkern.quantize(x, "nvfp4", scale_layout="swizzled", amax=7.0),
    "amax of a tensor": lambda x: mxkern.quantize(x, "nvfp4", amax=mxkern.tensor_amax(x)),
    "amax of a transform": lambda x: mxkern.tensor_amax(
        x, hadamard=32, sign_mask=2**31, columns=True
    ),
    "tensor_scale": lambda x: mxkern.quantize(x, "nvfp4", tensor_scale=0.5, four_over_six="mae"),
    "square": lambda x: mxkern.quantize(x, "nvfp4", block=(16, 16)),
    "square, transposed": lambda x: mxkern.transpose_square_blocks(
        mxkern.quantize(x, "nvfp4", block="16x16", scale_layout="swizzled")
    ),
    "stochastic": lambda x: mxkern.quantize(
        x, "mxfp6", rounding="stochastic", seed=2**64 - 5, offset=2**63
    ),
    "offset of a tensor": lambda x: mxkern.quantize(
        x, "mxfp6", rounding="stochastic", seed=3, offset=x[0, :1].to(torch.int64) - 9
    ),
    "columns, the same": lambda x: mxkern.quantize_columns(
        x, "mxfp8", rounding="stochastic", seed=3, offset=x[0, 0].to(torch.int32)
    ),
    "both, the same": lambda x: mxkern.quantize_both(
        x, "nvfp4", rounding="stochastic", seed=3, offset=x[0, 0].to(torch.int32)
    ),
    "hadamard": lambda x: mxkern.quantize(x, "mxfp4", hadamard=32, sign_mask=2**31 + 1),
    "columns": lambda x: mxkern.quantize_columns(x, "mxint8", scale_rule="even"),
    "both": lambda x: mxkern.quantize_both(x, "mxfp8_e5m2"),
    "both of nvfp4": lambda x: mxkern.quantize_both(
        x, "nvfp4", amax=(3.0, 4.0), hadamard=16, hadamard_rows=True
    ),
    "mxfp8": lambda x: mxkern.quantize_mxfp8(x, format="e5m2"),
    "mxfp6": lambda x: mxkern.quantize_mxfp6(x, format="e3m2"),
    "mxfp4": lambda x: mxkern.quantize_mxfp4(x, block="32x32"),
    "mxint8": lambda x: mxkern.quantize_mxint8(x),
    "nvfp4": lambda x: mxkern.quantize_nvfp4(x, tensor_scale=0.01),
    "fake_quantize": lambda x: mxkern.fake_quantize(x.bfloat16(), "mxfp4") * 2,
    "dequantize": lambda x: mxkern.dequantize(mxkern.quantize(x, "nvfp4"), dtype=torch.bfloat16),
    "gemm": lambda x: mxkern.gemm(mxkern.quantize(x, "mxfp8"), W, dtype="float16", alpha=0.5),
    "gemm of plain x": lambda x: mxkern.gemm(x.half(), N, dtype=torch.float16).relu(),
    "prepared": lambda x: mxkern.gemm(x, PREPARED, bias=x[0, :32].contiguous()),
    "prepared there": lambda x: mxkern.gemm(x, mxkern.prepare_operand(x[:32], "nvfp4")),
    "prepared of what is quantized": lambda x: mxkern.gemm(
        x, mxkern.prepare_operand(mxkern.quantize(x, "mxfp8"), form="few_tokens")
    ),
    "out": lambda x: mxkern.gemm(x, W, out=torch.empty(len(x), 32, dtype=torch.bfloat16)),
    "beta": lambda x: mxkern.gemm(x, W, out=x[:, :32].clone(), beta=2.0),
    "grouped": lambda x: mxkern.grouped_gemm(
        mxkern.quantize(x, "mxfp8"), EXPERTS, ENDS, dtype=x.dtype, bias=x[:3, :8], alpha=2.0
    ),
    "grouped, of plain x": lambda x: mxkern.grouped_gemm(
        x, EXPERTS, ENDS, factors=x[0, :3].float()
    ),
    "grouped columns": lambda x: mxkern.grouped_gemm(
        mxkern.quantize(x, "mxfp8"), mxkern.quantize(x[:5], "mxfp4"), COLUMN_ENDS
    ),
    "grouped copies": lambda x: mxkern.grouped_gemm(
        mxkern.quantize(x[:9], "mxfp8"), EXPERTS, ENDS, rows=COPIED
    ),
    "experts": lambda x: mxkern.expert_layer(
        x[:9].bfloat16(),
        EXPERTS,
        DOWN,
        ENDS,
        COPIED,
        x[0, :60].float(),
        gate_up_bias=x[:3, :8],
        down_factors=x[0, :3].float(),
        scheme="mxfp8",
        alpha=1.702,
        limit=7,
        offset=1,
        interleaved=True,
    ),
    "combined": lambda x: mxkern.combine(
        mxkern.swiglu(x[:60]), COPIED, None, 9, dtype=torch.bfloat16
    ),
    "both prepared": lambda x: tuple(mxkern.prepare_both(x, "mxfp8", scale_rule="even")),
    "random_hadamard": lambda x: mxkern.random_hadamard(x, 32, sign_mask=2**31, inverse=True),
    "round_to": lambda x: mxkern.round_to(x, "e4m2", rounding="down"),
    "scales": lambda x: mxkern.unswizzle_scales(
        mxkern.swizzle_scales(mxkern.quantize(x, "mxfp8").scales), len(x), 3
    ),
    "codes": lambda x: mxkern.unpack_codes(mxkern.quantize(x, "mxfp6").codes, "mxfp6", 96),
    "packed again": lambda x: mxkern.pack_codes(
        mxkern.unpack_codes(mxkern.quantize(x, "mxfp4").codes, "mxfp4"), "mxfp4"
    ),
}
PREPARED = mxkern.prepare_operand(N)
EXPERTS = mxkern.quantize(tensor(3, 8, 96, seed=5), "mxfp4")
ENDS = torch.tensor([7, 7, 60], dtype=torch.int32)
COLUMN_ENDS = torch.tensor([0, 32, 96, 96], dtype=torch.int32)
DOWN = mxkern.quantize(tensor(3, 16, 4, seed=6), "nvfp4")
COPIED = (torch.arange(60) * 7 % 9).to(torch.int32)


def assert_same(got: Any, want: Any, what: str) -> None:
    """Bytes, dtypes, shapes and structure."""
    leaves, structure = pytree.tree_flatten(got)
    expected, wanted = pytree.tree_flatten(want)
    assert structure == wanted, what
    for i, (a, b) in enumerate(zip(leaves, expected, strict=True)):
        assert type(a) is type(b), f"{what}: leaf {i}"
        if not isinstance(b, torch.Tensor):
            assert a == b, f"{what}: leaf {i}"
            continue
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device), f"{what}: leaf {i}"
        assert a.is_contiguous()
        same = a.reshape(-1).view(torch.uint8).equal(b.reshape(-1).view(torch.uint8))
        assert same, f"{what}: leaf {i} has other bytes"


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", mostly_slow(FUNCTIONS, "both", "prepared", "grouped", "codes"))
def test_compiled(name: str, dynamic: bool | None) -> None:
    function, x = FUNCTIONS[name], tensor(64, 96)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    assert_same(compiled(x), function(x), name)


def test_every_function_is_covered() -> None:
    sources = "".join(inspect.getsource(f) for f in FUNCTIONS.values())
    for name in operators.__all__:
        assert f"mxkern.{name}(" in sources, name
    host = {"cmake_dir", "compare", "info", "get_num_threads", "set_num_threads"}
    host |= {"analyze", "table", "explain_gemm", "explain_grouped_gemm", "plan_gemm"}
    functions = {n for n in mxkern.__all__ if inspect.isfunction(getattr(mxkern, n))}
    assert functions - host == set(operators.__all__)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_called_without_a_compiler(scheme: str) -> None:
    x = tensor(2, 40, 64, dtype="bfloat16")
    assert_same(operators.quantize(x, scheme), mxkern.quantize(x, scheme), scheme)
    both = operators.quantize_both(x, scheme, scale_layout="swizzled")
    assert_same(both, mxkern.quantize_both(x, scheme, scale_layout="swizzled"), scheme)
    q = mxkern.quantize(x, scheme)
    assert_same(operators.dequantize(q), mxkern.dequantize(q), scheme)
    assert_same(operators.gemm(q, q), mxkern.gemm(q, q), scheme)


def test_new_shapes_and_seeds_compile_once_more() -> None:
    """Extents and seeds that change become symbols."""
    frames = CompileCounter()

    def function(x: Any, seed: int) -> Any:
        q = mxkern.quantize(x, "mxfp4", rounding="stochastic", seed=seed)
        return mxkern.dequantize(q), mxkern.gemm(x, q)

    compiled = torch.compile(function, fullgraph=True, backend=frames)
    for rows, seed in [(64, 1), (65, 2), (66, 3), (128, 12345)]:
        x = tensor(rows, 96)
        assert_same(compiled(x, seed), function(x, seed), f"{rows} rows, seed {seed}")
    assert frames.frame_count == 2


def test_steps_that_are_tensors_compile_once() -> None:
    frames = CompileCounter()

    def function(x: Any, step: Any) -> Any:
        options = {"rounding": "stochastic", "seed": 5, "offset": step}
        return mxkern.quantize(x, "mxfp4", **options), mxkern.fake_quantize(x, "mxfp6", **options)

    compiled = torch.compile(function, fullgraph=True, backend=frames)
    x, step = tensor(64, 96), torch.zeros((), dtype=torch.int64)
    for number in range(4):
        assert_same(compiled(x, step), function(x, number), f"step {number}")
        step += 1
    assert frames.frame_count == 1
    x.requires_grad_()
    y = mxkern.torch.fake_quantize(x, "mxfp6", rounding="stochastic", seed=5, offset=step)
    y.sum().backward()
    assert bool((x.grad == 1).all())


def test_arguments_of_a_compiled_function() -> None:
    """A BlockScaled and a PreparedOperand go in and out."""

    def function(x: Any, w: Any) -> Any:
        return mxkern.gemm(x, w) + 1, w

    for w in (W, N, PREPARED):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        assert_same(compiled(tensor(8, 96), w), function(tensor(8, 96), w), str(w))


class Linear(torch.nn.Module):
    def __init__(self, functions: Any) -> None:
        super().__init__()
        self.functions = functions
        self.register_buffer("codes", N.codes)
        self.register_buffer("scales", N.scales)
        self.register_buffer("tensor_scale", N.tensor_scale)

    def forward(self, x: Any) -> Any:
        w = N.replace(codes=self.codes, scales=self.scales, tensor_scale=self.tensor_scale)
        return self.functions.gemm(self.functions.quantize(x, "mxfp8"), w)


@pytest.mark.parametrize(("functions", "strict"), [(operators, False), (mxkern, True)])
def test_export(functions: Any, strict: bool) -> None:
    module, rows = Linear(functions), torch.export.Dim("rows", min=2)
    exported = torch.export.export(
        module, (tensor(8, 96),), strict=strict, dynamic_shapes=({0: rows},)
    )
    x = tensor(12, 96)
    assert_same(exported.module()(x), module(x), "exported")


def test_a_fake_tensor_is_sent_to_the_operators() -> None:
    with pytest.raises(TypeError, match=r"quantize: x is .*FakeTensor.*mxkern\.torch"):
        torch.export.export(Linear(mxkern), (tensor(8, 96),), strict=False)


def test_straight_through_gradient() -> None:
    layer = lambda x, *given, **options: mxkern.fake_quantize(x, *given, **options)  # noqa: E731
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for function in (operators.fake_quantize, compiled):
        x = tensor(8, 64, dtype="bfloat16").requires_grad_()
        y = function(x, "mxfp4", scale_rule="floor")
        assert y.requires_grad and (y != x).any()
        upstream = tensor(8, 64, dtype="bfloat16", seed=3)
        y.backward(upstream)
        assert x.grad.equal(upstream)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_fake_quantize_in_transforms_of_torch_func() -> None:
    """Its derivative is the identity's, forward, backward, again, for each matrix and of NVFP4."""
    func, x, w = torch.func, torch.randn(3, 4, 64), torch.randn(3, 4, 64)
    amax = torch.tensor(3.0)

    def layer(x: Any, **options: Any) -> Any:
        return operators.fake_quantize(x, "nvfp4", amax=amax, **options)

    want = mxkern.fake_quantize(x, "nvfp4", amax=amax)
    loss = lambda x: (layer(x) ** 2 * w).sum()  # noqa: E731
    assert func.grad(loss)(x).equal(2 * want * w)
    assert func.vmap(func.grad(lambda x, w: (layer(x) ** 2 * w).sum()))(x, w).equal(2 * want * w)
    assert func.grad(lambda x: func.grad(loss)(x).sum())(x).equal(2 * w)
    value, tangent = func.jvp(layer, (x,), (w,))
    assert value.equal(want) and tangent.equal(w)
    with torch.autograd.forward_ad.dual_level():
        dual = layer(torch.autograd.forward_ad.make_dual(x, w))
        value, tangent = torch.autograd.forward_ad.unpack_dual(dual)
    assert value.equal(want) and tangent.equal(w)
    random = {"rounding": "stochastic", "seed": 3, "offset": torch.tensor(7)}
    got, pull = func.vjp(lambda x: layer(x, **random), x)
    assert got.equal(mxkern.fake_quantize(x, "nvfp4", amax=amax, **random))
    assert pull(w)[0].equal(w)
    seen = x.clone().requires_grad_()
    func.grad(loss)(seen).sum().backward()  # beside what autograd itself records
    assert seen.grad.equal(2 * w)


@pytest.mark.parametrize(
    "name", mostly_slow(sorted({*FUNCTIONS} - {"fake_quantize", "round_to"}), "both")
)
def test_no_other_gradient(name: str) -> None:
    """Where a plain call refuses, so does compiled code; without grad both run."""
    function, x = FUNCTIONS[name], tensor(64, 96).requires_grad_()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match="requires grad"):
        function(x)
    with pytest.raises(Exception, match="requires grad"):
        compiled(x)
    torch._dynamo.reset()
    with torch.no_grad():
        assert_same(compiled(x), function(x), name)


def test_training_step() -> None:
    """Operators in a function with a gradient of its own."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            rows, columns = mxkern.quantize_both(w, "mxfp8")
            ctx.columns = columns
            return mxkern.gemm(mxkern.quantize(x, "mxfp8"), rows)

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            return mxkern.gemm(mxkern.quantize(upstream, "mxfp8"), ctx.columns), None

    def gradient(function: Any) -> Any:
        x = tensor(8, 64).requires_grad_()
        (function(x, tensor(32, 64, seed=1)) * 2).sum().backward()
        return x.grad

    step = Product.apply
    compiled = torch.compile(lambda x, w: step(x, w), fullgraph=True, backend="aot_eager")
    assert gradient(compiled).equal(gradient(step))


WITHOUT_OPERATORS = """
import torch, mxkern
layer = lambda x: mxkern.dequantize(mxkern.quantize(x, "mxfp8")) + 1
x = torch.ones(4, 32)
assert torch.compile(layer, backend="aot_eager")(x).equal(x + 1)
torch._dynamo.reset()
torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
"""


@pytest.mark.slow
def test_without_the_import_the_way_out_is_named() -> None:
    """Calls break the graph and are right; where they may not, the import is named."""
    command = [sys.executable, "-c", WITHOUT_OPERATORS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "with `import mxkern.torch`" in done.stderr, done.stderr
    assert "AssertionError" not in done.stderr
    for function in (
        lambda x: mxkern.compare(x),
        lambda x: mxkern.BlockScaled.from_parts(x.byte(), x[:, :1].byte(), scheme="mxfp8_e4m3"),
    ):
        with pytest.raises(Exception, match=r"operators; analyze, .* are to be called before"):
            torch.compile(function, fullgraph=True, backend="aot_eager")(tensor(4, 32))


def test_errors_while_tracing() -> None:
    def compiled(function: Callable[[Any], Any]) -> None:
        torch._dynamo.reset()
        torch.compile(function, fullgraph=True, backend="aot_eager")(tensor(4, 96))

    for function, words in [
        (lambda x: mxkern.quantize(x, "mxfp9"), "scheme is 'mxfp9'"),
        (lambda x: mxkern.quantize(x.int(), "mxfp8"), "quantize: x has dtype int32"),
        (lambda x: mxkern.gemm(x[:, :64], W), r"a has shape \(4, 64\) and b \(32, 96\)"),
        (lambda x: mxkern.quantize(x, "mxfp4", stream=1), "stream is given"),
        (lambda x: mxkern.quantize(x, "mxfp8", amax=1.0), "amax is for nvfp4"),
        (lambda x: mxkern.pack_codes(x.byte(), "mxfp8"), "expected uint8 codes of a scheme of 4"),
    ]:
        with pytest.raises(Exception, match=words):
            compiled(function)
