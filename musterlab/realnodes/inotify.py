"""Waits for free inotify instances. Programs watch files with them, and Linux allows each user 128 by default."""

import time
from collections.abc import Callable
from pathlib import Path

from musterlab.realnodes import kernel

KUBELET_INSTANCES = 6
NODE_INSTANCES = 10
"""Inotify instances of a node's programs: the kubelet's, containerd 2, NVIDIA's plugin 1. A program that gets no
instance ends with a vague message, or continues and misses changes of files.
"""

WAIT_SECONDS = 100.0
_POLL_SECONDS = 0.2


def wait_for_instances(
    count: int = NODE_INSTANCES,
    seconds: float = WAIT_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> str:
    """Wait until this user can have `count` more inotify instances, because other labs free theirs when they end.

    Return "", or the reason if there are too few after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not kernel.can_watch(count):
        if time.monotonic() > deadline:
            limit = Path("/proc/sys/fs/inotify/max_user_instances").read_text().strip()
            return (
                f"a real node needs {count} inotify instances, and fewer are left of the {limit} of this user: "
                "stop other labs, or have more by `sysctl fs.inotify.max_user_instances=1024`"
            )
        pause(_POLL_SECONDS)
    return ""
