"""The network of the rehearsal: a namespace with a bridge and no way out, which counts and refuses packets to other
networks.
"""

import re
import shutil
import subprocess
from typing import Final

from tests.deployment.hosts.bases import Unusable, call

NAME: Final = "muster-rehearsal"
BRIDGE: Final = "br0"
CONTROLLER: Final = "10.90.0.1"
NETWORK: Final = "10.90.0.0/16"
PROGRAMS: Final = ("ip", "iptables", "nsenter")
DEBIAN_PACKAGES: Final = ("iproute2", "iptables", "util-linux")

_PATH: Final = f"/run/netns/{NAME}"
_WAYS_OUT: Final = {"OUTPUT": "the controller", "FORWARD": "the hosts and their pods"}


def missing() -> list[str]:
    """Return the Debian packages that the network needs and the machine lacks."""
    pairs = zip(PROGRAMS, DEBIAN_PACKAGES, strict=True)
    return [package for program, package in pairs if not shutil.which(program)]


def inside(*words: str) -> list[str]:
    """Return the words that run a program in the namespace. `ip netns exec` would also mount another /sys."""
    return ["nsenter", f"--net={_PATH}", *words]


def create() -> None:
    """Make the namespace with its bridge, and rules that count and refuse every packet to another network. Raises
    Unusable.
    """
    call(["ip", "netns", "add", NAME])
    for words in (
        ("link", "set", "lo", "up"),
        # Without an address of its own, a bridge takes another one when hosts come and go.
        ("link", "add", BRIDGE, "address", "02:00:00:00:00:01", "type", "bridge"),
        ("address", "add", f"{CONTROLLER}/16", "dev", BRIDGE),
        ("link", "set", BRIDGE, "up"),
        # A default route brings packets to other networks to the rules, which count them.
        ("route", "add", "default", "dev", BRIDGE),
    ):
        call(["ip", "-n", NAME, *words])
    call(inside("sysctl", "-qw", "net.ipv4.ip_forward=1"))
    for chain in _WAYS_OUT:
        call(inside("iptables", "-A", chain, "-o", "lo", "-j", "ACCEPT"))
        call(inside("iptables", "-A", chain, "-d", NETWORK, "-j", "ACCEPT"))
        call(inside("iptables", "-A", chain, "-j", "REJECT"))


def exists() -> bool:
    """Return whether the namespace exists."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return NAME in (line.split()[0] for line in listed.splitlines() if line)


def refused_packets() -> dict[str, int]:
    """Return the number of refused packets by origin. Raises Unusable."""
    counted = {}
    for chain, origin in _WAYS_OUT.items():
        words = inside("iptables", "-L", chain, "-v", "-x", "-n")
        listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        found = re.search(r"^\s*(\d+)\s+\d+\s+REJECT\b", listed, re.MULTILINE)
        if found is None:
            raise Unusable(f"the namespace {NAME} has no rule that refuses packets in {chain}: {listed}")
        counted[origin] = int(found[1])
    return counted


def interfaces() -> list[str]:
    """Return the names of the namespace's interfaces. Each guest adds one, and none leads out."""
    listed = subprocess.run(
        ["ip", "-n", NAME, "-o", "link", "show"], capture_output=True, text=True, check=False
    ).stdout
    return [line.split(": ")[1].partition("@")[0] for line in listed.splitlines()]


def destroy() -> None:
    """Delete the namespace if it exists."""
    if exists():
        call(["ip", "netns", "delete", NAME])
