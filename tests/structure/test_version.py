"""tests/structure/test_version.py: the version is written once, in CMakeLists.txt."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from sources import ROOT, tracked

WRITTEN = re.search(r"project\(mxkern VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
assert WRITTEN
VERSION = WRITTEN[1]


def test_written_once() -> None:
    # Benchmarks and documents name the versions of other projects too, and the change log all.
    folders = ("cmake", "examples", "include", "python", "src", "tests", "tools")
    places = [
        str(path)
        for path in tracked()
        if len(path.parts) == 1 or path.parts[0] in folders
        if path.suffix in {".h", ".cc", ".cuh", ".py", ".pyi", ".toml", ".txt", ".cmake", ".sh", ""}
        if re.search(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])", (ROOT / path).read_text())
    ]
    assert places == ["CMakeLists.txt"]


def test_distribution_and_library_agree() -> None:
    mxkern = pytest.importorskip("mxkern", reason="the mxkern package is not installed")
    assert version("mxkern") == VERSION
    assert mxkern.__version__ == VERSION
    assert mxkern.info().version == VERSION


def test_command_line_says_it() -> None:
    pytest.importorskip("mxkern", reason="the mxkern package is not installed")
    result = subprocess.run(
        [sys.executable, "-m", "mxkern", "--version"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert VERSION in result.stdout
