# mxkern/values/about.py: what this build is and what it found on this machine.
from __future__ import annotations

import os
from typing import NamedTuple

from mxkern import _core

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Info(NamedTuple):
    """What mxkern.info() says; prints as a list."""

    version: str
    build: str
    instruction_set: str
    gemm_unit: str
    threads: int
    threads_from: str
    built_with_cuda: bool
    cuda: str
    blackwell: str
    jax: str
    devices: tuple[str, ...]
    package: str

    def __str__(self) -> str:
        lines = [
            ("build", self.build),
            ("instruction set", self.instruction_set),
            ("gemm unit", self.gemm_unit),
            ("threads", f"{self.threads}, from {self.threads_from}"),
            ("CUDA", self.cuda),
            ("Blackwell", self.blackwell),
            ("JAX", self.jax),
            ("devices", "none" if not self.devices else self.devices[0]),
            *(("", device) for device in self.devices[1:]),
            ("package", self.package),
        ]
        return "\n".join(
            [f"mxkern {self.version}", *(f"  {name:16}{text}" for name, text in lines)]
        )

    def __repr__(self) -> str:
        return str(self)


def info() -> Info:
    """Version, build, instruction set in use, threads, CUDA or why not, devices. Touches no
    network.

    >>> import mxkern
    >>> mxkern.info().version == mxkern.__version__
    True
    """
    return Info(**_core.info(), jax=_jax(), package=_FOLDER)


def _jax() -> str:
    version = _core.xla_version()
    if version is None:
        return "no programs: jaxlib's headers were not found at build time"
    return f"programs by version {version[0]}.{version[1]} of XLA's interface"


def cmake_dir() -> str:
    """The folder of mxkernConfig.cmake, for -Dmxkern_DIR=... or CMAKE_PREFIX_PATH.

    Raises RuntimeError where the package runs from a build tree, which has none.
    """
    folder = os.path.join(_FOLDER, "lib", "cmake", "mxkern")
    if not os.path.isfile(os.path.join(folder, "mxkernConfig.cmake")):
        raise RuntimeError(
            f"cmake_dir: {folder} has no mxkernConfig.cmake; expected an installed mxkern; install "
            "it with pip install ."
        )
    return folder
