"""tests/structure/test_layers.py: includes point to their own layer or to a lower one."""

import re
from pathlib import Path

from sources import (
    BACKENDS,
    INCLUDE,
    LAYER_NAMES,
    NO_BACKEND,
    ROOT,
    cpp_sources,
    layer_of,
)

INCLUDE_LINE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
INCLUDES = [
    (path, bracket, name)
    for path in cpp_sources()
    if layer_of(path) is not None
    for bracket, name in INCLUDE_LINE.findall((ROOT / path).read_text())
]
QUOTED = [(path, name) for path, bracket, name in INCLUDES if bracket == '"']


def resolve(path: Path, name: str) -> Path | None:
    """The project's file that an include in quotes means."""
    folders = [INCLUDE]
    if path.is_relative_to("src"):
        folders += [ROOT / "src", ROOT / path.parent]
    if path.is_relative_to("python/bindings"):
        folders += [ROOT / "python/bindings"]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).resolve().relative_to(ROOT)
    return None


def test_every_layer_was_looked_at() -> None:
    assert {layer_of(path) for path, _, _ in INCLUDES} == set(range(len(LAYER_NAMES)))


def test_quotes_are_for_the_project() -> None:
    wrong = [f"{path}: {name}" for path, name in QUOTED if resolve(path, name) is None]
    wrong += [f"{path}: <{n}>" for path, mark, n in INCLUDES if mark == "<" and "mxkern/" in n]
    assert not wrong, "quotes are for this project's files, angle brackets for everybody else's"


def test_includes_point_down() -> None:
    wrong = []
    for path, name in QUOTED:
        target, own = resolve(path, name), layer_of(path)
        layer = layer_of(target) if target else None
        if own is not None and layer is not None and layer > own:
            wrong.append(f"{path} ({LAYER_NAMES[own]}): {name} ({LAYER_NAMES[layer]})")
    assert not wrong


def test_backends_do_not_know_each_other() -> None:
    apart = {"src/cpu": "src/cuda", "src/cuda": "src/cpu"}
    wrong = [
        f"{path}: {name}"
        for path, name in QUOTED
        for room, other in apart.items()
        if path.is_relative_to(room) and str(resolve(path, name)).startswith(f"{other}/")
    ]
    assert not wrong


def test_plans_and_checks_include_no_backend() -> None:
    below: dict[str, set[str]] = {}
    for path, name in QUOTED:
        below.setdefault(str(path), set()).add(str(resolve(path, name)))

    def reached(path: str) -> set[str]:
        found: set[str] = set()
        ahead = [path]
        while ahead:
            new = below.get(ahead.pop(), set()) - found
            found |= new
            ahead += new
        return found

    starts = sorted({str(path) for path, _, _ in INCLUDES if str(path).startswith(NO_BACKEND)})
    assert all(any(path.startswith(room) for path in starts) for room in NO_BACKEND)
    wrong = [
        f"{path}: {name}"
        for path in starts
        for name in sorted(reached(path))
        if name.startswith(BACKENDS)
    ]
    assert not wrong


def test_public_headers_are_named_in_full() -> None:
    wrong = []
    for path, name in QUOTED:
        target = resolve(path, name)
        if target and target.is_relative_to("include") and f"include/{name}" != str(target):
            wrong.append(f"{path}: {name} is {target.relative_to('include')}")
    assert not wrong


def test_cutlass_stays_in_gemm_kernels() -> None:
    wrong = [
        f"{path}: {name}"
        for path, _, name in INCLUDES
        if re.match("(cutlass|cute)/", name) and path.parent.name != "blackwell"
    ]
    assert not wrong, "only the kernels of gemm/blackwell know of CUTLASS"
