"""tools/count_tests.py: one line that sums the reports of a test run."""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def count(report: Path) -> Counter[str]:
    """The results of the test cases in one JUnit file, as pytest and GoogleTest write it."""
    results: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            results["failed"] += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            results["skipped"] += 1
        else:
            results["passed"] += 1
    return results


def main() -> int:
    folder = Path(sys.argv[1])
    cpp = sum((count(report) for report in folder.glob("cpp/*.xml")), Counter())
    python = count(folder / "python.xml")
    total = cpp + python
    print(
        f"mxkern: {total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped "
        f"({cpp.total()} C++ tests, {python.total()} Python tests)"
    )
    return int(total["failed"] > 0 or cpp["passed"] == 0 or python["passed"] == 0)


if __name__ == "__main__":
    sys.exit(main())
