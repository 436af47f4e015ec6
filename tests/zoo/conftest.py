# tests/zoo/conftest.py: settings of the zoo.
from __future__ import annotations

import os
import sys
from pathlib import Path

# Nothing is asked of the Hub, and no bar is drawn.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "python"))  # the NumPy reference
