"""tests/structure/test_blackwell.py: code for sm_100a has the conversion instruction of E2M1.

It is compiled and never executed: there is no such GPU among those that the tests have run on.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from sources import INCLUDE

TOOLS = ("nvcc", "cuobjdump", "nvdisasm")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
SOURCE = """
#include "mxkern/numerics/codec_ptx.cuh"
__global__ void encode(const float* from, mxkern::Octet* to) {
  float v[8];
  for (int i = 0; i < 8; ++i) v[i] = from[i];
  *to = mxkern::encode_octet<mxkern::E2M1>(v);
}
"""


def instructions(architecture: str, folder: Path) -> str:
    """What the machine code of the kernel consists of."""
    source, cubin = folder / "encode.cu", folder / f"{architecture}.cubin"
    source.write_text(SOURCE)
    command = ["nvcc", "-std=c++20", "--fmad=false", f"-arch=sm_{architecture}", "-cubin"]
    compiled = subprocess.run(
        [*command, f"-I{INCLUDE}", "-o", cubin, source], capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stderr
    listed = subprocess.run(["cuobjdump", "-sass", cubin], capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    return listed.stdout


@pytest.mark.skipif(bool(MISSING), reason=f"not on the PATH: {', '.join(MISSING)}")
def test_conversion_instruction(tmp_path: Path) -> None:
    assert "E2M1.F32.PACK_AB" in instructions("100a", tmp_path)
    assert "E2M1" not in instructions("90a", tmp_path), "sm_90 has no such instruction"
