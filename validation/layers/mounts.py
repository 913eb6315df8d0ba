"""Reads the NFS mounts of a host (`findmnt --json`), and the files that hosts wrote there and read."""

import msgspec

from validation.errors import LayerError
from validation.judge.hosts.host_facts import Mount


class _Mount(msgspec.Struct, frozen=True):
    source: str
    target: str
    fstype: str
    options: str
    children: "list[_Mount]" = []


class _Output(msgspec.Struct, frozen=True):
    filesystems: list[_Mount]


def read_mounts(text: str) -> dict[str, Mount]:
    """Return the mounts by directory. A host without a mount prints nothing. Raises LayerError."""
    if not text.strip():
        return {}
    try:
        waiting = msgspec.json.decode(text, type=_Output).filesystems
    except msgspec.DecodeError as error:
        raise LayerError(f"findmnt: {error}; its output: {text.strip()[:100]!r}") from error
    mounts: dict[str, Mount] = {}
    while waiting:
        mount, *waiting = waiting
        mounts[mount.target] = Mount(mount.source, mount.fstype, mount.options.split(","))
        waiting = [*waiting, *mount.children]
    return mounts


def read_written(text: str) -> dict[str, list[str]]:
    """Return, by directory, the names of hosts in the files that the host wrote or read.

    Raises LayerError for an unknown line.
    """
    hosts: dict[str, list[str]] = {}
    for line in text.splitlines():
        directory, space, host = line.rpartition(" ")
        if not space or not directory.startswith("/"):
            raise LayerError(f"no directory and host: {line[:100]!r}")
        hosts.setdefault(directory, []).append(host)
    return hosts
