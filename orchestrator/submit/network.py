"""The Service and the Ingress of a workload, by which users reach it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.cluster.resources import INGRESSES, SERVICES
from orchestrator.names import WORKLOAD_LABEL
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import Port

Manifest = dict[str, Any]

DEFAULT_INGRESS_CLASS: Final = "nginx"

_SERVICE_KINDS: Final = {"nodeport": "NodePort", "loadbalancer": "LoadBalancer"}


@dataclass(frozen=True, slots=True)
class IngressSettings:
    """The class and the host of the Ingresses of a project's jobs; the empty host means every host."""

    class_name: str = DEFAULT_INGRESS_CLASS
    host: str = ""


DEFAULT_INGRESS: Final = IngressSettings()


def service_manifest(submission: Submission, metadata: Manifest) -> Manifest | None:
    """Return the Service of the workload, or None if the submission requests no Service."""
    if submission.service_type is None:
        return None
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "type": _SERVICE_KINDS.get(submission.service_type, "ClusterIP"),
            "selector": {WORKLOAD_LABEL: submission.name},
            "ports": [_service_port(port, submission.service_type) for port in submission.ports],
        },
    }


def ingress_manifest(
    submission: Submission,
    project: str,
    metadata: Manifest,
    used_paths: Collection[str] = (),
    settings: IngressSettings = DEFAULT_INGRESS,
) -> Manifest | None:
    """Return the Ingress of the workload's Service, or None if the submission requests no Ingress.

    Every port has the path `/<project>-<name>`, and the alias `/<name>` unless the alias is in `used_paths`.
    """
    if submission.service_type != "ingress":
        return None
    paths = [
        {
            "path": path,
            "pathType": "Prefix",
            "backend": {"service": {"name": submission.name, "port": {"number": port.external}}},
        }
        for port in submission.ports
        for path in (ingress_path(submission, project, port), alias_path(submission, port))
        if path not in used_paths
    ]
    host = {"host": settings.host} if settings.host else {}
    return {
        "apiVersion": INGRESSES.api_version,
        "kind": INGRESSES.kind,
        "metadata": metadata,
        "spec": {"ingressClassName": settings.class_name, "rules": [{**host, "http": {"paths": paths}}]},
    }


def ingress_path(submission: Submission, project: str, port: Port) -> str:
    """Return `/<project>-<name>`, followed by the port number if the submission has several ports."""
    return _with_port(f"/{project}-{submission.name}", submission, port)


def alias_path(submission: Submission, port: Port) -> str:
    """Return `/<name>`, the path that the command line of 2020 gave a job, followed by the port number if there are
    several.
    """
    return _with_port(f"/{submission.name}", submission, port)


def _with_port(path: str, submission: Submission, port: Port) -> str:
    return path if len(submission.ports) == 1 else f"{path}-{port.external}"


def _service_port(port: Port, service_type: str) -> Manifest:
    number = port.internal if service_type == "nodeport" else port.external
    service_port = {"name": f"{port.external}-port", "port": number, "targetPort": port.internal}
    return service_port | ({"nodePort": port.external} if service_type == "nodeport" and port.pinned else {})
