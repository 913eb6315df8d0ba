"""Serves volumes, clones and snapshots to the real nodes of a running lab while a block runs.

One process of the lab's own CSI driver serves all nodes from one folder of volumes. Kubernetes' sidecars, which are
external-provisioner and external-snapshotter, call it at the socket of the first node. A lab does not start these
programs by itself.
"""

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from musterlab import binaries, components, pdeathsig_exec, pki
from musterlab.cluster import Lab
from musterlab.errors import LabError, StartError
from musterlab.realnodes import plan
from musterlab.storage import driver, recipe
from musterlab.storage.nodes import check_visible, real_nodes
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    STORAGE_CLASSES,
    VOLUME_SNAPSHOT_CLASSES,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter

CLASS: Final = "lab"
"""Name of the StorageClass, which is the default, and of the VolumeSnapshotClass."""
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)

_USER: Final = "muster-lab:storage"
_FOLDER: Final = "storage"
_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "update", "patch", "delete"]
_STORAGE_GROUP: Final = "storage.k8s.io"
_SNAPSHOT_GROUP: Final = "snapshot.storage.k8s.io"
_GROUP_SNAPSHOT_GROUP: Final = "groupsnapshot.storage.k8s.io"
_CONTENTS: Final = ["volumesnapshotcontents", "volumesnapshotcontents/status"]
_SNAPSHOTS: Final = ["volumesnapshots", "volumesnapshots/status"]
_RULES: Final[tuple[Mapping[str, list[str]], ...]] = (
    {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": [*_READ, "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": [*_READ, "update"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch", "create", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": _READ},
    {
        "apiGroups": [_STORAGE_GROUP],
        "resources": ["storageclasses", "csinodes", "volumeattachments"],
        "verbs": _READ,
    },
    {"apiGroups": [_SNAPSHOT_GROUP], "resources": ["volumesnapshotclasses"], "verbs": _READ},
    {"apiGroups": [_SNAPSHOT_GROUP], "resources": [*_CONTENTS, *_SNAPSHOTS], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": [_GROUP_SNAPSHOT_GROUP], "resources": ["*"], "verbs": [*_READ, *_WRITE]},
)
"""The rights in the manifests of external-provisioner and external-snapshotter, for the features that the lab uses."""


@contextlib.contextmanager
def storage(lab: Lab, reporter: Reporter) -> Iterator[None]:
    """Serve storage to the real nodes while the block runs. The volumes stay in the lab's directory.

    Raises:
        BinariesError: no source has a program and it cannot be built.
        LabError: the lab has no real nodes, or they do not see the lab's directory.
        StartError: a program ended, or no kubelet knew the driver in time.
    """
    nodes = real_nodes(lab)
    programs = binaries.find(reporter, recipe.STORAGE_PROGRAMS)
    folder = lab.state_directory / _FOLDER
    check_visible(folder)
    # paths of sockets must be short, and the lab's directory can have a long path
    with (
        _alone(folder, lab),
        tempfile.TemporaryDirectory(prefix="muster-csi-") as links,
        contextlib.ExitStack() as stack,
    ):
        asyncio.run(prepare_cluster(lab.kubeconfig, programs.directory / recipe.DEFINITIONS))
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name, command in _commands(lab, nodes, programs.paths, Path(links)):
            running[name] = stack.enter_context(bound_process(command, folder / f"{name}.log"))
        asyncio.run(until_registered(lab, driver.NAME, nodes, running, folder))
        reporter(f"storage class {CLASS!r} is served on {len(nodes)} nodes")
        yield


@contextlib.contextmanager
def _alone(folder: Path, lab: Lab) -> Iterator[None]:
    """Hold the lock of a folder of volumes while the block runs. Raises LabError if another process has it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"storage of lab {lab.name!r} is served already: end the other process first"
            ) from None
        yield


def _commands(
    lab: Lab, nodes: Iterable[str], programs: Mapping[str, Path], links: Path
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and command of each program. `links` is an empty folder that gets a link for each node."""
    folder = lab.state_directory / _FOLDER
    for node in nodes:
        (links / node).symlink_to(lab.state_directory / plan.FOLDER / node / "kubelet")
    python = [sys.executable, "-P", "-m", driver.__name__]
    kubelets = [f"{node}={links / node}" for node in nodes]
    yield "driver", [*python, str(lab.state_directory), str(folder / "volumes"), *kubelets]
    access = _access(lab, folder)
    address = f"--csi-address={links / next(iter(nodes)) / driver.SOCKET}"
    yield recipe.PROVISIONER, [str(programs[recipe.PROVISIONER]), access, address]
    yield recipe.SNAPSHOTTER, [str(programs[recipe.SNAPSHOTTER]), access, address]
    yield recipe.SNAPSHOT_CONTROLLER, [str(programs[recipe.SNAPSHOT_CONTROLLER]), access]


def _access(lab: Lab, folder: Path) -> str:
    """Write the kubeconfig of the sidecars; return the flag that names it."""
    certificates = lab.state_directory / "pki"
    pki.Authority.load(certificates, "ca").issue(_FOLDER, user=_USER)
    account = folder / "kubeconfig"
    components.write_kubeconfig(account, certificates, _FOLDER, lab.server, _FOLDER)
    return f"--kubeconfig={account}"


@contextlib.contextmanager
def bound_process(command: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program while the block runs, or until this process ends; its output is added to `log`."""
    bound = [sys.executable, "-I", "-S", str(pdeathsig_exec.__file__), str(os.getpid()), *command]
    with log.open("ab") as output:
        process = subprocess.Popen(bound, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def prepare_cluster(kubeconfig: Path, definitions: Path) -> None:
    """Apply definitions, rights and classes."""
    role = {"kind": "ClusterRole", "apiGroup": CLUSTER_ROLES.group, "name": _USER}
    user = {"kind": "User", "apiGroup": CLUSTER_ROLES.group, "name": _USER}
    default = {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}
    snapshots = {"metadata": {"annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"}}}
    async with Transport(load_access(kubeconfig)) as transport:
        for path in sorted(definitions.glob("*.yaml")):
            body = yaml.safe_load(path.read_text())
            await _apply(transport, CRDS, body["metadata"]["name"], body)
        for resource, name, content in (
            (CLUSTER_ROLES, _USER, {"rules": list(_RULES)}),
            (CLUSTER_ROLE_BINDINGS, _USER, {"roleRef": role, "subjects": [user]}),
            (CSI_DRIVERS, driver.NAME, {"spec": {"attachRequired": False, "podInfoOnMount": False}}),
            (STORAGE_CLASSES, CLASS, {**default, "provisioner": driver.NAME}),
            (
                VOLUME_SNAPSHOT_CLASSES,
                CLASS,
                {**snapshots, "driver": driver.NAME, "deletionPolicy": "Delete"},
            ),
        ):
            await _apply(transport, resource, name, content)


async def _apply(transport: Transport, resource: Resource, name: str, content: Mapping[str, Any]) -> None:
    kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
    body = {**content, **kinds, "metadata": {**content.get("metadata", {}), "name": name}}
    async with asyncio.timeout(_SECONDS):
        while True:
            try:
                await transport.apply(resource.path(None, name), body, field_manager=_FOLDER)
            except NotFound:  # the API server does not serve the new kind yet
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return


async def until_registered(
    lab: Lab,
    name: str,
    nodes: Iterable[str],
    running: Mapping[str, "subprocess.Popen[bytes]"],
    folder: Path,
) -> None:
    """Wait until the kubelet of each node knows the driver.

    Raises:
        StartError: one of the programs ended, or a kubelet did not know the driver in time; `folder` has the logs.
    """
    deadline = time.monotonic() + _SECONDS
    async with Transport(load_access(lab.kubeconfig)) as transport:
        for node in nodes:
            while not await _knows_driver(transport, name, node):
                for program, process in running.items():
                    if process.poll() is not None:
                        raise StartError(
                            f"{program} ended with status {process.returncode}: see {folder}/{program}.log"
                        )
                if time.monotonic() > deadline:
                    raise StartError(f"the kubelet of {node} does not know {name}: see the logs in {folder}")
                await asyncio.sleep(_POLL_SECONDS)


async def _knows_driver(transport: Transport, name: str, node: str) -> bool:
    found: dict[str, Any] = await transport.get(CSI_NODES.path(None, node))
    return any(known["name"] == name for known in found["spec"].get("drivers") or ())
