"""An ingress controller for the real nodes of a lab: Traefik, in their network, at their gateway.

A lab does not start it by itself. It serves the Ingresses of one class, and writes the domain of a site into their
status. Programs of the machine reach it through `connect`, as the API server reaches pods.
"""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Final

from musterlab import binaries, build, components, pki
from musterlab.cluster import Lab
from musterlab.errors import LabError
from musterlab.realnodes import network, plan
from orchestrator.cluster.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, Resource
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter

NAME: Final = "traefik"
PORT: Final = 80
CONTROLLER: Final = "traefik.io/ingress-controller"
"""Traefik's name in the `controller` of an IngressClass."""
INGRESS_CLASSES: Final = Resource(
    "networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False
)

_USER: Final = "muster-lab:traefik"
_ANSWER_BYTES: Final = 4096
_SECONDS: Final = 30.0
_READ: Final = ["get", "list", "watch"]
_RULES: Final = (
    {"apiGroups": [""], "resources": ["services", "secrets", "nodes"], "verbs": _READ},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"], "verbs": _READ},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["update"]},
)
"""The rights in Traefik's documentation, limited to Ingresses."""


async def find(reporter: Reporter) -> Path:
    """Find the program, or build it.

    Raises:
        BinariesError: no source has it and it cannot be built.
    """
    programs = await asyncio.to_thread(binaries.find, reporter, build.INGRESS_CONTROLLER)
    return programs.paths[NAME]


async def permit(transport: Transport, ingress_class: str) -> None:
    """Create or update the IngressClass and the rights of the controller."""
    role = {"kind": "ClusterRole", "apiGroup": CLUSTER_ROLES.group, "name": _USER}
    user = {"kind": "User", "apiGroup": CLUSTER_ROLES.group, "name": _USER}
    for resource, name, content in (
        (CLUSTER_ROLES, _USER, {"rules": list(_RULES)}),
        (CLUSTER_ROLE_BINDINGS, _USER, {"roleRef": role, "subjects": [user]}),
        (INGRESS_CLASSES, ingress_class, {"spec": {"controller": CONTROLLER}}),
    ):
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await transport.apply(resource.path(None, name), {**kinds, **content}, field_manager=NAME)


def configure(lab: Lab, directory: Path, program: Path, *, ingress_class: str, domain: str) -> list[str]:
    """Write the controller's files into `directory`; return its command. The lab must have real nodes."""
    certificates = lab.state_directory / "pki"
    pki.Authority.load(certificates, "ca").issue(NAME, user=_USER)
    account = directory / f"{NAME}.kubeconfig"
    components.write_kubeconfig(account, certificates, NAME, lab.server, NAME)
    ingress = "--providers.kubernetesingress"
    specification = {
        "network": str(plan.published(lab.state_directory)),
        "command": [
            str(program),
            f"--entrypoints.web.address={network.GATEWAY}:{PORT}",
            ingress,
            f"{ingress}.ingressclass={ingress_class}",
            f"{ingress}.ingressendpoint.hostname={domain}",
            "--global.checknewversion=false",
            "--global.sendanonymoususage=false",
            "--log.level=INFO",
        ],
        "environment": {"KUBECONFIG": str(account), "PATH": os.defpath},
    }
    file = directory / f"{NAME}.json"
    file.write_text(json.dumps(specification))
    return plan.python("inside", file)


def connect(lab: Lab) -> socket.socket:
    """Return a connection to the controller's port. Raises LabError while it does not listen."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_SECONDS)
    try:
        connection.connect(str(plan.egress_socket(lab.state_directory)))
        connection.sendall(f"CONNECT {network.GATEWAY}:{PORT} HTTP/1.1\r\n\r\n".encode())
        answer = connection.recv(_ANSWER_BYTES)
    except OSError as error:
        connection.close()
        raise LabError(f"the network of lab {lab.name!r} is not reached: {error.strerror}") from error
    if b" 200 " not in answer.split(b"\r\n")[0]:
        connection.close()
        raise LabError(f"{NAME} does not listen at {network.GATEWAY}:{PORT}")
    return connection
