"""Storage of the rehearsal: `python -m tests.rehearsal.storage FOLDER HOSTS KUBECONFIG`.

The CSI driver of muster's labs serves folders of the machine to the kubelets of the hosts. Kubernetes'
external-provisioner and external-snapshotter call the driver. The driver stands in for Trident on ONTAP, but claims,
volumes and mounts are real.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Final

from musterlab import binaries
from musterlab.storage import driver, recipe, serving
from orchestrator.progress import terminal_reporter
from tests.rehearsal import machines

VOLUMES: Final = "volumes"
"""Folder of the rehearsal that every host sees under the same path."""


def main(folder: Path, hosts: Path, kubeconfig: Path) -> None:
    """Serve volumes to the hosts until a kubelet refuses the driver."""
    known = {machine.name: machine for machine in machines.load(hosts)}

    def process(name: str) -> int:
        """Return the process id of a host's init, which changes when the host restarts."""
        return next(machine.leader for machine in machines.load(hosts) if machine.name == name)

    found = binaries.find(terminal_reporter(), recipe.STORAGE_PROGRAMS)
    asyncio.run(serving.prepare_cluster(kubeconfig, found.directory / recipe.DEFINITIONS))
    # The path of a socket must be short, and paths below the disk of a host are not.
    with tempfile.TemporaryDirectory(prefix="muster-csi-") as links, contextlib.ExitStack() as stack:
        kubelets = {name: Path(links) / name for name in known}
        for name, machine in known.items():
            kubelets[name].symlink_to(machine.disk / "var/lib/kubelet")
        access = f"--kubeconfig={kubeconfig}"
        address = f"--csi-address={next(iter(kubelets.values())) / driver.SOCKET}"
        sidecars = (
            (recipe.PROVISIONER, access, address),
            (recipe.SNAPSHOTTER, access, address),
            (recipe.SNAPSHOT_CONTROLLER, access),
        )
        for name, *options in sidecars:
            command = [str(found.paths[name]), *options]
            stack.enter_context(serving.bound_process(command, folder / "logs" / f"{name}.log"))
        reason = asyncio.run(driver.serve(process, folder / VOLUMES, kubelets))
    sys.exit(f"the kubelet refuses it: {reason}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
