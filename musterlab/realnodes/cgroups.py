"""The cgroups of a node, in version 1 and 2; `musterlab.supervisor` removes them. Standard library only."""

import os
from pathlib import Path

_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


def hierarchies() -> dict[Path, str]:
    """Return the kind, `cgroup` or `cgroup2`, of each cgroup hierarchy of this machine, by its mount point.

    If there are hierarchies of version 1, a `cgroup2` beside them has no controllers and is left out.
    """
    hierarchy_types = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        if kind in ("cgroup", "cgroup2"):
            hierarchy_types[Path(fields.split()[4])] = kind
    first_version = {path: kind for path, kind in hierarchy_types.items() if kind == "cgroup"}
    return first_version or hierarchy_types


def make(folder: Path) -> None:
    """Make a cgroup in which containers can get limits of their own."""
    folder.mkdir()
    if folder.parent.joinpath("cgroup.subtree_control").exists():
        return
    for name in (
        "cpuset.cpus",
        "cpuset.mems",
    ):  # in version 1, no process may enter a new cgroup before these files have values
        if (folder / name).exists():
            (folder / name).write_text((folder.parent / name).read_text())


def join(folder: Path) -> None:
    """Move the calling process into a cgroup."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def delegate(folder: Path) -> None:
    """Move the calling process from a cgroup of version 2 into its child `init`, and enable the controllers for its
    children.

    Version 2 enables controllers only while no process is in `folder` itself.
    """
    leaf = folder / "init"
    leaf.mkdir()
    join(leaf)
    available = (folder / "cgroup.controllers").read_text().split()
    for controller in _V2_CONTROLLERS:
        if controller in available:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
