"""The bridge of the real nodes, in a network namespace of its own."""

import shutil
import subprocess
import sys

import pytest

CODE = """
import subprocess
from musterlab.realnodes import kernel
def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
kernel.add_bridge("lab", "02:00:0a:50:00:01")
kernel.bring_up("lab")
print("02:00:0a:50:00:01" in ip("link", "show", "lab"))
ip("link", "add", "low", "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "other")
ip("link", "set", "low", "master", "lab", "up")
print("02:00:0a:50:00:01" in ip("link", "show", "lab"))
ip("link", "del", "low")
print("02:00:0a:50:00:01" in ip("link", "show", "lab"))
"""


def test_the_bridge_keeps_its_address_while_pods_come_and_go() -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--net"]
    if not shutil.which("ip") or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("no iproute2 or no user namespaces here")
    done = subprocess.run([*unshare, sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["True", "True", "True"]
