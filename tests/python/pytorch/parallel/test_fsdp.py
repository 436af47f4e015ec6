# tests/python/pytorch/parallel/test_fsdp.py: fully sharded layers, on several ranks.
from __future__ import annotations

from typing import Any

import pytest
from parallel_cases import assert_passed, names_of

# Some 30 seconds of two processes, for all cases of all modules together.
pytestmark = pytest.mark.slow
MODULE = "fsdp_cases"


@pytest.mark.parametrize("name", names_of(MODULE))
def test_on_two_ranks(name: str, tmp_path_factory: Any) -> None:
    assert_passed(name, 2, tmp_path_factory)


@pytest.mark.parametrize("name", names_of(MODULE) + names_of(MODULE, "case_of_four"))
def test_on_four_ranks(name: str, tmp_path_factory: Any) -> None:
    assert_passed(name, 4, tmp_path_factory)


@pytest.mark.parametrize("name", names_of(MODULE, "slow_case"))
def test_what_takes_long(name: str, tmp_path_factory: Any) -> None:
    assert_passed(name, 2, tmp_path_factory, slow=True)
