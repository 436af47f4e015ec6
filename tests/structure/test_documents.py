"""tests/structure/test_documents.py: the README leads to all pages, which name what is there."""

import re
from pathlib import Path

import pytest

from sources import ROOT, tracked

DOCUMENTS = tracked("*.md")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FOLDERS = sorted({path.parts[0] for path in tracked() if len(path.parts) > 1})
# A file or a folder of the project, in full: not `gemm_sm90.cuh`, and no pattern.
NAMED = re.compile(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*)`")


def anchors(document: Path) -> set[str]:
    """What links can point to inside of a document: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / document).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_leads_to_every_document() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}
    missing = {str(path) for path in DOCUMENTS if path.is_relative_to("docs")} - linked
    assert not missing, "README.md links to every page of docs/"


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
    text = (ROOT / "docs" / "performance" / "README.md").read_text()
    introduction, _, tables = text.partition("<!-- begin: python -m bench.report")
    machines = re.findall(r"^## (.+)$", tables, re.MULTILINE)
    listed = re.findall(r"^- \[(.+)\]\(#", introduction, re.MULTILINE)
    assert machines == listed, "docs/performance/README.md begins with a list of its machines"


# A change log names what was there.
@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.name != "CHANGELOG.md"], ids=str)
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
