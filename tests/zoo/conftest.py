# tests/zoo/conftest.py: a part of the zoo for every day, all of it where it is asked for.
from __future__ import annotations

import os
import sys
from pathlib import Path

# Nothing is asked of the Hub, and no bar is drawn.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "python"))  # the NumPy reference


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes out what is marked, unless the folder is named on the command line or -m is."""
    named = any(
        Path(argument.split("::")[0]).resolve().is_relative_to(HERE) for argument in config.args
    )
    if named or config.getoption("-m"):
        return
    out = [item for item in items if item.get_closest_marker("zoo")]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
