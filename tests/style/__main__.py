"""`python -m tests.style`: count the patterns of the style, and store counts that have fallen.

python -m tests.style PATH...     print the findings in files and folders
python -m tests.style             print the sums, and the findings above a stored count
python -m tests.style --lower     store what has fallen
python -m tests.style --moved     store the counts of moved files, where no sum of a package has risen
"""

import argparse
import sys
from collections import Counter

from tests.style import counts


def main() -> int:
    """Run the command and return its exit code: 1 where a count is above the stored one."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.style", description="Count the patterns of the style."
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="Print the findings in these files and folders."
    )
    parser.add_argument("--lower", action="store_true", help="Store the counts that have fallen.")
    parser.add_argument(
        "--moved", action="store_true", help="Store the counts of files that were moved in a package."
    )
    options = parser.parse_args()
    found = counts.all_findings()
    if options.paths:
        inside = tuple(path.rstrip("/") + "/" for path in options.paths)
        findings = [each for each in found if f"{each.file}/".startswith(inside)]
        print(*findings, f"{len(findings)} findings", sep="\n")
        return 0
    now = counts.counted(found)
    stored = counts.load(counts.STORED.read_text(encoding="utf-8"))
    if options.moved:
        stored, rises = counts.moved(stored, now)
        print(
            *(f"a sum of a package has risen: {each}" for each in rises), sep="\n", end="\n" if rises else ""
        )
    if options.lower:
        stored = counts.lowered(stored, now)
    if options.lower or options.moved:
        counts.STORED.write_text(counts.dump(stored), encoding="utf-8")
    else:
        total: Counter[str] = Counter(f"{each.kind}.{each.pattern}" for each in found)
        print(*(f"{number:6} {each}" for each, number in sorted(total.items())), sep="\n")
    risen = counts.risen(stored, now)
    if risen:
        print(counts.report(found, stored, risen))
        print(f"{len(risen)} counts are above the stored ones; --moved, where files were only moved")
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main())
