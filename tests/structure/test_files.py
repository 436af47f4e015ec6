"""tests/structure/test_files.py: each file says what it is, is short, and holds no leftovers."""

import re
from pathlib import Path

from sources import ROOT, cpp_sources, tracked

# Past this, look twice for a second idea. A file that reads better whole has its reason here.
LONGEST = 400
READS_BETTER_WHOLE: dict[str, str] = {}
TEXTS = {path: (ROOT / path).read_text() for path in [*cpp_sources(), *tracked("*.py")]}
SOURCES = {path: text for path, text in TEXTS.items() if text.strip()}


def names_itself(path: Path, text: str) -> bool:
    """Whether the first line is `path: one clause`; the path may leave out leading folders."""
    match = re.match(r'(?://|#|""")\s*([\w./]+): \S', text)
    named = Path(match[1]).parts if match else ()
    whole = path.parent if path.name == "__init__.py" else path
    return len(named) > 0 and named in (path.parts[-len(named) :], whole.parts[-len(named) :])


def test_first_line_names_the_file() -> None:
    wrong = {
        str(path): text.splitlines()[0]
        for path, text in SOURCES.items()
        if not names_itself(path, text)
    }
    assert not wrong, "the first line of a file reads 'path: one clause'"


def test_length() -> None:
    lines = {str(path): len(text.splitlines()) for path, text in SOURCES.items()}
    long = {path: count for path, count in lines.items() if count > LONGEST}
    assert long.keys() == READS_BETTER_WHOLE.keys(), f"past {LONGEST} lines, look twice: {long}"


def test_no_leftovers() -> None:
    leftover = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + r"X)\b")
    found = [str(path) for path, text in SOURCES.items() if leftover.search(text)]
    assert not found, "finish it, or open an issue for it"


def test_macros_are_ours_by_name() -> None:
    wrong = [
        f"{path}: {name}"
        for path, text in SOURCES.items()
        if path.suffix != ".py"
        for name in re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE)
        if not name.startswith("MXKERN_")
    ]
    assert not wrong, "macros begin with MXKERN_"
