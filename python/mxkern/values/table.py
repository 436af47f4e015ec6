# mxkern/values/table.py: rows of text in aligned columns.
from __future__ import annotations

from collections.abc import Sequence


def format_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = ()
) -> str:
    """Aligns columns to the right, or to the left where the header is named in `left`."""
    lines = [list(headers), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    lines.insert(1, ["-" * width for width in widths])

    def aligned(line: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if header in left else cell.rjust(width)
            for cell, width, header in zip(line, widths, headers, strict=True)
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(map(aligned, lines))
