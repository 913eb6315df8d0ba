"""Runs a program in its own cgroups: `python -m tests.rehearsal.cgroup_exec NAME PROGRAM…`.

The cgroup in which systemd-nspawn starts becomes the root of its guest's cgroups. Without this program two guests would
share the root.
"""

import os
import sys

from musterlab.realnodes import cgroups


def main(name: str, *words: str) -> None:
    """Move the process into a cgroup of this name in every hierarchy, and execute the program."""
    for mount in cgroups.hierarchies():
        folder = mount / name
        if not folder.is_dir():
            cgroups.make(folder)
        cgroups.join(folder)
    os.execvp(words[0], words)  # noqa: S606 - a program with its arguments, without a shell


if __name__ == "__main__":
    main(*sys.argv[1:])
