"""An installation from a bundle in a network in which only this machine answers: `cut_off.py ROOT DIRECTORY`.

A real control plane runs in the same network. The program prints the outcome of each installation, and the number of
packets to other machines.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path


def be_cut_off() -> None:
    """Set up a network whose only route leads to a device without other machines; Linux counts
    the packets sent to it.
    """
    for words in (
        "link set lo up", "link add elsewhere type veth peer name nobody", "link set nobody addrgenmode none",
        "link set elsewhere addrgenmode none", "link set nobody up", "link set elsewhere up",
        "address add 192.0.2.2/24 dev elsewhere", "neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev elsewhere",
        "route add default via 192.0.2.1",
    ):  # fmt: skip
        subprocess.run(["ip", *words.split()], check=True)


def sent_elsewhere() -> int:
    """Return the number of packets sent to the device."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    (counts,) = (line.split(":")[1].split() for line in lines if line.strip().startswith("elsewhere:"))
    return int(counts[9])


def install(directory: Path, bundle: Path, sha256: str, kubeconfig: Path) -> dict[str, object]:
    from tests.deployment.conftest import MUSTER

    words = [
        "install",
        "-i",
        str(directory / "site"),
        "--state-dir",
        str(directory / "state"),
        "--bundle",
        str(bundle),
        "--bundle-sha256",
        sha256,
    ]
    environment = {
        **os.environ, "KUBECONFIG": str(kubeconfig), "XDG_CACHE_HOME": str(directory / "cache"),
        "MUSTER_INSTALLER_CONTENT": str(directory / "content"),
        "ADMIN_PASSWORD": "of admin", "TRIDENT_PASSWORD": "of trident",
    }  # fmt: skip
    done = subprocess.run(
        [*MUSTER, *words], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    return {"code": done.returncode, "output": done.stdout + done.stderr}


def main() -> None:
    root, directory = sys.argv[1], Path(sys.argv[2])
    sys.path.insert(0, root)
    be_cut_off()
    import musterlab.cluster
    from tests.deployment.trident_double import trident

    running = musterlab.cluster.start("cut-off", nodes=1, detach=False, state_dir=directory / "labs")
    before = sent_elsewhere()
    found: dict[str, object] = {}
    digest = hashlib.sha256((directory / "bundle" / "manifest.json").read_bytes()).hexdigest()
    with trident(running.kubeconfig, "26.06.0"), socket.create_server(("127.0.0.1", 8443)):
        found["tampered"] = install(directory, directory / "tampered", digest, running.kubeconfig)
        found["whole"] = install(directory, directory / "bundle", digest, running.kubeconfig)
    found["elsewhere"] = sent_elsewhere() - before
    with socket.socket(type=socket.SOCK_DGRAM) as one:  # TCP would retry after a second
        one.sendto(b"one", ("198.51.100.1", 443))
    found["counted"] = sent_elsewhere() - before
    running.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
