"""Serves volumes, clones and snapshots to the real nodes of a running lab, as long as somebody wants them.

On each node runs Kubernetes' host path driver, with one folder of volumes for all nodes, so that a volume can be read
on any. external-provisioner and external-snapshotter talk to the driver of the first node. A lab starts none of it by
itself.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from musterlab import binaries, components, pdeathsig_exec, pki
from musterlab.cluster import Lab
from musterlab.errors import LabError, StartError
from musterlab.realnodes import machine, plan
from musterlab.storage import recipe
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

DRIVER: Final = "hostpath.csi.k8s.io"
CLASS: Final = "hostpath"
"""Name of the StorageClass, which is the default, and of the VolumeSnapshotClass."""
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)

_USER: Final = "muster-lab:storage"
_FOLDER: Final = "storage"
_KUBELET: Final = "/var/lib/kubelet"
_SOCKET: Final = f"plugins/{DRIVER}/csi.sock"
_REGISTRATION: Final = f"plugins_registry/{DRIVER}-reg.sock"
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
"""As external-provisioner and external-snapshotter publish them, for what runs here."""


@contextlib.contextmanager
def storage(lab: Lab, reporter: Reporter) -> Iterator[None]:
    """Serve storage to the real nodes for the length of the block; what was made there stays in the lab's directory.

    Raises:
        BinariesError: a program is nowhere and cannot be built.
        LabError: the lab has no real nodes, or they do not see the lab's directory.
        StartError: a program ended, or no kubelet knew the driver in time.
    """
    nodes = real_nodes(lab)
    programs = binaries.find(reporter, recipe.STORAGE_PROGRAMS)
    folder = lab.state_directory / _FOLDER
    check_visible(folder, *programs.paths.values())
    (folder / "volumes").mkdir(parents=True, exist_ok=True, mode=0o700)
    asyncio.run(_prepare_cluster(lab, programs.directory / recipe.DEFINITIONS))
    # the paths of sockets are short, those of labs may not be
    with tempfile.TemporaryDirectory(prefix="muster-csi-") as links, contextlib.ExitStack() as stack:
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name, command in _commands(lab, nodes, programs.paths, Path(links)):
            running[name] = stack.enter_context(bound_process(command, folder / f"{name}.log"))
        asyncio.run(until_registered(lab, DRIVER, nodes, running, folder))
        reporter(f"storage class {CLASS!r} is served on {len(nodes)} nodes")
        yield


def real_nodes(lab: Lab) -> dict[str, int]:
    """The real nodes by name, with the number of the process that sees their files."""
    folder = lab.state_directory / plan.FOLDER
    processes = lab.status().processes
    nodes = {
        process.name: process.pid
        for process in processes
        if (folder / process.name / "specification.json").is_file() and process.state == "running"
    }
    if not nodes:
        raise LabError(f"lab {lab.name!r} has no real node that runs: start it with 'lab up --real-nodes 1'")
    return nodes


def check_visible(*paths: Path) -> None:
    """Raise LabError for a path that real nodes do not see."""
    for path in paths:
        top = path.resolve().parts[1]
        if top in machine.OWN:
            raise LabError(
                f"{path} cannot be seen on real nodes, which have a /{top} of their own: "
                "give another --state-dir, or set XDG_CACHE_HOME"
            )


def _commands(
    lab: Lab, nodes: Mapping[str, int], programs: Mapping[str, Path], links: Path
) -> Iterator[tuple[str, list[str]]]:
    """Give name and command of each program. `links` is an empty folder that gets a link for each node."""
    folder = lab.state_directory / _FOLDER
    for node, process in nodes.items():
        kubelet = lab.state_directory / plan.FOLDER / node / "kubelet"
        (links / node).symlink_to(kubelet)
        for name in (_SOCKET, _REGISTRATION):
            (kubelet / name).parent.mkdir(parents=True, exist_ok=True)
        specification = {
            "node": process,
            "command": [
                str(programs[recipe.DRIVER]),
                f"--drivername={DRIVER}",
                f"--endpoint=unix://{_KUBELET}/{_SOCKET}",
                f"--nodeid={node}",
                f"--statedir={folder / 'volumes'}",
                "--enable-topology=false",
                "--v=4",
            ],
            "environment": {"PATH": os.defpath},
        }
        file = folder / f"{node}.json"
        file.write_text(json.dumps(specification))
        yield f"driver-{node}", plan.python("inside", file)
    registrar = [sys.executable, "-P", "-m", "musterlab.storage.registrar", DRIVER]
    registrations = [str(links / node / _REGISTRATION) for node in nodes]
    yield "registrar", [*registrar, f"{_KUBELET}/{_SOCKET}", *registrations]
    access = _access(lab, folder)
    address = f"--csi-address={links / next(iter(nodes)) / _SOCKET}"
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
    """Run a program for the length of the block, or until this process ends; its output is added to `log`."""
    bound = [sys.executable, "-I", "-S", str(pdeathsig_exec.__file__), str(os.getpid()), *command]
    with log.open("ab") as output:
        process = subprocess.Popen(bound, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def _prepare_cluster(lab: Lab, definitions: Path) -> None:
    """Apply definitions, rights and classes; what is there already stays."""
    role = {"kind": "ClusterRole", "apiGroup": CLUSTER_ROLES.group, "name": _USER}
    user = {"kind": "User", "apiGroup": CLUSTER_ROLES.group, "name": _USER}
    default = {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}
    snapshots = {"metadata": {"annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"}}}
    async with Transport(load_access(lab.kubeconfig)) as transport:
        for path in sorted(definitions.glob("*.yaml")):
            body = yaml.safe_load(path.read_text())
            await _apply(transport, CRDS, body["metadata"]["name"], body)
        for resource, name, content in (
            (CLUSTER_ROLES, _USER, {"rules": list(_RULES)}),
            (CLUSTER_ROLE_BINDINGS, _USER, {"roleRef": role, "subjects": [user]}),
            (CSI_DRIVERS, DRIVER, {"spec": {"attachRequired": False, "podInfoOnMount": True}}),
            (STORAGE_CLASSES, CLASS, {**default, "provisioner": DRIVER}),
            (VOLUME_SNAPSHOT_CLASSES, CLASS, {**snapshots, "driver": DRIVER, "deletionPolicy": "Delete"}),
        ):
            await _apply(transport, resource, name, content)


async def _apply(transport: Transport, resource: Resource, name: str, content: Mapping[str, Any]) -> None:
    kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
    body = {**content, **kinds, "metadata": {**content.get("metadata", {}), "name": name}}
    async with asyncio.timeout(_SECONDS):
        while True:
            try:
                await transport.apply(resource.path(None, name), body, field_manager=_FOLDER)
            except NotFound:  # its definition is not served yet
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return


async def until_registered(
    lab: Lab,
    driver: str,
    nodes: Mapping[str, int],
    running: Mapping[str, "subprocess.Popen[bytes]"],
    folder: Path,
) -> None:
    """Return when the kubelet of each node knows the driver.

    Raises:
        StartError: one of the programs ended, or a kubelet did not know the driver in time; `folder` has the logs.
    """
    deadline = time.monotonic() + _SECONDS
    async with Transport(load_access(lab.kubeconfig)) as transport:
        for node in nodes:
            while not await _knows_driver(transport, driver, node):
                for name, process in running.items():
                    if process.poll() is not None:
                        raise StartError(
                            f"{name} ended with status {process.returncode}: see {folder}/{name}.log"
                        )
                if time.monotonic() > deadline:
                    raise StartError(
                        f"the kubelet of {node} does not know {driver}: see the logs in {folder}"
                    )
                await asyncio.sleep(_POLL_SECONDS)


async def _knows_driver(transport: Transport, driver: str, node: str) -> bool:
    found: dict[str, Any] = await transport.get(CSI_NODES.path(None, node))
    return any(known["name"] == driver for known in found["spec"].get("drivers") or ())
