"""tests/structure/test_headers.py: every public header compiles alone, for host and for device."""

import functools
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cuda_tools import cutlass_include
from header_chains import chains, included
from sources import INCLUDE, public_headers

# Those for one architecture of Blackwell bring CUTLASS in, which takes a quarter of a minute.
OF_CUTLASS = {
    path.relative_to("include"): match[1]
    for path in public_headers()
    if (match := re.fullmatch(r".*/blackwell/sm(1[02]0)\.cuh", str(path)))
}
HEADERS = [
    path
    for path in (path.relative_to("include") for path in public_headers())
    if path not in OF_CUTLASS and path.name != "collective.cuh"
]
HOST_HEADERS = [path for path in HEADERS if path.suffix == ".h"]
# Those for the host say nothing to nvcc, as a test below checks: the host's compilers show that
# each compiles alone, and the one that includes all shows that nvcc takes them.
DEVICE_HEADERS = [path for path in HEADERS if path.suffix == ".cuh" or path.name == "mxkern.h"]
# What a header says that is not the same for every architecture.
DEPENDS = re.compile("__CUDA_ARCH|MXKERN_HAS_")


def architectures(header: Path) -> list[str]:
    """Those to compile a header for: Blackwell's too if it depends on them itself. What it includes
    is compiled by itself. Nothing is assembled, so each takes about a second."""
    return ["90a", "100a"] if DEPENDS.search((INCLUDE / header).read_text()) else ["90a"]


def cases(headers: list[Path], compilers: list[str]) -> list[object]:
    """Each chain of headers with each compiler; for a compiler that is not there, one case to skip.
    Without MXKERN_TEST_ALL the first compiler takes the one that includes all."""
    listed: list[object] = []
    for compiler in compilers:
        if shutil.which(compiler) is None:
            skip = pytest.mark.skip(reason=f"{compiler} is not on the PATH")
            listed.append(pytest.param(compiler, None, id=compiler, marks=skip))
            continue
        for chain in chains(headers):
            quick = compiler == compilers[0] != "nvcc" and chain[-1].name == "mxkern.h"
            marks = [] if quick else [pytest.mark.slow]
            listed.append(pytest.param(compiler, chain, id=f"{compiler}-{chain[-1]}", marks=marks))
    return listed


def compile_alone(chain: list[Path], folder: Path, command: list[str], suffix: str) -> None:
    """Compiles a source that includes each header of a chain, twice, and nothing else."""
    source = folder / f"alone{suffix}"
    source.write_text("".join(f'#include "{header}"\n' * 2 for header in chain))
    result = subprocess.run([*command, f"-I{INCLUDE}", source], capture_output=True, text=True)
    names = ", ".join(map(str, chain))
    assert result.returncode == 0, f"{names}:\n{result.stderr or result.stdout}"


def test_headers_are_found() -> None:
    assert Path("mxkern/mxkern.h") in HOST_HEADERS


@pytest.mark.parametrize(
    ("compiler", "chain"), cases(HOST_HEADERS, [os.environ.get("CXX", "c++"), "clang++"])
)
def test_host_compiler(compiler: str, chain: list[Path], tmp_path: Path) -> None:
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wold-style-cast", "-Werror"]
    warnings += ["-Wconversion", "-Wsign-conversion", "-Wdouble-promotion"]
    compile_alone(chain, tmp_path, [compiler, "-std=c++20", *warnings, "-fsyntax-only"], ".cc")


@functools.cache
def front_end_only(nvcc: str) -> list[str]:
    """The option, of a newer nvcc, that ends compiling device code once all of it has been read."""
    option = "-fdevice-syntax-only"
    shown = subprocess.run([nvcc, "--help"], capture_output=True, text=True).stdout
    return [option] if option in shown else []


@pytest.mark.parametrize(("compiler", "chain"), cases(DEVICE_HEADERS, ["nvcc"]))
def test_device_compiler(compiler: str, chain: list[Path], tmp_path: Path) -> None:
    command = [compiler, "-std=c++20", "--fmad=false", "-Werror=all-warnings"]
    command += front_end_only(compiler)
    for header in chain:
        assert header.suffix == ".cuh" or not DEPENDS.search((INCLUDE / header).read_text())
    first, *others = max(map(architectures, chain), key=len)
    # Of an architecture's name nvcc makes two, one without its features: where nothing depends on
    # them, it is told the one.
    single = f"-gencode=arch=compute_{first},code=compute_{first}"
    # Once for the host too: for the device alone some names in templates may stay unknown.
    passes = [("-cuda", f"-arch=sm_{first}" if others else single)]
    for output, architecture in passes + [("-ptx", f"-arch=sm_{other}") for other in others]:
        options = [output, architecture, "-o", str(tmp_path / "alone.out")]
        compile_alone(chain, tmp_path, [*command, *options], ".cu")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_all_device_headers_in_two_sources(tmp_path: Path) -> None:
    """No two headers mean different things by one name, whichever comes first, and nothing in them
    is defined twice where several sources of a program include them."""
    command = ["nvcc", "-std=c++20", "--fmad=false", "-Werror=all-warnings", "-c", "-arch=sm_90a"]
    command += front_end_only("nvcc")
    objects = []
    for name, headers in {"forwards": sorted(HEADERS), "backwards": sorted(HEADERS)[::-1]}.items():
        source = tmp_path / f"{name}.cu"
        source.write_text("".join(f'#include "{header}"\n' for header in headers))
        objects.append(str(tmp_path / f"{name}.o"))
        output = [*command, "-o", objects[-1], f"-I{INCLUDE}", str(source)]
        result = subprocess.run(output, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr or result.stdout
    link = ["ld", "-r", "-o", str(tmp_path / "both.o"), *objects]
    result = subprocess.run(link, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.skipif(cutlass_include() is None, reason="CUTLASS is not installed")
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.parametrize("header", OF_CUTLASS)
def test_headers_of_cutlass(header: Path, tmp_path: Path) -> None:
    command = ["nvcc", "-std=c++20", "--fmad=false", "--expt-relaxed-constexpr", "-ptx"]
    options = [f"-arch=sm_{OF_CUTLASS[header]}a", "-isystem", str(cutlass_include())]
    output = ["-o", str(tmp_path / "alone.ptx")]
    compile_alone([header], tmp_path, [*command, *options, *output], ".cu")


def test_chains_have_every_header_and_each_includes_the_one_before() -> None:
    for headers in (HOST_HEADERS, DEVICE_HEADERS):
        listed = chains(headers)
        assert sorted(header for chain in listed for header in chain) == sorted(headers)
        for chain in listed:
            for lower, upper in itertools.pairwise(chain):
                assert lower in included(upper), f"{upper} does not include {lower}"


def test_headers_that_depend_on_the_architecture() -> None:
    assert architectures(Path("mxkern/numerics/codec_ptx.cuh")) == ["90a", "100a"]
    assert architectures(Path("mxkern/kernels/dequantize/dequantize.cuh")) == ["90a", "100a"]
    assert architectures(Path("mxkern/kernels/ptx/tma.cuh")) == ["90a"]


def test_host_headers_say_nothing_to_nvcc() -> None:
    saying = [
        str(header)
        for header in HOST_HEADERS
        if re.search("__CUDA|__NVCC__", (INCLUDE / header).read_text())
    ]
    assert saying == ["mxkern/core/platform.h"]


def test_umbrella_names_every_host_header_but_the_kernels() -> None:
    umbrella = (INCLUDE / "mxkern/mxkern.h").read_text()
    missing = [
        str(header)
        for header in HOST_HEADERS
        if header.name != "mxkern.h" and f'#include "{header}"' not in umbrella
        if not header.is_relative_to("mxkern/kernels")
    ]
    assert not missing, f"mxkern.h leaves out {missing}"
