# tests/python/package/test_typing.py: what mypy says of programs that call mxkern.
from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

BEGIN = """
from typing import Any

import ml_dtypes
import mxkern
import numpy as np
import numpy.typing as npt
import torch
from mxkern.values.names import SchemeName

x = np.ones((4, 64), np.float32)
t = torch.ones(4, 64)
q = mxkern.quantize(x, "mxfp8")
tq = mxkern.quantize(t, "mxfp8")
ready, t_ready = mxkern.prepare_operand(q), mxkern.prepare_operand(t, "mxfp4", form="folded")
stack, ends = mxkern.quantize(x[None], "mxfp8"), np.array([4], np.int32)
untyped: Any = x
bare: mxkern.BlockScaled = q
word: str = "mxfp8"
"""
# PyTorch's own types take mypy half a minute.
TORCH = """
from typing import Any
import numpy as np

class dtype:
    @property
    def itemsize(self) -> int: ...

class Tensor:
    def cuda(self) -> Tensor: ...
    def numpy(self) -> np.ndarray[Any, Any]: ...

def ones(*shape: int) -> Tensor: ...
float16: dtype
"""
CONFIGURATION = """
[mypy]
strict = True
mypy_path = $MYPY_CONFIG_FILE_DIR
[mypy-jax.*,cupy.*,ml_dtypes.*]
ignore_missing_imports = True
follow_imports = skip
"""

GOOD = """
mxkern.quantize(x, "mxfp8", scale_rule="floor", rounding="stochastic", seed=1, out=q)
mxkern.quantize(x, mxkern.schemes[word])
mxkern.quantize(x, q.scheme, scale_layout=q.scale_layout, block=(32, 32))
mxkern.quantize_mxfp8(x, format="e5m2", hadamard=16)
mxkern.quantize_nvfp4(x, amax=1.0, four_over_six="mae")
[mxkern.quantize(x, name) for name in mxkern.schemes.names]
mxkern.dequantize(q, dtype="float16")
mxkern.dequantize(q, dtype=np.float16)
mxkern.dequantize(q, dtype=np.dtype("float16"))
mxkern.dequantize(q, dtype=ml_dtypes.bfloat16)
mxkern.dequantize(tq, dtype=torch.float16)
mxkern.gemm(x, ready, dtype=x.dtype, precision="exact")
mxkern.grouped_gemm(x, stack, ends, precision="exact", factors=None)
down = mxkern.quantize(x[None, :, :2], "mxfp4")
mxkern.expert_layer(x, stack, down, ends * 0, ends * 0, scheme="mxfp8", limit=7.0)
mxkern.combine(mxkern.swiglu(x[:1], interleaved=True), ends * 0, None, 4, dtype="bfloat16")
mxkern.prepare_both(x, "mxfp8", scale_rule="floor").columns
mxkern.explain_gemm(x, q, device="sm_90", form="few_tokens")
mxkern.compare(x, ["mxfp4", mxkern.schemes["nvfp4"]], rules=["rceil", "even"])
records: npt.NDArray[Any] = mxkern.analyze(x, "mxfp4", scale_rule="even").records
numbers: tuple[float, ...] = mxkern.table("e3m4").values + mxkern.table(q.scheme).values
mxkern.BlockScaled.from_parts(q.codes, q.scales, scheme=q.scheme)
mxkern.BlockScaled(*q.parts, *q.facts)
halves: npt.NDArray[np.float16] = mxkern.dequantize(q, dtype="float16")
codes: npt.NDArray[np.uint8] = mxkern.quantize(x, "mxfp4").codes
flat, = mxkern.swizzle_scales(q.scales).shape
same: mxkern.BlockScaled[npt.NDArray[Any]] = q
def scheme_for(bits: int) -> SchemeName: return "mxfp8" if bits == 8 else "mxfp4"
def stored(x: np.ndarray) -> mxkern.BlockScaled[np.ndarray]: return mxkern.quantize(x, "mxfp4")
""".strip().splitlines()
BAD = """
mxkern.quantize(x, "mxfp9")
mxkern.quantize(x, word)
mxkern.quantize(x)
mxkern.quantize(x, "mxfp8", scale_rule="flor")
mxkern.quantize(x, "mxfp8", rounding="upwards")
mxkern.quantize(x, "mxfp8", scale_layout="tiled")
mxkern.quantize(x, "mxfp8", block=32)
mxkern.quantize(x, "mxfp8", "rceil")
mxkern.quantize(x, "nvfp4", four_over_six="mean")
mxkern.quantize(x, "mxfp8", hadamard_rows=True)
mxkern.quantize_mxfp8(x, amax=1.0)
mxkern.quantize_mxfp8(x, format="e3m2")
mxkern.quantize_nvfp4(x, scale_rule="floor")
mxkern.fake_quantize(x, "mxfp8", hadamard=16)
mxkern.dequantize(q, dtype="float64")
mxkern.dequantize(x)
mxkern.gemm(x, q, precision="exakt")
mxkern.gemm(x, x)
mxkern.grouped_gemm(x, q, ends, precision="auto")
mxkern.prepare_operand(x, "mxfp8", form="source")
mxkern.explain_gemm(x, q, form="auto")
mxkern.plan_gemm(x, q, precision="fast")
mxkern.compare(x, "mxfp9")
mxkern.compare(x, rules="flor")
mxkern.analyze(x, "mxfp9")
mxkern.analyze(x, "mxfp4", scale_rule="flor")
mxkern.table(4)
mxkern.BlockScaled.from_parts(q.codes, q.scales, scheme="mxfp9")
torch_out: torch.Tensor = mxkern.dequantize(q)
""".strip().splitlines()
NUMPY = "numpy.ndarray["  # of any dtype and shape
REVEALED = {
    "q": f"mxkern.values.block_scaled.BlockScaled[{NUMPY}",
    "q.codes": NUMPY,
    "q.to('cpu')": f"mxkern.values.block_scaled.BlockScaled[{NUMPY}",
    "mxkern.dequantize(q)": NUMPY,
    "q.dequantize('float16')": NUMPY,
    "mxkern.gemm(x, q)": NUMPY,
    "mxkern.gemm(x, ready)": NUMPY,
    "mxkern.fake_quantize(x, 'mxfp4')": NUMPY,
    "mxkern.random_hadamard(x)": NUMPY,
    "mxkern.tensor_amax(x)": NUMPY,
    "mxkern.unswizzle_scales(q.scales, 4, 2)": NUMPY,
    "tq": "mxkern.values.block_scaled.BlockScaled[torch.Tensor]",
    "tq.scales": "torch.Tensor",
    "tq.map(lambda part: part.cuda())": "mxkern.values.block_scaled.BlockScaled[torch.Tensor]",
    "tq.map(lambda part: part.numpy())": f"mxkern.values.block_scaled.BlockScaled[{NUMPY}",
    "t_ready": "mxkern.values.prepared_operand.PreparedOperand[torch.Tensor]",
    "mxkern.quantize_both(t, 'nvfp4')[1].codes": "torch.Tensor",
    "mxkern.dequantize(tq)": "torch.Tensor",
    "mxkern.gemm(tq, t_ready)": "torch.Tensor",
    "mxkern.grouped_gemm(t, tq, t)": "torch.Tensor",
    "mxkern.fake_quantize(t, 'mxfp4')": "torch.Tensor",
    "mxkern.swizzle_scales(tq.scales)": "torch.Tensor",
    "mxkern.pack_codes(tq.codes, 'mxfp4')": "torch.Tensor",
    "mxkern.quantize(untyped, 'mxfp4')": "mxkern.values.block_scaled.BlockScaled[Any]",
    "mxkern.dequantize(bare)": "Any",
}


def said_by_mypy(folder: Path) -> dict[str, list[str]]:
    """What mypy says of each line, in one run."""
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    lines = [*BEGIN.splitlines(), *GOOD, *BAD, *(f"reveal_type({what})" for what in REVEALED)]
    program, configuration = folder / "program.py", folder / "mypy.ini"
    program.write_text("\n".join(lines))
    configuration.write_text(CONFIGURATION)
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.pyi").write_text(TORCH)
    options = [f"--config-file={configuration}", f"--cache-dir={folder / 'cache'}"]
    options += [f"--python-executable={sys.executable}", str(program)]
    out, errors, _ = api.run(options)
    assert not errors, errors
    found: dict[str, list[str]] = {line: [] for line in lines}
    for text in out.splitlines():
        if match := re.match(r".*?program\.py:(\d+): (?:error|note): (.*)", text):
            found[lines[int(match[1]) - 1]].append(match[2])
    return found


def test_what_is_right_runs() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    exec("\n".join([BEGIN, *GOOD]), {})


def test_what_mypy_says(tmp_path: Path) -> None:
    """One test, as mypy takes seconds and tests of one file may run in several processes."""
    said = said_by_mypy(tmp_path)
    right = [*BEGIN.splitlines(), *GOOD]
    assert {line: said[line] for line in right if said[line]} == {}
    assert [line for line in BAD if not said[line]] == []
    assert "incompatible type \"Literal['mxfp9']\"" in said[BAD[0]][0]
    for what, kind in REVEALED.items():
        [text] = said[f"reveal_type({what})"]
        assert text.startswith(f'Revealed type is "{kind}'), f"{what}: {text}"
