"""tests/structure/test_documents.py: the index leads to all pages, which name what is there."""

import re
from pathlib import Path

import pytest

from sources import ROOT, tracked

DOCUMENTS = tracked("*.md")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FOLDERS = sorted({path.parts[0] for path in tracked() if len(path.parts) > 1})
# A file or a folder of the project, in full: not `gemm/hopper/gemm.cuh`, and no pattern.
NAMED = re.compile(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*)`")


def anchors(document: Path) -> set[str]:
    """What links can point to inside of a document: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / document).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def linked(document: Path) -> set[Path]:
    """The documents that a document links to."""
    names = {name for name, _ in LINK.findall((ROOT / document).read_text()) if name}
    targets = {(ROOT / document.parent / name).resolve() for name in names}
    return {target.relative_to(ROOT) for target in targets if target.is_relative_to(ROOT)}


def test_every_page_is_reached_from_the_index() -> None:
    assert Path("docs/README.md") in linked(Path("README.md"))
    reached, ahead = set(), {Path("docs/README.md")}
    while ahead:
        reached |= ahead
        pages = set().union(*map(linked, ahead)) & set(DOCUMENTS)
        ahead = {page for page in pages if page.is_relative_to("docs")} - reached
    missing = {path for path in DOCUMENTS if path.is_relative_to("docs")} - reached
    assert not missing, "links lead from docs/README.md to every page"


DATE = re.compile(r"\b\d{4}-\d\d(?:-\d\d)?\b")


def test_docs_are_an_index_and_four_folders() -> None:
    names = {path.parts[1] for path in tracked("docs/*")}
    assert names == {"README.md", "guide", "internals", "performance", "notebook"}


def test_internals_are_six_short_pages_without_dates() -> None:
    pages = {path: (ROOT / path).read_text() for path in tracked("docs/internals/*")}
    assert len(pages) <= 6
    for path, text in pages.items():
        assert len(text.splitlines()) <= 150, path
        shown = re.sub(
            r"\]\([^)]*\)", "]", text
        )  # entries of the notebook have a day in their names
        assert not DATE.findall(shown), f"{path}: the notebook says when"


def test_notebook_has_a_dated_file_for_a_topic() -> None:
    names = {path.name for path in tracked("docs/notebook/*")} - {"README.md"}
    assert names
    assert not [name for name in names if not re.match(r"\d{4}-\d\d-\d\d-[a-z0-9-]+\.md$", name)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_somewhere(document: Path) -> None:
    for name, anchor in LINK.findall((ROOT / document).read_text()):
        target = (ROOT / document.parent / name).resolve() if name else ROOT / document
        assert target.exists(), name
        if anchor:
            assert anchor in anchors(target.relative_to(ROOT)), f"{name}#{anchor}"


# What came with NumPy 2; pyproject.toml allows 1.26.
OF_NUMPY_2 = re.compile(
    r"\.mT\b|\b(?:np|numpy)\.(?:acosh?|asinh?|atan[2h]?|astype|bitwise_(?:count|invert|\w+_shift)"
    r"|concat|cumulative_\w+|isdtype|long|matrix_(?:norm|transpose)|matvec|permute_dims|pow"
    r"|strings|trapezoid|ulong|unique_\w+|unstack|vecdot|vecmat|vector_norm)\b"
)


# PyTorch's tensors have .mT in every version.
MODULES = [
    path
    for path in tracked("python/*.py", "examples/*.py")
    if not path.is_relative_to("python/mxkern/torch")
]


@pytest.mark.parametrize("path", [*DOCUMENTS, *MODULES], ids=str)
def test_nothing_needs_numpy_2(path: Path) -> None:
    assert OF_NUMPY_2.findall((ROOT / path).read_text()) == []


def test_performance_lists_every_machine() -> None:
    folder = ROOT / "docs" / "performance"
    pages = {path.name: path.read_text() for path in folder.glob("*.md")}
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", pages.pop("README.md"), re.MULTILINE)
    titles = {re.search(r"^# (.+)$", text, re.MULTILINE)[1]: name for name, text in pages.items()}
    assert dict(listed) == titles, "docs/performance/README.md lists its machines"


# A change log and the entries of the notebook name what was there.
NAME_WHAT_IS = [d for d in DOCUMENTS if d.name != "CHANGELOG.md" and "notebook" not in d.parts]


@pytest.mark.parametrize("document", NAME_WHAT_IS, ids=str)
def test_files_that_are_named_exist(document: Path) -> None:
    named = set(NAMED.findall((ROOT / document).read_text()))
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing


def test_contributing_names_every_option_of_the_build() -> None:
    files = tracked("*.cmake", "*CMakeLists.txt")
    declared = r"^(?:option\((MXKERN_\w+)|set\((MXKERN_\w+)\s[^)]*?\bCACHE\b)"
    found = [re.findall(declared, (ROOT / path).read_text(), re.MULTILINE) for path in files]
    options = {option or cached for pairs in found for option, cached in pairs}
    assert len(options) > 9
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert not [name for name in options if f"`{name}" not in text]
