"""tools/same_code.py: which kernels of two builds have the same machine code.

usage: same_code.py BEFORE AFTER [--list]

BEFORE and AFTER are cubins, objects or libraries, or folders with files of the same names. A
kernel is its instructions as cuobjdump prints them, without labels and names of sections. Ends
with 1 where any kernel differs or is in one of them only; with --list it names those.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s*(.*?)\s*/\*")
SUFFIXES = {".cubin", ".o", ".so", ".a"}


def kernels(path: Path) -> dict[str, list[str]]:
    """The instructions of each kernel of a file, by architecture and mangled name."""
    command = ["cuobjdump", "-sass", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    architecture, code = "", []
    for line in text.splitlines():
        if "code for " in line:
            architecture = line.split("code for ")[1].strip()
        elif "Function : " in line:
            name = line.split("Function : ")[1].strip()
            code = found.setdefault(f"{architecture} {name}", [])
        elif match := INSTRUCTION.match(line):
            code.append(match[1])
    return found


def pairs(before: Path, after: Path) -> list[tuple[Path, Path]]:
    if before.is_file():
        return [(before, after)]
    files = [path.relative_to(before) for path in before.rglob("*") if path.suffix in SUFFIXES]
    return [(before / name, after / name) for name in sorted(files) if (after / name).exists()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--list", action="store_true", help="name the kernels that differ")
    arguments = parser.parse_args()
    found = pairs(arguments.before, arguments.after)
    if not found:
        print(f"no file of {arguments.before} has a namesake in {arguments.after}")
        return 1
    total = 0
    for before, after in found:
        old, new = kernels(before), kernels(after)
        differing = sorted(name for name in old | new if old.get(name) != new.get(name))
        total += len(differing)
        print(f"{before.name}: {len(old | new) - len(differing)} kernels are the same", end="")
        print(f", {len(differing)} are not" if differing else "")
        for name in differing if arguments.list else []:
            counts = [len(code[name]) if name in code else None for code in (old, new)]
            print(f"  {name}: {counts[0]} instructions before, {counts[1]} after")
    return total > 0


if __name__ == "__main__":
    sys.exit(main())
