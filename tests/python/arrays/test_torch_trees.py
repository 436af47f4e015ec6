# tests/python/arrays/test_torch_trees.py: BlockScaled and PreparedOperand inside of PyTorch:
# compiled and exported programs, trees, checkpoints, files, loaders.
from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import _pytree  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as ops  # noqa: E402
from support import SCHEMES, assert_same_parts, mostly_slow, random_values  # noqa: E402

X = torch.from_numpy(random_values((4, 96), "float32"))
N = mxkern.quantize(X, "nvfp4")
ODD = mxkern.quantize(X[:, :90].contiguous(), "mxfp4")


def checkpointed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: checkpoint(function, *arguments, use_reentrant=False)


def nested(tree: Any) -> Any:
    again = mxkern.quantize(mxkern.dequantize(tree["q"][0]), "mxfp8")
    return {"again": [again], "as it was": tree["q"][1], "x": tree["x"] + 1}


def methods(q: Any) -> Any:
    copied = q.replace(codes=q.codes.clone()).to("cpu", non_blocking=True)
    return copied.dequantize("bfloat16"), q.map(torch.clone), q.nbytes, str(q.device)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "argument": (mxkern.dequantize, (ODD,)),
    "result": (lambda x: mxkern.quantize(x, "nvfp4"), (X,)),
    "both": (lambda x: mxkern.quantize_both(x, "mxfp6"), (X,)),
    "nested": (nested, ({"q": [ODD, N], "x": X},)),
    "closed over": (lambda x: mxkern.gemm(mxkern.quantize(x, "mxfp8"), N), (X,)),
    "methods": (methods, (N,)),
    "made": (lambda a, b: mxkern.BlockScaled(a, b, *ODD.parts[2:], *ODD.facts), ODD.parts[:2]),
    "checkpoint": (checkpointed(lambda x, q: mxkern.gemm(x, q) * 2), (X, N)),
    "checkpoint's result": (checkpointed(lambda x: mxkern.quantize(x, "mxfp4")), (X,)),
    "prepared": (mxkern.gemm, (X, mxkern.prepare_operand(N))),
    "tree_map": (lambda q: _pytree.tree_map(torch.clone, q), (N,)),
}


def bytes_of(part: Any) -> Any:
    return part.reshape(-1).view(torch.uint8)


def assert_equal(got: Any, want: Any) -> None:
    found, wanted = _pytree.tree_flatten(got), _pytree.tree_flatten(want)
    assert found[1] == wanted[1]
    for a, b in zip(found[0], wanted[0], strict=True):
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert bytes_of(a).equal(bytes_of(b))
        else:
            assert a == b


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", mostly_slow(FUNCTIONS, "nested", "closed over", "checkpoint"))
def test_compiled(case: str, dynamic: bool) -> None:
    torch.compiler.reset()
    function, arguments = FUNCTIONS[case]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    assert_equal(compiled(*arguments), function(*arguments))


@pytest.mark.slow  # a C++ compiler runs
@pytest.mark.parametrize("case", ["nested", "methods", "checkpoint"])
def test_compiled_by_inductor(case: str) -> None:
    torch.compiler.reset()
    function, arguments = FUNCTIONS[case]
    assert_equal(torch.compile(function, fullgraph=True)(*arguments), function(*arguments))


class Layer(torch.nn.Module):
    def forward(self, x: Any, q: Any) -> Any:
        return ops.quantize(ops.dequantize(q) + x, "mxfp4"), ops.gemm(x, q)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scheme", mostly_slow(["nvfp4", "mxfp8", "mxfp6"], "nvfp4"))
def test_exported(scheme: str, strict: bool) -> None:
    """Arguments and results that are BlockScaled, in a file too, and for any number of rows."""
    layer, q = Layer(), mxkern.quantize(X, scheme)
    program = torch.export.export(layer, (X, q), strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, torch.export.load(file)):
        assert_equal(each.module()(X, q), layer(X, q))
    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    leaves = [rows, rows] if q.tensor_scale is None else [rows, rows, {}]
    program = torch.export.export(layer, (X, q), strict=strict, dynamic_shapes=(rows, leaves))
    many = torch.cat([X, X])
    more = mxkern.quantize(many, scheme)
    assert_equal(program.module()(many, more), layer(many, more))


@pytest.mark.parametrize("layout", ["row_major", "swizzled"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("columns", [96, 90])
def test_trees(scheme: str, columns: int, layout: str) -> None:
    x = torch.stack([X, -X, X * 3])[..., :columns].contiguous()
    q = mxkern.quantize(x[0], scheme, scale_layout=layout)
    leaves, tree = _pytree.tree_flatten(q)
    held = [part for part in q.parts if part is not None]
    assert all(a is b for a, b in zip(leaves, held, strict=True))
    assert_same_parts(_pytree.tree_unflatten(leaves, tree), q, scheme)
    assert _pytree.treespec_loads(_pytree.treespec_dumps(tree)) == tree
    devices = _pytree.tree_map(lambda part: part.device, q)
    assert devices.codes == X.device and _pytree.tree_structure(devices) == tree
    if scheme == "nvfp4":  # of which each matrix has a tensor scale of its own
        return
    each = [mxkern.quantize(matrix, scheme, scale_layout=layout) for matrix in x]
    stack = _pytree.tree_map(lambda *parts: torch.stack(parts), *each)
    assert_same_parts(stack, mxkern.quantize(x, scheme, scale_layout=layout), scheme)
    one = _pytree.tree_map(lambda part: part[1], stack)
    assert_same_parts(one, each[1], scheme)
    wrong = q.replace(shape=(5, 7))
    assert _pytree.tree_map(torch.clone, wrong).shape == (5, 7)
    assert _pytree.tree_structure(wrong) != tree


def test_paths() -> None:
    tree = {"w": mxkern.prepare_operand(N), "q": ODD}
    paths = [_pytree.keystr(path) for path, _ in _pytree.tree_flatten_with_path(tree)[0]]
    source = [f"['w'].source.{part}" for part in ("codes", "scales", "tensor_scale")]
    data = [] if tree["w"].data is None else ["['w'].data"]
    assert paths == [*data, *source, "['q'].codes", "['q'].scales"]
    leaves, structure = _pytree.tree_flatten(tree["w"])
    same = _pytree.tree_unflatten(leaves, structure)
    assert same.form == tree["w"].form and same.data is tree["w"].data and same.shape == N.shape
    assert _pytree.treespec_loads(_pytree.treespec_dumps(structure)) == structure


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant: bool) -> None:
    def function(x: Any, q: Any) -> Any:
        return ops.fake_quantize(x, "mxfp8") @ mxkern.dequantize(q).T

    gradients = []
    for call in (function, lambda *a: checkpoint(function, *a, use_reentrant=reentrant)):
        x = X.clone().requires_grad_()
        call(x, N).square().sum().backward()
        gradients.append(x.grad)
    assert gradients[0].equal(gradients[1])


def test_loaders() -> None:
    from torch.utils.data._utils.pin_memory import pin_memory

    (given,) = torch.utils.data.DataLoader([N], batch_size=None, num_workers=1)
    assert_same_parts(given, N, "from a worker")

    class Part:
        def pin_memory(self) -> str:
            return "pinned"

    pinned = pin_memory({"q": mxkern.BlockScaled(Part(), Part(), None, *ODD.facts)})["q"]
    assert pinned.parts == ("pinned", "pinned", None) and pinned.facts == ODD.facts


@pytest.mark.parametrize("uses_it", mostly_slow(["torch.load", "tree_map", "compile"], "tree_map"))
def test_pytorch_that_is_imported_last(uses_it: str) -> None:
    """Without a call of mxkern's before. A look whether there is a PyTorch loads none."""
    code = f"""if True:
        import importlib.util, io, sys, mxkern
        assert importlib.util.find_spec("torch") is not None and "torch" not in sys.modules
        import torch
        from torch.utils._pytree import tree_map
        from torch.utils.checkpoint import checkpoint
        facts = "mxfp8_e4m3", (2, 32), "row_major"
        codes, scales = torch.ones(2, 32, dtype=torch.uint8), torch.ones(2, 1, dtype=torch.uint8)
        def made(codes, scales):
            return mxkern.BlockScaled(codes, scales, None, *facts)
        def kept(codes, scales):
            return checkpoint(made, codes, scales, use_reentrant=False)
        q = made(codes, scales)
        if {uses_it!r} == "torch.load":
            file = io.BytesIO()
            torch.save(q, file)
            file.seek(0)
            same = torch.load(file, weights_only=True)
        elif {uses_it!r} == "compile":
            same = torch.compile(kept, fullgraph=True, backend="aot_eager")(codes, scales)
        else:
            same = tree_map(torch.clone, q)
        print(type(same) is mxkern.BlockScaled, same.codes.equal(q.codes), same.shape)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True True (2, 32)\n"
