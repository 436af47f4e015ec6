"""tests/structure/test_blackwell.py: machine code for Blackwell has the instructions it is for.

It is compiled and never executed: there is no such GPU among those that the tests have run on.
tools/cuda.sh compiles the products of codes and scales, and names their folder in
MXKERN_BLACKWELL_OBJECTS; compiling them here would take minutes.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from cuda_tools import ENVIRONMENT, cutlass_include, missing
from sources import INCLUDE, ROOT

MISSING = missing("nvcc", "cuobjdump", "nvdisasm")
OBJECTS = os.environ.get("MXKERN_BLACKWELL_OBJECTS")
needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
needs_objects = pytest.mark.skipif(
    OBJECTS is None, reason="MXKERN_BLACKWELL_OBJECTS names no folder; tools/cuda.sh does"
)

ENCODE = """
#include "mxkern/numerics/codec_ptx.cuh"
__global__ void encode(const float* from, mxkern::Octet* to) {
  float v[8];
  for (int i = 0; i < 8; ++i) v[i] = from[i];
  *to = mxkern::encode_octet<mxkern::E2M1>(v);
}
"""

# One multiplication of sm_100a. Plain FP8 has the first five operands, and the enabling predicate
# after them; block scales in tensor memory are the sixth, and UTCCP is what brings them there.
UMMA = re.compile(
    r"UTC([QO])MMA[.\w]* gdesc\[\w+\], gdesc\[\w+\], tmem\[[^]]+\], tmem\[[^]]+\], idesc\[\w+\]"
    r"(, tmem\[[^]]+\])?"
)


def machine_code(binary: Path) -> str:
    """What cuobjdump lists of a cubin or an object file."""
    listed = subprocess.run(
        ["cuobjdump", "-sass", binary], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stderr
    return listed.stdout


def cubin(source: Path, architecture: str, folder: Path, *options: str) -> Path:
    """Device code of a source."""
    output = folder / f"{source.stem}.{architecture}.cubin"
    command = ["nvcc", f"-arch=sm_{architecture}", "-std=c++20", *options, f"-I{INCLUDE}", "-cubin"]
    compiled = subprocess.run(
        [*command, "-o", output, source], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stderr
    return output


def kernels(architecture: str) -> tuple[list[str], bool]:
    """The machine code of the products that tools/cuda.sh compiled for an architecture, and whether
    they are a release's: five to each output dtype. Else one of float32, of MXFP8, beside five."""
    objects = {path.name: path for path in Path(OBJECTS or "").rglob("*.cu.o")}
    fewer = [f"blackwell_products_{architecture}.cu.o"]
    whole = [f"{architecture}_{out}.cu.o" for out in ("bfloat16", "float32")]
    is_whole = fewer[0] not in objects
    functions = [
        text
        for name in (whole if is_whole else fewer)
        for text in machine_code(objects[name]).split("Function : ")[1:]
    ]
    return [text for text in functions if "GemmUniversal" in text.split("\n", 1)[0]], is_whole


def multiplies_block_scaled(text: str) -> bool:
    """Whether every multiplication of sm_100a takes scales, and scales are brought for it."""
    found = UMMA.findall(text)
    return bool(found) and all(scales for _, scales in found) and "UTCCP" in text


@pytest.mark.slow
@needs_tools
def test_conversion_instruction(tmp_path: Path) -> None:
    source = tmp_path / "encode.cu"
    source.write_text(ENCODE)
    assert "E2M1.F32.PACK_AB" in machine_code(cubin(source, "100a", tmp_path, "--fmad=false"))
    on_hopper = machine_code(cubin(source, "90a", tmp_path, "--fmad=false"))
    assert "E2M1" not in on_hopper, "sm_90 has no such instruction"


@needs_tools
@needs_objects
def test_products_of_sm100() -> None:
    texts, is_whole = kernels("sm100")
    assert all(multiplies_block_scaled(text) for text in texts)
    # Three pairs of 8 bits with 8, 6 and 4; MXFP4 and NVFP4, whose rate is twice as high.
    of_a_dtype = ["O", "O", "Q", "Q", "Q"]
    found = sorted(UMMA.findall(text)[0][0] for text in texts)
    assert found == sorted(of_a_dtype + (of_a_dtype if is_whole else ["Q"]))
    nvfp4 = sum(bool(re.search(r"UTCOMMA\.\w+\.4X ", text)) for text in texts)
    assert nvfp4 == (2 if is_whole else 1), "NVFP4 alone"


@needs_tools
@needs_objects
@pytest.mark.skipif(cutlass_include() is None, reason="CUTLASS is not installed")
def test_plain_products_of_sm100_are_told_apart(tmp_path: Path) -> None:
    source = ROOT / "tests/structure/plain_fp8_sm100.cu"
    options = ["--expt-relaxed-constexpr", "-DNDEBUG", f"-I{cutlass_include()}"]
    text = machine_code(cubin(source, "100a", tmp_path, *options))
    assert UMMA.search(text), "it multiplies FP8 on the same unit"
    assert not multiplies_block_scaled(text) and "UTCCP" not in text


@needs_tools
@needs_objects
def test_products_of_sm120() -> None:
    texts, is_whole = kernels("sm120")
    of_a_dtype = [
        "OMMA.SF.16864.F32.E2M1.E2M1.E8",
        "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X",
        "QMMA.SF.16832.F32.E4M3.E2M1.E8",
        "QMMA.SF.16832.F32.E4M3.E3M2.E8",
        "QMMA.SF.16832.F32.E4M3.E4M3.E8",
    ]
    found = [set(re.findall(r"\b[A-Z]*MMA\.[.\w]+", text)) for text in texts]
    assert all(len(instructions) == 1 for instructions in found)
    wanted = of_a_dtype + (of_a_dtype if is_whole else of_a_dtype[-1:])
    assert sorted(min(instructions) for instructions in found) == sorted(wanted)
