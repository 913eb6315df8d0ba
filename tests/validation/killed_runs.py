"""Starts runs on a double of a cluster and kills each with SIGKILL at a random moment: `killed_runs.py OUT COUNT SEED`.

A moment is a size of the log in bytes, so that it does not depend on the speed of the machine.

It is a separate program, because it forks after it has loaded the modules once.
"""

import os
import random
import select
import signal
import sys
from pathlib import Path

from tests.validation.replay import GANG, VICTIM, run_command, settings
from validation.report.log import NAME


def begin(directory: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            run_command([GANG, VICTIM], settings(directory, parts=["gangs", "victims"]))
        finally:
            os._exit(0)
    return child


def wait_for_log(path: Path, size: int, child: int, never: int) -> None:
    """Wait until the log has this size, or the run has ended."""
    while not path.exists() or path.stat().st_size < size:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        select.select([never], [], [], 0.0005)


def main() -> None:
    out, count, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))  # noqa: S311
    never, _ = os.pipe()
    # this run also loads the modules
    run_command([GANG, VICTIM], settings(out / "first", parts=["gangs", "victims"]))
    os.waitpid(begin(out / "whole"), 0)
    whole = (out / "whole" / NAME).stat().st_size
    for number in range(count):
        directory = out / f"{number:02}"
        child = begin(directory)
        wait_for_log(directory / NAME, chance.randrange(1, whole), child, never)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
