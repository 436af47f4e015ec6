"""tools/requirements.py: the requirements that pyproject.toml states, one a line, for pip.

usage: requirements.py GROUP..., where a group is `build`, `runtime` or the name of an extra.
"""

import sys
import tomllib
from pathlib import Path


def main() -> None:
    settings = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    groups = {
        "build": settings["build-system"]["requires"],
        "runtime": settings["project"]["dependencies"],
        **settings["project"]["optional-dependencies"],
    }
    for group in sys.argv[1:]:
        print(*groups[group], sep="\n")


if __name__ == "__main__":
    main()
