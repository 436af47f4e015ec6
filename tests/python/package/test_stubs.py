# tests/python/package/test_stubs.py: the checked-in stub is what nanobind makes of the extension
# module.
from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mxkern
from mxkern import _core


def without_layout(source: str) -> str:
    """A stub as its syntax tree: spacing and line breaks do not count."""
    return ast.dump(ast.parse(source), indent=1)


def test_stub_is_current() -> None:
    stubgen = pytest.importorskip("nanobind.stubgen", reason="nanobind is not installed")
    generator = stubgen.StubGen(_core)
    generator.put(_core)
    checked_in = Path(mxkern.__file__).with_name("_core.pyi").read_text()
    assert without_layout(checked_in) == without_layout(generator.get()), (
        "python/mxkern/_core.pyi is not what the module says; make it anew with "
        "python -m nanobind.stubgen -m mxkern._core -o python/mxkern/_core.pyi"
    )


def test_package_is_typed() -> None:
    assert Path(mxkern.__file__).with_name("py.typed").is_file()
