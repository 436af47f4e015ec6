"""tests/structure/test_subproject.py: what a CMake project gets that this one is a part of."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from sources import ROOT

PARENT = f"""
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_options(-ffast-math)
add_subdirectory({ROOT} mxkern)
foreach(target mxkern headers)
  add_executable(with_${{target}} main.cc)
  target_link_libraries(with_${{target}} PRIVATE mxkern::${{target}})
endforeach()
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not on the PATH")
    folder = tmp_path_factory.mktemp("parent")
    (folder / "CMakeLists.txt").write_text(PARENT)
    (folder / "main.cc").write_text('#include "mxkern/mxkern.h"\nint main() {}\n')
    command = ["cmake", "-S", folder, "-B", folder / "build", "-DMXKERN_CUDA=OFF"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder / "build"


def options_of(build: Path, output: str) -> list[str]:
    """What the compiler is told for an object."""
    commands = json.loads((build / "compile_commands.json").read_text())
    (found,) = [entry["command"] for entry in commands if output in entry["command"]]
    return str(found).split()


def test_the_library_is_compiled_for_numbers_as_they_are(build: Path) -> None:
    options = options_of(build, "mxkern.dir/ops/quantize.cc.o")
    assert options.index("-fno-fast-math") > options.index("-ffast-math")
    assert "-ffp-contract=off" in options


def test_who_calls_the_library_is_compiled_as_before(build: Path) -> None:
    options = options_of(build, "with_mxkern.dir/main.cc.o")
    assert "-ffast-math" in options
    assert not {"-fno-fast-math", "-ffp-contract=off"} & set(options)
    assert "-ffp-contract=off" in options_of(build, "with_headers.dir/main.cc.o")


def test_the_kind_of_build_is_left_alone(build: Path) -> None:
    cache = (build / "CMakeCache.txt").read_text()
    assert "CMAKE_BUILD_TYPE:STRING=\n" in cache
    assert "MXKERN_INSTALL:BOOL=OFF" in cache
