"""`python -m tests.rights DIRECTORY`: print rights that were granted and never used, by the audit logs of the labs
there.

Further arguments name the part of the tests that ran: then unused rights are no failure.
"""

import sys
from pathlib import Path

from tests.rights.rights import granted, reasons, unused, used


def main(directory: Path, *part: str) -> int:
    """Print the rights that were never used and have no reason. Return 1 if there are any and all tests ran."""
    rights, uses = granted(), used(directory)
    print(
        f"{len(rights)} rights are granted; {len(uses)} were used, by {len(list(directory.glob('*.log')))} audit logs"
    )
    known = reasons()
    left = [right for right in unused(rights, uses) if not any(reason.covers(right) for reason in known)]
    for right in left:
        print(f"granted, never used, without a reason in tests/rights/unused.yaml: {right}")
    if part:
        print(f"only a part of the tests ran ({' '.join(part)}): this proves nothing")
        return 0
    return 1 if left or not uses else 0


sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
