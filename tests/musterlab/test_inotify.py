"""Real nodes with few inotify instances left, in a user namespace with its own limit."""

import shutil
import subprocess
import sys

import pytest

from musterlab.realnodes import inotify

LIMIT = 16
OTHERS = f"""
import ctypes, os
from pathlib import Path
from musterlab.realnodes import inotify, kernel
Path("/proc/sys/user/max_inotify_instances").write_text("{LIMIT}")
libc = ctypes.CDLL(None)
others = [libc.inotify_init1(0) for _ in range({LIMIT} - inotify.NODE_INSTANCES + 3)]
assert min(others) >= 0
pauses = []
def pause(seconds):
    pauses.append(seconds)
    os.close(others.pop())
"""


def in_user_namespace(code: str) -> list[str]:
    unshare = ["unshare", "--user", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("no user namespaces here")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", OTHERS + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_node_waits_for_instances_that_others_give_back_and_takes_none_itself() -> None:
    code = """
print(inotify.wait_for_instances(pause=pause))
print(len(pauses))
print(inotify.wait_for_instances(pause=pause))
print(len(pauses))
"""
    assert in_user_namespace(code) == ["", "3", "", "3"]


def test_a_node_without_instances_names_the_setting_that_gives_more() -> None:
    (line,) = in_user_namespace("print(inotify.wait_for_instances(seconds=0, pause=lambda seconds: None))")
    assert line.startswith(
        f"a real node needs {inotify.NODE_INSTANCES} inotify instances, and fewer are left"
    )
    assert "`sysctl fs.inotify.max_user_instances=" in line
