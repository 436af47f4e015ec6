# mxkern/checkpoints/conversion.py: what a conversion did, or would do.
from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from mxkern.values.errors import printable
from mxkern.values.scheme import Scheme


class Conversion(NamedTuple):
    """What convert_checkpoint did; with dry_run what it would do."""

    scheme: Scheme
    quantized: list[str]  # modules, or stacks of experts
    left: dict[str, str]  # other modules with matrices, and stacks of these: why
    bytes_before: int  # of all tensors
    bytes_after: int
    not_copied: list[str]  # files and folders
    poisoned: dict[str, int]  # of those quantized, with NaN or infinity: in how many blocks
    heads: list[str]  # of those quantized, heads such as score and classifier
    apart: list[str]  # of those left, layers that some programs merge with quantized ones
    files: dict[str, int]  # that the target has, and their bytes
    loads_with: str  # programs
    is_dry: bool  # nothing was written

    def __str__(self) -> str:
        before, after = (count / 1e6 for count in (self.bytes_before, self.bytes_after))
        count = len(self.quantized)
        lines = [
            f"{count} of {count + len(self.left)} weights {'would be ' if self.is_dry else ''}"
            f"quantized to {self.scheme.name}; {before:,.1f} MB of tensors are {after:,.1f} MB"
        ]
        if self.poisoned:
            blocks = sum(self.poisoned.values())
            lines.append(
                f"blocks that are NaN now, with NaN or infinity in them: {blocks}, in "
                f"{_some(self.poisoned)}"
            )
        reasons: dict[str, list[str]] = {}
        for module, reason in self.left.items():
            reasons.setdefault(reason, []).append(module)
        for reason, modules in reasons.items():
            lines.append(f"left as they are, {reason}: {_some(modules)}")
        if self.heads:
            lines.append(f"heads that are quantized too: {_some(self.heads)}")
        if self.apart:
            lines.append(
                "warning: programs that merge layers, such as vLLM, load no layer that is left "
                f"beside quantized ones of its group: {_some(self.apart)}"
            )
        if self.not_copied:
            lines.append(f"not copied: {', '.join(map(printable, self.not_copied))}")
        if self.is_dry:
            lines += [f"{size:>16,} bytes  {printable(name)}" for name, size in self.files.items()]
            lines.append(f"{sum(self.files.values()):>16,} bytes in {len(self.files)} files")
            lines.append(f"loads with: {self.loads_with}")
        return "\n".join(lines)


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(printable(name) for name in list(names)[:3]) + more
