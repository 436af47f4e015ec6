# tests/python/pytorch/operators/test_compiler.py: PyTorch's compiler is told of functions when it
# is loaded.
from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = """
import sys
{first}
import torch, mxkern.torch
assert ("torch._dynamo" in sys.modules) == {loaded}
x = torch.randn(4, 64)
layer = lambda x: mxkern.dequantize(mxkern.quantize(x, "mxfp8")) + mxkern.torch.linear(
    x, x, None, mxkern.torch.mxfp8("hybrid")).sum()
compiled = torch.compile(layer, fullgraph=True, backend="eager")
print(torch.equal(compiled(x), layer(x)))
"""


@pytest.mark.parametrize("loaded", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_whenever_it_is_loaded(loaded: bool) -> None:
    program = PROGRAM.format(first="import torch._dynamo" if loaded else "", loaded=loaded)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "True\n", run.stderr
