"""tests/structure/cuda_tools.py: where the CUDA tools and CUTLASS's headers are installed."""

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

# PyPI's packages (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm) put theirs here, on no PATH.
PYPI_TOOLS = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin"
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin", str(PYPI_TOOLS)])
ENVIRONMENT = {**os.environ, "PATH": PATH}


def missing(*tools: str) -> list[str]:
    """Those of the tools that are not there."""
    return [tool for tool in tools if shutil.which(tool, path=PATH) is None]


def cutlass_include() -> Path | None:
    """CUTLASS's headers: MXKERN_CUTLASS_DIR, or PyPI's nvidia-cutlass."""
    places = [Path(os.environ["MXKERN_CUTLASS_DIR"])] if "MXKERN_CUTLASS_DIR" in os.environ else []
    found = importlib.util.find_spec("cutlass_library")
    if found is not None:
        places += [Path(place) / "source" for place in found.submodule_search_locations or []]
    for place in places:
        if (place / "include/cutlass/cutlass.h").exists():
            return place / "include"
    return None
