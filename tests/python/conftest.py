# tests/python/conftest.py: settings of the whole suite.
from __future__ import annotations

import os

# JAX looks for accelerators and warns where it finds none.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from hypothesis import settings

settings.register_profile("mxkern", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("mxkern")
