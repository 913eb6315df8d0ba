"""How a workload is reached: ports, Service and Ingress."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cluster.resources import INGRESSES, SERVICES
from orchestrator.errors import UsageError
from orchestrator.names import WORKLOAD_LABEL

if TYPE_CHECKING:
    from orchestrator.workloads.submission import Submission

Manifest = dict[str, Any]

SERVICE_TYPES: Final = ("portforward", "ingress", "nodeport", "loadbalancer")
INGRESS_CLASS: Final = "nginx"

_SERVICE_KINDS: Final = {"nodeport": "NodePort", "loadbalancer": "LoadBalancer"}


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the workload's service. `external` is the service's (for nodeport: the node's) port."""

    external: int
    internal: int

    @property
    def pinned(self) -> bool:
        """Whether the two numbers were given apart."""
        return self.external != self.internal


def parse_port(text: str) -> Port:
    """Return the port of `8888` or `30080:8888` (external:internal). Raises UsageError."""
    external, separator, internal = text.partition(":")
    numbers = [external, internal] if separator else [external, external]
    if all(re.fullmatch(r"[0-9]{1,5}", number) and 0 < int(number) < 65536 for number in numbers):
        return Port(external=int(numbers[0]), internal=int(numbers[1]))
    raise UsageError(f"--port {text} is not possible: give PORT or EXTERNAL:INTERNAL, each from 1 to 65535")


def service_manifest(asked: "Submission", metadata: Manifest) -> Manifest | None:
    """Return the Service in front of the workload, or None when none was asked for."""
    if asked.service_type is None:
        return None
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "type": _SERVICE_KINDS.get(asked.service_type, "ClusterIP"),
            "selector": {WORKLOAD_LABEL: asked.name},
            "ports": [_service_port(port, asked.service_type) for port in asked.ports],
        },
    }


def ingress_manifest(
    asked: "Submission", project: str, metadata: Manifest, taken: Collection[str] = ()
) -> Manifest | None:
    """Return the Ingress that leads to the service, or None when none was asked for.

    Every port has the path `/<project>-<name>`, and the alias `/<name>` unless that is among `taken`.
    """
    if asked.service_type != "ingress":
        return None
    paths = [
        {
            "path": path,
            "pathType": "Prefix",
            "backend": {"service": {"name": asked.name, "port": {"number": port.external}}},
        }
        for port in asked.ports
        for path in (ingress_path(asked, project, port), alias_path(asked, port))
        if path not in taken
    ]
    return {
        "apiVersion": INGRESSES.api_version,
        "kind": INGRESSES.kind,
        "metadata": metadata,
        "spec": {"ingressClassName": INGRESS_CLASS, "rules": [{"http": {"paths": paths}}]},
    }


def ingress_path(asked: "Submission", project: str, port: Port) -> str:
    """Return `/<project>-<name>`, with the port behind it when there are several."""
    return _with_port(f"/{project}-{asked.name}", asked, port)


def alias_path(asked: "Submission", port: Port) -> str:
    """Return `/<name>`, the path that the command line of 2020 gave, with the port when there are several."""
    return _with_port(f"/{asked.name}", asked, port)


def _with_port(path: str, asked: "Submission", port: Port) -> str:
    return path if len(asked.ports) == 1 else f"{path}-{port.external}"


def _service_port(port: Port, service_type: str) -> Manifest:
    number = port.internal if service_type == "nodeport" else port.external
    described = {"name": f"{port.external}-port", "port": number, "targetPort": port.internal}
    return described | ({"nodePort": port.external} if service_type == "nodeport" and port.pinned else {})
