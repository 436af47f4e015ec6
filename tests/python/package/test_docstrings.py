# tests/python/package/test_docstrings.py: the examples in the docstrings.
from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import mxkern


def modules() -> list[str]:
    found = pkgutil.walk_packages(mxkern.__path__, "mxkern.")
    # Modules of optional frameworks need these; the command line is no module to import.
    frameworks = (
        "arrays.torch",
        "arrays.cupy",
        "arrays.jax",
        "arrays.jax_cuda",
        "jax.ffi",
        "jax.operations",
        "jax.programs",
    )
    left_out = ("__main__", "_core", *frameworks, "plot")
    names = (m.name for m in found if not m.name.startswith("mxkern.torch"))
    return ["mxkern", *(name for name in names if not name.endswith(left_out))]


@pytest.mark.parametrize("name", modules())
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_every_operation_has_an_example() -> None:
    operations = [n for n in mxkern.__all__ if callable(getattr(mxkern, n)) and n[0].islower()]
    without = [n for n in operations if ">>>" not in (getattr(mxkern, n).__doc__ or "")]
    assert without in ([], ["cmake_dir"])
