"""tests/structure/test_headers.py: every public header compiles alone, for host and for device."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sources import INCLUDE, public_headers

HEADERS = [path.relative_to("include") for path in public_headers()]
HOST_HEADERS = [path for path in HEADERS if path.suffix == ".h"]
COMPILERS = [os.environ.get("CXX", "c++"), "clang++"]
NVCC = shutil.which("nvcc")
# One run of the front end for each; nothing is assembled, so it takes about a second.
ARCHITECTURES = ["90a", "100a"]


def compile_alone(header: Path, folder: Path, command: list[str], suffix: str) -> None:
    """Compiles a source that includes the header, twice, and nothing else."""
    source = folder / f"alone{suffix}"
    source.write_text(f'#include "{header}"\n#include "{header}"\n')
    result = subprocess.run([*command, f"-I{INCLUDE}", source], capture_output=True, text=True)
    assert result.returncode == 0, f"{header}:\n{result.stderr or result.stdout}"


def test_headers_are_found() -> None:
    assert Path("mxkern/mxkern.h") in HOST_HEADERS


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("header", HOST_HEADERS, ids=str)
def test_host_compiler(header: Path, compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not on the PATH")
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    compile_alone(header, tmp_path, [compiler, "-std=c++20", *warnings, "-fsyntax-only"], ".cc")


@pytest.mark.skipif(NVCC is None, reason="nvcc is not on the PATH")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_device_compiler(header: Path, architecture: str, tmp_path: Path) -> None:
    command = [str(NVCC), "-std=c++20", "--fmad=false", "-Werror=all-warnings", "-ptx"]
    output = ["-o", str(tmp_path / "alone.ptx")]
    compile_alone(header, tmp_path, [*command, f"-arch=sm_{architecture}", *output], ".cu")


def test_umbrella_names_every_host_header() -> None:
    umbrella = (INCLUDE / "mxkern/mxkern.h").read_text()
    missing = [
        str(header)
        for header in HOST_HEADERS
        if header.name != "mxkern.h" and f'#include "{header}"' not in umbrella
    ]
    assert not missing, f"mxkern.h leaves out {missing}"
