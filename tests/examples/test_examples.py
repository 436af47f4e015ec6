"""tests/examples/test_examples.py: the examples build against an installation, run, and are right.

The C++ ones are built twice: against the installed wheel, and against the prefix of
`cmake --install` that MXKERN_PREFIX names.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CMAKE = shutil.which("cmake")


def run(*command: str | Path) -> str:
    """The output of a command that has to succeed."""
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


def cmake_option(installation: str) -> str:
    """What tells CMake where the installation is."""
    if installation == "wheel":
        pytest.importorskip("mxkern", reason="the mxkern package is not installed")
        folder = run(sys.executable, "-m", "mxkern", "--cmake-dir").strip()
        assert (Path(folder) / "mxkernConfig.cmake").is_file()
        return f"-Dmxkern_DIR={folder}"
    prefix = os.environ.get("MXKERN_PREFIX")
    if not prefix:
        pytest.skip("MXKERN_PREFIX names no prefix of `cmake --install`")
    return f"-DCMAKE_PREFIX_PATH={prefix}"


@pytest.mark.skipif(CMAKE is None, reason="cmake is not on the PATH")
@pytest.mark.parametrize("installation", ["wheel", "prefix"])
@pytest.mark.parametrize(
    ("example", "says"), [("cpp_consumer", "nvfp4"), ("headers_only", "mxfp6_e2m3: 32 elements")]
)
def test_cpp_example(installation: str, example: str, says: str, tmp_path: Path) -> None:
    option = cmake_option(installation)
    run("cmake", "-S", EXAMPLES / example, "-B", tmp_path, option, "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", tmp_path)
    assert says in run(tmp_path / example)


def test_headers_only_links_no_library(tmp_path: Path) -> None:
    option = cmake_option("wheel")
    run("cmake", "-S", EXAMPLES / "headers_only", "-B", tmp_path, option)
    run("cmake", "--build", tmp_path)
    assert "libmxkern" not in run("ldd", tmp_path / "headers_only")


def test_quickstart(tmp_path: Path) -> None:
    pytest.importorskip("mxkern", reason="the mxkern package is not installed")
    pytest.importorskip("numpy")
    output = run(sys.executable, EXAMPLES / "quickstart.py")
    assert "nvfp4" in output
