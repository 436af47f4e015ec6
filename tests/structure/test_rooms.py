"""tests/structure/test_rooms.py: imports of the Python package point to their own room or to one
below, no chain of imports comes back, and no folder is crowded."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from sources import (
    FOLDERS,
    MOST_AT_THE_ROOT,
    MOST_IN_A_FOLDER,
    PACKAGE,
    PYTHON_ROOMS,
    python_room_of,
    tracked,
)


def name_of(path: Path) -> str:
    """The full name of a module."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def imports_of(text: str, module: str) -> set[str]:
    """The modules of the package that one of them imports, anywhere in it: in functions, for type
    checkers, and by names in strings, as importlib takes them. Docstrings are no such strings."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in {*MODULES, "mxkern._core"} else node.module for name in names}
        elif isinstance(node, ast.Constant) and node.value in MODULES:
            found |= {node.value} - {"mxkern"}  # which is a word of its own too
    return {name for name in found if name.split(".")[0] == "mxkern"}


IMPORTS = {module: imports_of(path.read_text(), module) for module, path in MODULES.items()}


def test_every_room_is_there() -> None:
    assert {python_room_of(module) for module in MODULES} == {*PYTHON_ROOMS} - {"mxkern._core"}


def test_imports_point_down() -> None:
    floor = {room: index for index, room in enumerate(PYTHON_ROOMS)}
    up = [
        f"{module}: {name}"
        for module, names in IMPORTS.items()
        for name in names
        if floor[python_room_of(name)] > floor[python_room_of(module)]
    ]
    assert not up, f"lowest first: {', '.join(PYTHON_ROOMS)}"


def circles(imports: dict[str, set[str]]) -> list[str]:
    """Modules that an import leads back to, with the chain."""
    found: list[str] = []
    done: set[str] = set()

    def follow(module: str, chain: list[str]) -> None:
        if module in chain:
            found.append(" -> ".join([*chain[chain.index(module) :], module]))
        elif module not in done:
            for name in sorted(imports.get(module, ())):
                follow(name, [*chain, module])
            done.add(module)

    for module in sorted(imports):
        follow(module, [])
    return found


def test_no_chain_of_imports_comes_back() -> None:
    assert not circles(IMPORTS)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b -> c -> b"]


def test_imports_in_functions_and_strings_are_found() -> None:
    lazy = "def f():\n    from mxkern.ops import gemm\n    import_module('mxkern.torch')\n"
    assert imports_of(lazy, "mxkern.values") == {"mxkern.ops.gemm", "mxkern.torch"}


def test_the_root_has_few_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_AT_THE_ROOT


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_is_crowded(folder: str) -> None:
    files = Counter(str(path.parent) for path in tracked() if path.is_relative_to(folder))
    assert files
    crowded = {name: count for name, count in files.items() if count > MOST_IN_A_FOLDER}
    assert not crowded, f"at most {MOST_IN_A_FOLDER} files a folder: cut it in rooms"


def test_names_of_test_files_differ() -> None:
    names = Counter(path.name for path in tracked("tests/**/test_*.py", "tests/test_*.py"))
    assert names
    twice = [name for name, count in names.items() if count > 1]
    assert not twice, "pytest imports them by their names alone"
