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


def measure(number: int, seconds: float) -> tuple[float, float, float]:
    """Return the wall time of a run over this number of hosts, the processor time of muster, and that of the hosts."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        directory = Path(folder)
        with hosts_over_ssh(directory, [f"dgx1-{index + 1}" for index in range(number)]) as site:
            for host in site.hosts.values() if seconds else ():
                for program, script in PROGRAMS.items():
                    if program != "cat":  # the shell around each tool uses it
                        host.install(program, f"sleep {seconds}\n{script.format(d=host.output)}")
            command = [*MUSTER, *site.command(directory / "r")]
            before, began = spent(), time.monotonic()
            subprocess.run(command, capture_output=True, check=False)
            wall, own = time.monotonic() - began, spent() - before
        return wall, own, spent() - before - own  # the servers have ended


def spent() -> float:
    """Return the processor time of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0, help="time of each tool")
    parser.add_argument("hosts", type=int, nargs="+", help="numbers of hosts")
    chosen = parser.parse_args()
    first = None
    for number in chosen.hosts:
        wall, own, hosts = measure(number, chosen.seconds)
        first = first or wall
        print(
            f"{number} hosts: {wall:.1f} s ({wall / first:.2f}); "
            f"processor: muster {own:.1f} s, simulated hosts {hosts:.1f} s"
        )


if __name__ == "__main__":
    main()
