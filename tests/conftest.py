# tests/conftest.py: tests that take long are left to `make test-all`, `make zoo` and CI.
from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# By marker: the folder that takes them in where it is named on the command line.
LONG = {"slow": None, "zoo": HERE / "zoo"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked, unless MXKERN_TEST_ALL is set (slow), -m is given, or a test or
    its folder (zoo, with what is slow there) is named on the command line."""
    if config.getoption("-m"):
        return
    named = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    wanted = {"slow"} if os.environ.get("MXKERN_TEST_ALL") else set()
    for marker, folder in LONG.items():
        if folder is not None and any(path.is_relative_to(folder) for path in named):
            wanted |= {marker, "slow"}
    if any("::" in argument for argument in config.args):
        wanted |= LONG.keys()
    out = [item for item in items if any(map(item.get_closest_marker, LONG.keys() - wanted))]
    config.hook.pytest_deselected(items=out)
    left = set(map(id, out))
    items[:] = [item for item in items if id(item) not in left]
