"""tools/same_code.py: which kernels of two builds have the same machine code.

usage: same_code.py BEFORE AFTER [--list | --bodies]

BEFORE and AFTER are cubins, objects or libraries, or folders of such: build/src, for example. A
kernel is its instructions as cuobjdump prints them, without labels and names of sections, and is
found by its name, whatever file it is in. Ends with 1 where any kernel differs or is in one of them
only; with --list it names those. With --bodies names do not count: each body has to be in both as
many times, so kernels that were only renamed or moved are the same.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s*(.*?)\s*/\*")
SUFFIXES = {".cubin", ".o", ".so", ".a"}


def kernels(path: Path) -> dict[str, tuple[int, str]]:
    """Number of instructions and digest of each kernel of a file, by architecture and name."""
    command = ["cuobjdump", "-sass", str(path)]
    listing = subprocess.run(command, capture_output=True, text=True)
    if listing.returncode != 0:
        return {}  # an object without device code
    found: dict[str, list[str]] = {}
    architecture, code = "", []
    for line in listing.stdout.splitlines():
        if "code for " in line:
            architecture = line.split("code for ")[1].strip()
        elif "Function : " in line:
            name = line.split("Function : ")[1].strip()
            code = found.setdefault(f"{architecture} {name}", [])
        elif match := INSTRUCTION.match(line):
            code.append(match[1])
    return {
        name: (len(code), hashlib.sha256("\n".join(code).encode()).hexdigest())
        for name, code in found.items()
    }


def all_kernels(root: Path) -> dict[str, tuple[int, str]]:
    """Those of a file, or of all in a folder, side by side."""
    files = [root]
    if root.is_dir():
        files = [path for path in root.rglob("*") if path.suffix in SUFFIXES]
    found: dict[str, tuple[int, str]] = {}
    with ProcessPoolExecutor() as pool:
        for one in pool.map(kernels, files):
            found |= one
    return found


def bodies(found: dict[str, tuple[int, str]]) -> Counter[tuple[str, int, str]]:
    """How many kernels of an architecture have a body."""
    return Counter((name.split(" ", 1)[0], *code) for name, code in found.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--list", action="store_true", help="name the kernels that differ")
    parser.add_argument("--bodies", action="store_true", help="compare bodies without their names")
    arguments = parser.parse_args()
    old, new = all_kernels(arguments.before), all_kernels(arguments.after)
    if arguments.bodies:
        before, after = bodies(old), bodies(new)
        same, one_sided = (before & after).total(), (before - after) + (after - before)
        print(f"{same} bodies are the same, {one_sided.total()} are in one of the two only")
        return one_sided.total() > 0 or not old
    differing = sorted(name for name in old | new if old.get(name) != new.get(name))
    print(f"{len(old | new) - len(differing)} kernels are the same, {len(differing)} are not")
    for name in differing if arguments.list else []:
        counts = [code[name][0] if name in code else None for code in (old, new)]
        print(f"  {name}: {counts[0]} instructions before, {counts[1]} after")
    return len(differing) > 0 or not old


if __name__ == "__main__":
    sys.exit(main())
