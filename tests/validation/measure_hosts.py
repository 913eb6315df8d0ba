"""Measures `muster validate` over SSH for several numbers of simulated hosts: real OpenSSH servers, recorded outputs.

python -m tests.validation.measure_hosts 4 32
python -m tests.validation.measure_hosts --seconds 1 4 32     # each tool takes a second
"""

import argparse
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from tests.control.operators import MUSTER
from tests.validation.test_hosts_over_ssh import PROGRAMS, hosts_over_ssh


def measure(number: int, seconds: float) -> tuple[float, float]:
    """Return the wall time of a run over this number of hosts, and the processor time of muster alone."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        directory = Path(folder)
        with hosts_over_ssh(directory, [f"dgx1-{index + 1}" for index in range(number)]) as site:
            for host in site.hosts.values() if seconds else ():
                for program, script in PROGRAMS.items():
                    if program != "cat":  # the shell around each tool uses it
                        host.install(program, f"sleep {seconds}\n{script.format(d=host.output)}")
            command = [*MUSTER, *site.command(directory / "r")]
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run(command, capture_output=True, check=False)
            wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, spent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0, help="time of each tool")
    parser.add_argument("hosts", type=int, nargs="+", help="numbers of hosts")
    chosen = parser.parse_args()
    first = None
    for number in chosen.hosts:
        wall, spent = measure(number, chosen.seconds)
        first = first or wall
        print(f"{number} hosts: {wall:.1f} s, muster itself {spent:.1f} s of processor: {wall / first:.2f}")


if __name__ == "__main__":
    main()
