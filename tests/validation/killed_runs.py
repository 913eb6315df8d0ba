"""Starts runs on a double of a cluster and kills each with SIGKILL at a random moment: `killed_runs.py OUT COUNT SEED`.

A program of its own, because it forks: the modules are loaded once.
"""

import os
import random
import select
import signal
import sys
import time
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


def wait_for_log(directory: Path, never: int) -> None:
    while not (directory / NAME).exists():
        select.select([never], [], [], 0.001)


def main() -> None:
    out, count, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))  # noqa: S311
    never, _ = os.pipe()
    run_command([GANG, VICTIM], settings(out / "first", parts=["gangs", "victims"]))  # loads the modules
    child = begin(out / "whole")
    wait_for_log(out / "whole", never)
    started = time.monotonic()
    os.waitpid(child, 0)
    lasts = time.monotonic() - started
    for number in range(count):
        directory = out / f"{number:02}"
        child = begin(directory)
        wait_for_log(directory, never)
        select.select([never], [], [], chance.uniform(0, lasts))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
