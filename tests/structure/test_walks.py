"""tests/structure/test_walks.py: the walks of tools/walk.py are the code's, and short."""

import importlib.util

import pytest

from sources import ROOT

_SPEC = importlib.util.spec_from_file_location("walk", ROOT / "tools" / "walk.py")
assert _SPEC is not None and _SPEC.loader is not None
walk = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(walk)

MOST = 12


@pytest.mark.parametrize("name", walk.WALKS)
def test_the_code_takes_each_step(name: str) -> None:
    assert not walk.broken(walk.WALKS[name])


@pytest.mark.parametrize("name", walk.WALKS)
def test_walks_are_short(name: str) -> None:
    files = walk.counted(walk.WALKS[name])
    assert len(files) <= MOST, files


def test_a_step_that_is_gone_is_found() -> None:
    steps = list(walk.WALKS["quantize of a NumPy array"])
    file, function, call = steps[2]
    assert walk.broken([*steps[:2], (file, function + "x", call), *steps[3:]])
    assert walk.broken([*steps[:2], (file, function, "nothing calls this("), *steps[3:]])
