"""The Python client of muster: everything that the command line can do, as typed calls.

    from orchestrator.client import Client, Submission

    with Client() as client:
        client.submit(Submission(name="train-1", image="nvcr.io/nvidia/pytorch:24.05-py3", user="ann", gpu_milli=2000))
        for job in client.list_jobs():
            print(job.name, job.status, job.node)

`Client` is for scripts and notebooks; `AsyncClient` has the same operations for programs with an event loop of their
own, and is what the command line uses. Which cluster, as whom, and which project is the default says the kubeconfig;
there is no other state. Every failure is a `MusterError` whose text is one line that names the fix.

Importing this package costs nothing; what a name needs is imported when the name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.identity import Identity
    from orchestrator.client.jobs import (
        DuplicateName,
        HalfCreated,
        NoSuchWorkload,
        NotPossible,
        Scope,
        Submitted,
    )
    from orchestrator.client.nodes import Nodes, NoSuchNode
    from orchestrator.client.port_forward import ForwardedPort, Listening, PortInUse
    from orchestrator.client.preflight import Missing
    from orchestrator.client.projects import NoProject, NoSuchProject, OperatorSilent, ProjectRefused
    from orchestrator.client.streams import Finished, LogRequest, NotRunning
    from orchestrator.client.sync import Client
    from orchestrator.client.templates import TemplateRefused
    from orchestrator.errors import MusterError
    from orchestrator.workloads.nodes import NodeView
    from orchestrator.workloads.submission import Submission
    from orchestrator.workloads.templates import NoSuchTemplate, Template
    from orchestrator.workloads.view import WorkloadView

_HOMES: Final = {
    "AsyncClient": "orchestrator.client.aio",
    "Client": "orchestrator.client.sync",
    "DuplicateName": "orchestrator.client.jobs",
    "HalfCreated": "orchestrator.client.jobs",
    "Identity": "orchestrator.client.identity",
    "Finished": "orchestrator.client.streams",
    "ForwardedPort": "orchestrator.client.port_forward",
    "Listening": "orchestrator.client.port_forward",
    "LogRequest": "orchestrator.client.streams",
    "NotRunning": "orchestrator.client.streams",
    "PortInUse": "orchestrator.client.port_forward",
    "MusterError": "orchestrator.errors",
    "Missing": "orchestrator.client.preflight",
    "NoProject": "orchestrator.client.projects",
    "NoSuchNode": "orchestrator.client.nodes",
    "NoSuchProject": "orchestrator.client.projects",
    "NoSuchTemplate": "orchestrator.workloads.templates",
    "NoSuchWorkload": "orchestrator.client.jobs",
    "NodeView": "orchestrator.workloads.nodes",
    "Nodes": "orchestrator.client.nodes",
    "NotPossible": "orchestrator.client.jobs",
    "OperatorSilent": "orchestrator.client.projects",
    "ProjectRefused": "orchestrator.client.projects",
    "Scope": "orchestrator.client.jobs",
    "Submitted": "orchestrator.client.jobs",
    "Submission": "orchestrator.workloads.submission",
    "Template": "orchestrator.workloads.templates",
    "TemplateRefused": "orchestrator.client.templates",
    "WorkloadView": "orchestrator.workloads.view",
}

__all__ = [
    "AsyncClient",
    "Client",
    "DuplicateName",
    "Finished",
    "ForwardedPort",
    "HalfCreated",
    "Identity",
    "Listening",
    "LogRequest",
    "Missing",
    "MusterError",
    "NoProject",
    "NoSuchNode",
    "NoSuchProject",
    "NoSuchTemplate",
    "NoSuchWorkload",
    "NodeView",
    "Nodes",
    "NotPossible",
    "NotRunning",
    "OperatorSilent",
    "PortInUse",
    "ProjectRefused",
    "Scope",
    "Submission",
    "Submitted",
    "Template",
    "TemplateRefused",
    "WorkloadView",
]


def __getattr__(name: str) -> Any:
    """Import what a public name stands for when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
