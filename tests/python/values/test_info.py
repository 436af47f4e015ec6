# tests/python/values/test_info.py: info, version and cmake_dir.
from __future__ import annotations

import os
import re

import pytest

import mxkern
from mxkern import _core
from mxkern.values import about


def test_info() -> None:
    info = mxkern.info()
    assert re.fullmatch(r"\d+\.\d+\.\d+", info.version) and info.version == mxkern.__version__
    assert info.instruction_set in ("baseline", "avx2", "avx512")
    assert 1 <= info.threads <= (os.cpu_count() or 1)
    assert f"{info.threads}, from {info.threads_from}" in str(info)
    assert isinstance(info.built_with_cuda, bool)
    assert info.cuda, "says which CUDA, or why there is none"
    assert info.blackwell, "says which kernels of Blackwell, or why there are none"
    assert info.jax, "says whether programs of JAX can call it"
    assert os.path.isfile(os.path.join(info.package, "__init__.py"))


def test_info_prints() -> None:
    info = mxkern.info()
    text = str(info)
    assert repr(info) == text
    for part in (
        info.version,
        info.build,
        info.instruction_set,
        info.cuda,
        info.blackwell,
        info.jax,
        "threads",
    ):
        assert part in text


def test_what_is_said_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    if _core.xla_version() is not None:
        assert mxkern.info().jax.startswith("programs by version ")
    monkeypatch.setattr(_core, "xla_version", lambda: (3, 14))
    assert about._jax() == "programs by version 3.14 of XLA's interface"
    monkeypatch.setattr(_core, "xla_version", lambda: None)
    assert about._jax().startswith("no programs: ")


def test_cmake_dir() -> None:
    try:
        folder = mxkern.cmake_dir()
    except RuntimeError as error:
        # From a build tree: the message says what to do.
        assert "pip install" in str(error)
    else:
        assert os.path.isfile(os.path.join(folder, "mxkernConfig.cmake"))


def test_unknown_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        mxkern.quantise  # noqa: B018
    assert "compare" in dir(mxkern) and callable(mxkern.compare)
