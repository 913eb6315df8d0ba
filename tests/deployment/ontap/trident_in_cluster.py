"""NetApp's Trident on the real nodes of a lab: CSI controller, a node plugin on each node, Kubernetes' sidecars.

A checkout of Trident has the objects that its operator installs: definitions, accounts with their rights, the
CSIDriver, the arguments of each container. Programs replace the images. The controller and the plugins run on nodes
like hostNetwork pods, and the sidecars run beside the API server. The registrar is muster's (`musterlab.storage`).
`mount.nfs` is `mount_nfs.py`, because the kernel of this machine has no NFS client.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from musterlab import binaries, pki
from musterlab.cluster import Lab
from musterlab.realnodes import network, plan
from musterlab.storage import recipe, serving
from musterlab.storage.nodes import check_visible, real_nodes
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter
from tests.deployment.ontap import nfs, programs

if TYPE_CHECKING:
    import subprocess

DRIVER: Final = "csi.trident.netapp.io"
NAMESPACE: Final = "trident"
CONTROLLER: Final = "trident-controller"
NODE: Final = "trident-node-linux"
_MOUNT_NFS: Final = Path(__file__).with_name("mount_nfs.py")
_KUBELET: Final = "/var/lib/kubelet"
_ACCOUNT_FOLDER: Final = "/run/secrets/kubernetes.io/serviceaccount"
_TRACKING: Final = "/var/lib/trident/tracking"
_CONTROLLER_PORT: Final = 8443
_VALUES: Final = {
    "LOG_FORMAT": "text",
    "LOG_LEVEL": "debug",
    "LOG_WORKFLOWS": "",
    "LOG_LAYERS": "",
    "DISABLE_AUDIT_LOG": "true",
    "IP_LOCALHOST": "127.0.0.1",
    "HTTP_REQUEST_TIMEOUT": "90s",
    "ENABLE_FORCE_DETACH": "false",
    "FORCE_DETACH_BOOL": "false",
    "ENABLE_CONCURRENCY": "false",
    "ISCSI_SELF_HEALING_INTERVAL": "5m0s",
    "ISCSI_SELF_HEALING_WAIT_TIME": "7m0s",
    "SIDECAR_LOG_LEVEL": "2",
    "KUBELET_DIR": _KUBELET,
    "FS_GROUP_POLICY": "ReadWriteOnceWithFSType",
    "NAMESPACE": NAMESPACE,
}


@dataclass(frozen=True)
class Manifests:
    """The objects of Trident's operator, by the names of the constants in `cli/k8s_client/yaml_factory.go`."""

    constants: Mapping[str, str]

    @classmethod
    def read(cls) -> "Manifests":
        """Read the objects from the checkout of Trident."""
        return cls(dict(re.findall(r"(?m)^const (\w+) = `([^`]*)`", programs.manifests())))

    def definitions(self) -> list[dict[str, Any]]:
        """Return the definitions of Trident's objects."""
        names = [name for name in self.constants if re.fullmatch(r"trident\w+CRDYAMLv1", name)]
        assert len(names) > 15
        return [self.document(name) for name in names]

    def document(self, constant: str, **values: str) -> dict[str, Any]:
        """Return one object, without labels and owner."""
        text = re.sub(r"(?m)^ *\{(LABELS|OWNER_REF)\}\n", "", self.constants[constant])
        document: dict[str, Any] = yaml.safe_load(_filled(text, {**_VALUES, **values}))
        return document

    def arguments(self, constant: str, container: str, **values: str) -> list[str]:
        """Return the arguments of a container."""
        _, _, rest = self.constants[constant].partition(f"- name: {container}\n")
        lines = re.findall(r'(?m)^ +- "(--[^"]+)"$', rest.partition("\n        env:\n")[0])
        assert lines, container
        return [_filled(line.replace("$(", "{").replace(")", "}"), {**_VALUES, **values}) for line in lines]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{([A-Z_]+)\}", lambda match: values[match[1]], text)


@contextlib.contextmanager
def trident(lab: Lab, folder: Path) -> Iterator[None]:
    """Run Trident for the length of the block, after the kubelet of each node knows the driver.

    `folder` has the log of each program.
    """
    manifests = Manifests.read()
    nodes = real_nodes(lab)
    asyncio.run(_prepare_cluster(lab, manifests, folder))
    _write_certificates(lab, folder)
    check_visible(folder, _MOUNT_NFS, programs.trident())
    # paths of sockets must be short, and the lab's directory can have a long path
    with tempfile.TemporaryDirectory(prefix="muster-csi-") as short, contextlib.ExitStack() as stack:
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name, command in _commands(lab, nodes, manifests, folder, Path(short)):
            running[name] = stack.enter_context(serving.bound_process(command, folder / f"{name}.log"))
        asyncio.run(serving.until_registered(lab, DRIVER, nodes, running, folder))
        yield


async def _prepare_cluster(lab: Lab, manifests: Manifests, folder: Path) -> None:
    """Apply the operator's objects, and write a kubeconfig for each of the two accounts."""
    controller = {"CLUSTER_ROLE_NAME": CONTROLLER, "ROLE_NAME": CONTROLLER}
    node = {"CLUSTER_ROLE_NAME": NODE, "ROLE_NAME": NODE}
    documents: list[tuple[Resource, dict[str, Any]]] = [
        (NAMESPACES, {"metadata": {"name": NAMESPACE}}),
        *((CRDS, definition) for definition in manifests.definitions()),
        (serving.CSI_DRIVERS, manifests.document("CSIDriverYAMLv1", NAME=DRIVER)),
        (CLUSTER_ROLES, manifests.document("controllerClusterRoleCSIYAMLTemplate", **controller)),
        (CLUSTER_ROLES, manifests.document("nodeClusterRoleCSIYAMLTemplate", **node)),
        (ROLES, manifests.document("controllerRoleCSIYAMLTemplate", **controller)),
        (ROLES, manifests.document("nodeRoleCSIYAMLTemplate", **node)),
    ]
    for name in (CONTROLLER, NODE):
        documents.append((SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": NAMESPACE}}))
        for resource, constant in (
            (CLUSTER_ROLE_BINDINGS, "clusterRoleBindingKubernetesV1YAMLTemplate"),
            (ROLE_BINDINGS, "roleBindingKubernetesV1YAMLTemplate"),
        ):
            documents.append((resource, manifests.document(constant, NAME=name)))
    async with Transport(load_access(lab.kubeconfig)) as transport:
        for resource, document in documents:
            metadata = document["metadata"]
            path = resource.path(metadata.get("namespace"), metadata["name"])
            body = {**document, "apiVersion": resource.api_version, "kind": resource.kind}
            await transport.apply(path, body, field_manager="trident-operator")
        for name in (CONTROLLER, NODE):
            token = await _token(transport, name)
            _write_account(lab, folder / name, token)


async def _token(transport: Transport, account: str) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = SERVICE_ACCOUNTS.path(NAMESPACE, account, "token")
    answer: dict[str, Any] = await transport.create(path, request)
    return str(answer["status"]["token"])


def _write_account(lab: Lab, folder: Path, token: str) -> None:
    """Write the files that a pod of the account gets, and a kubeconfig for the account."""
    folder.mkdir(mode=0o700)
    authority = lab.state_directory / "pki" / "ca.crt"
    for name, content in (("token", token), ("namespace", NAMESPACE), ("ca.crt", authority.read_text())):
        (folder / name).write_text(content)
    cluster = {"server": lab.server, "certificate-authority": str(authority)}
    named = {"cluster": "lab", "user": "lab", "namespace": NAMESPACE}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": named}],
        "current-context": "lab",
    }
    (folder / "kubeconfig").write_text(json.dumps(document))


def _write_certificates(lab: Lab, folder: Path) -> None:
    """Write the certificates by which controller and plugins authenticate each other, and the
    key for stored secrets.
    """
    authority = pki.Authority.load(lab.state_directory / "pki", "ca")
    authority.issue("trident-server", user="trident-csi", server=True, names=("trident-csi",))
    authority.issue("trident-client", user="trident-node")
    (folder / "aes-key").write_bytes(os.urandom(32))


def _certificate_flags(lab: Lab, folder: Path) -> list[str]:
    pairs = lab.state_directory / "pki"
    return [
        f"--https_ca_cert={pairs / 'ca.crt'}",
        f"--https_server_cert={pairs / 'trident-server.crt'}",
        f"--https_server_key={pairs / 'trident-server.key'}",
        f"--https_client_cert={pairs / 'trident-client.crt'}",
        f"--https_client_key={pairs / 'trident-client.key'}",
        f"--aes_key={folder / 'aes-key'}",
    ]


def _commands(
    lab: Lab, nodes: Mapping[str, int], manifests: Manifests, folder: Path, short: Path
) -> Iterator[tuple[str, list[str]]]:
    """Yield name and command of each program. `short` is an empty folder for files that need a short path."""
    deployment, daemon_set = "csiDeployment120YAMLTemplate", "daemonSet120YAMLTemplateLinux"
    program, flags = str(programs.trident()), _certificate_flags(lab, folder)
    environment = {
        "KUBERNETES_SERVICE_HOST": network.API_SERVICE,
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBELET_DIR": _KUBELET,
        "TRIDENT_CSI_SERVICE_HOST": "127.0.0.1",
        "TRIDENT_CSI_SERVICE_PORT": str(_CONTROLLER_PORT),
        "PATH": f"{_mount_program(short)}:/usr/sbin:/usr/bin:/sbin:/bin",
        **nfs.programs().client_environment,
    }
    socket = short / "csi.sock"
    first = next(iter(nodes))
    for name, node, account, arguments in (
        (
            "controller",
            first,
            CONTROLLER,
            manifests.arguments(
                deployment, "trident-main", KUBE_NODE_NAME=first, CSI_ENDPOINT=f"unix://{socket}"
            ),
        ),
        *(
            (
                f"node-{node}",
                node,
                NODE,
                manifests.arguments(
                    daemon_set,
                    "trident-main",
                    KUBE_NODE_NAME=node,
                    CSI_ENDPOINT=f"unix://{_KUBELET}/plugins/{DRIVER}/csi.sock",
                    PROBE_PORT=str(17546 + number),
                ),
            )
            for number, node in enumerate(nodes)
        ),
    ):
        script = _as_pod(folder / account, [program, *arguments, *flags], alone=account == CONTROLLER)
        specification = {
            "network": str(plan.published(lab.state_directory)),
            "node": nodes[node],
            "command": script,
            "environment": environment,
        }
        file = folder / f"{name}.json"
        file.write_text(json.dumps(specification))
        yield name, plan.python("inside", file)
    registrations = []
    for node in nodes:
        kubelet = lab.state_directory / plan.FOLDER / node / "kubelet"
        (short / node).symlink_to(kubelet)
        for below in (f"plugins/{DRIVER}", "plugins_registry"):
            (kubelet / below).mkdir(parents=True, exist_ok=True)
        registrations.append(str(short / node / "plugins_registry" / f"{DRIVER}-reg.sock"))
    registrar = [sys.executable, "-P", "-m", "musterlab.storage.registrar", DRIVER]
    yield "registrar", [*registrar, f"{_KUBELET}/plugins/{DRIVER}/csi.sock", *registrations]
    provisioner = binaries.find(Reporter(lambda _line: None), recipe.STORAGE_PROGRAMS).paths[
        recipe.PROVISIONER
    ]
    for container, sidecar in (
        ("csi-provisioner", provisioner),
        ("csi-attacher", programs.attacher()),
    ):
        arguments = manifests.arguments(deployment, container, ADDRESS=str(socket))
        yield container, [str(sidecar), *arguments, f"--kubeconfig={folder / CONTROLLER / 'kubeconfig'}"]


def _as_pod(account: Path, command: list[str], *, alone: bool) -> list[str]:
    """Return a command that runs another with the account's files at the path in a pod; with `alone`, only it sees
    them.
    """
    put = f'mkdir -p {_ACCOUNT_FOLDER} {_TRACKING} && mount --bind "$0" {_ACCOUNT_FOLDER} && exec "$@"'
    own = ["/usr/bin/unshare", "--mount", "--propagation", "slave"] if alone else []
    return [*own, "/bin/sh", "-ec", put, str(account), *command]


def _mount_program(short: Path) -> Path:
    """Write `mount.nfs` and `mount.nfs4`; return their folder."""
    folder = short / "bin"
    folder.mkdir()
    for name in ("mount.nfs", "mount.nfs4"):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -P {_MOUNT_NFS} "$@"\n')
        script.chmod(0o755)
    return folder
