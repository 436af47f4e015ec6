"""tests/structure/header_chains.py: which headers one compilation proves to compile alone.

Of two headers in one source the second may live on what the first brings along, unless it includes
the first itself: then it sees what it would see alone. So a chain, each of whose headers includes
the one before, is one source. What a header includes besides is in a chain of its own.
"""

import functools
from pathlib import Path

from sources import INCLUDE


@functools.cache
def included(header: Path) -> frozenset[Path]:
    """The headers of the project that come before all else in a header, and so on, whatever is
    defined: those below an #if or below code are left out."""
    found: set[Path] = set()
    depth = 0
    for line in (INCLUDE / header).read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word.startswith("#if"):
            depth += 1
        elif word == "#endif":
            depth -= 1
        elif word == "#include" and depth == 0 and rest.startswith('"mxkern/'):
            path = Path(rest.split('"')[1])
            found |= {path} | included(path)
        elif line and depth == 0 and not line.startswith(("//", "#")):
            break
    return frozenset(found)


def chains(headers: list[Path]) -> list[list[Path]]:
    """All headers in as few chains as there can be, lowest first: a maximum matching of headers
    with headers that include them."""
    above: dict[Path, Path] = {}

    def extend(header: Path, seen: set[Path]) -> bool:
        for lower in sorted(included(header).intersection(headers) - seen):
            if lower in seen:
                continue
            seen.add(lower)
            if lower not in above or extend(above[lower], seen):
                above[lower] = header
                return True
        return False

    for header in headers:
        extend(header, set())
    listed = [[lowest] for lowest in headers if lowest not in above.values()]
    for chain in listed:
        while chain[-1] in above:
            chain.append(above[chain[-1]])
    return listed
