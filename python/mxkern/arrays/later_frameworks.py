# mxkern/arrays/later_frameworks.py: to learn that a framework was imported, after mxkern was.
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class ImportWatch:
    """A finder of modules that finds none itself. It asks the others, and has the loader of an
    awaited module call meet() once that is loaded."""

    def __init__(self, names: Sequence[str], meet: Callable[[], None]) -> None:
        self._awaited = {name for name in names if name not in sys.modules}
        self._meet = meet
        self._thread = threading.local()
        if self._awaited:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._awaited or getattr(self._thread, "is_asking", False):
            return None
        self._thread.is_asking = True
        try:
            spec = find_spec(name)
        finally:
            self._thread.is_asking = False
        if spec is not None:
            with suppress(AttributeError):  # a loader of an unusual kind: an array will do
                self._watch(name, spec.loader)
        return spec

    def _watch(self, name: str, loader: Any) -> None:
        load = loader.exec_module

        def load_and_meet(module: ModuleType) -> None:
            load(module)
            self._awaited.discard(name)
            if not self._awaited and self in sys.meta_path:
                sys.meta_path.remove(self)
            # What goes wrong here goes wrong again, and is said, at the first call that needs it.
            with suppress(Exception):
                self._meet()

        loader.exec_module = load_and_meet
