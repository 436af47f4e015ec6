# tests/python/jax_programs/test_shard_map.py: the cases of shard_map, in processes with four
# devices.
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import available

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

CASES = ("jax_shard_map_cases.py", "jax_dot_shard_map_cases.py")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has no jax.shard_map")
@pytest.mark.parametrize("cases", CASES)
def test_on_four_devices(cases: str) -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    path = str(Path(__file__).with_name(cases))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
