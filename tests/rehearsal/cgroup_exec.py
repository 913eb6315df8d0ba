"""Runs a program in cgroups of its own: `python -m tests.rehearsal.cgroup_exec NAME PROGRAM…`.

systemd-nspawn makes the cgroup that it starts in the root of its guest's: without this two guests would share one.
"""

import os
import sys

from musterlab.realnodes import cgroups


def main(name: str, *words: str) -> None:
    """Become a program in a cgroup of this name in every hierarchy."""
    for mount in cgroups.hierarchies():
        folder = mount / name
        if not folder.is_dir():
            cgroups.make(folder)
        cgroups.join(folder)
    os.execvp(words[0], words)  # noqa: S606 - a program with its arguments, without a shell


if __name__ == "__main__":
    main(*sys.argv[1:])
