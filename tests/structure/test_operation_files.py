"""tests/structure/test_operation_files.py: an operation has all its files; nothing allocates."""

import re

import pytest

from sources import ROOT, cpp_sources

NO_OPERATIONS = {"mxkern", "owned_block_scaled"}
OPERATIONS = sorted(
    path.stem for path in (ROOT / "include/mxkern").glob("*.h") if path.stem not in NO_OPERATIONS
)
# Where the source is another operation's.
WRITTEN_IN = {"plan": "gemm"}
TESTED_IN = {"plan": "plan/gemm_plan"}

# What starts threads, once a process, what describes the machine, and memory for callers who want
# none of their own.
MAY_ALLOCATE = {
    "include/mxkern/info.h",
    "include/mxkern/owned_block_scaled.h",
    "src/cpu/runtime/parallel.cc",
    "src/cuda/backend.h",
    "src/cuda/runtime/devices.cu",
}
ALLOCATES = re.compile(
    r"\b(?:m|c|re|aligned_)alloc\(|\bcudaMalloc\w*\(|\bnew\s+(?!\()[A-Za-z:]|\bstd::vector\b"
    r"|\bmemory_resource\b|\bstd::(?:deque|map|unordered_map|make_unique|make_shared)\b"
)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_files_of_an_operation(operation: str) -> None:
    assert (ROOT / f"src/ops/{WRITTEN_IN.get(operation, operation)}.cc").exists()
    assert (ROOT / f"tests/{TESTED_IN.get(operation, f'ops/{operation}')}_test.cc").exists()
    assert list((ROOT / "tests/python").glob(f"*/test_{operation}.py"))


def test_nothing_allocates() -> None:
    found = [
        f"{path}:{number}"
        for path in cpp_sources()
        if path.is_relative_to("src") or path.is_relative_to("include")
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        if str(path) not in MAY_ALLOCATE and ALLOCATES.search(line.split("//")[0])
    ]
    assert not found, "memory belongs to the caller: outputs are views, workspace is an argument"


def test_who_may_allocate_does() -> None:
    idle = [name for name in MAY_ALLOCATE if not ALLOCATES.search((ROOT / name).read_text())]
    assert not idle, "leave them out of MAY_ALLOCATE"
