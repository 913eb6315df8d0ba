"""The Python client of muster: everything that the command line can do, as typed calls.

    from orchestrator.client import Client, Submission

    with Client() as client:
        client.submit(Submission(name="train-1", image="nvcr.io/nvidia/pytorch:24.05-py3", user="ann", gpu_milli=2000))
        for job in client.list_jobs():
            print(job.name, job.status, job.node)

`Client` is for scripts and notebooks. `AsyncClient` has the same operations for programs with an event loop; the
command line uses it. Cluster, user and default project come from the kubeconfig. Every failure is a `MusterError`
with one line that names the remedy.

Importing this package is cheap: the module that defines a name is imported when the name is first used.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The one list of the public names: `__getattr__` and `__all__` derive from it.
    from orchestrator.client.aio import AsyncClient as AsyncClient
    from orchestrator.client.editing import HalfEdited as HalfEdited
    from orchestrator.client.functions import FunctionFailed as FunctionFailed
    from orchestrator.client.functions import PythonDiffers as PythonDiffers
    from orchestrator.client.handles import AsyncJob as AsyncJob
    from orchestrator.client.identity import Identity as Identity
    from orchestrator.client.jobs import DuplicateName as DuplicateName
    from orchestrator.client.jobs import HalfCreated as HalfCreated
    from orchestrator.client.jobs import NoSuchWorkload as NoSuchWorkload
    from orchestrator.client.jobs import NotPossible as NotPossible
    from orchestrator.client.jobs import Scope as Scope
    from orchestrator.client.jobs import Submitted as Submitted
    from orchestrator.client.nodes import Nodes as Nodes
    from orchestrator.client.nodes import NoSuchNode as NoSuchNode
    from orchestrator.client.port_forward import ForwardedPort as ForwardedPort
    from orchestrator.client.port_forward import Listening as Listening
    from orchestrator.client.port_forward import PortInUse as PortInUse
    from orchestrator.client.preflight import Missing as Missing
    from orchestrator.client.projects import NoNamespace as NoNamespace
    from orchestrator.client.projects import NoProject as NoProject
    from orchestrator.client.projects import NoSuchProject as NoSuchProject
    from orchestrator.client.projects import OperatorSilent as OperatorSilent
    from orchestrator.client.projects import ProjectInUse as ProjectInUse
    from orchestrator.client.projects import ProjectRefused as ProjectRefused
    from orchestrator.client.streams import Finished as Finished
    from orchestrator.client.streams import LogRequest as LogRequest
    from orchestrator.client.sync import Client as Client
    from orchestrator.client.sync import Job as Job
    from orchestrator.client.targets import NoSuchContainer as NoSuchContainer
    from orchestrator.client.targets import NoSuchPod as NoSuchPod
    from orchestrator.client.targets import NotRunning as NotRunning
    from orchestrator.client.templates import TemplateRefused as TemplateRefused
    from orchestrator.client.waits import NotReached as NotReached
    from orchestrator.client.waits import WaitTimeout as WaitTimeout
    from orchestrator.client.working_tree import pack_code as pack_code
    from orchestrator.cluster.errors import ClusterError as ClusterError
    from orchestrator.cluster.errors import Forbidden as Forbidden
    from orchestrator.cluster.errors import Unauthorized as Unauthorized
    from orchestrator.cluster.errors import Unreachable as Unreachable
    from orchestrator.cluster.gpu_nodes import GpuUser as GpuUser
    from orchestrator.cluster.objects import Event as Event
    from orchestrator.cluster.objects import ObjectReference as ObjectReference
    from orchestrator.cluster.projects import AmountSpec as AmountSpec
    from orchestrator.cluster.projects import Directory as Directory
    from orchestrator.cluster.projects import GpuModelSpec as GpuModelSpec
    from orchestrator.cluster.projects import GpuSpec as GpuSpec
    from orchestrator.cluster.projects import NodeAffinity as NodeAffinity
    from orchestrator.cluster.projects import ObjectCounts as ObjectCounts
    from orchestrator.cluster.projects import Project as Project
    from orchestrator.cluster.projects import ProjectSpec as ProjectSpec
    from orchestrator.cluster.projects import ProjectStatus as ProjectStatus
    from orchestrator.cluster.projects import SecuritySpec as SecuritySpec
    from orchestrator.cluster.projects import Subject as Subject
    from orchestrator.cluster.wire import Condition as Condition
    from orchestrator.cluster.wire import Metadata as Metadata
    from orchestrator.cluster.wire import OwnerReference as OwnerReference
    from orchestrator.errors import ConfigurationError as ConfigurationError
    from orchestrator.errors import InvalidField as InvalidField
    from orchestrator.errors import MusterError as MusterError
    from orchestrator.errors import UsageError as UsageError
    from orchestrator.submit.changes import Change as Change
    from orchestrator.submit.dependencies import Dependency as Dependency
    from orchestrator.submit.submission import Submission as Submission
    from orchestrator.submit.templates import FlagDefault as FlagDefault
    from orchestrator.submit.templates import NoSuchTemplate as NoSuchTemplate
    from orchestrator.submit.templates import Template as Template
    from orchestrator.submit.values import GitSource as GitSource
    from orchestrator.submit.values import Mount as Mount
    from orchestrator.submit.values import NewClaim as NewClaim
    from orchestrator.submit.values import Port as Port
    from orchestrator.submit.values import Rendezvous as Rendezvous
    from orchestrator.submit.values import RunAs as RunAs
    from orchestrator.submit.values import Toleration as Toleration
    from orchestrator.submit.values import Variable as Variable
    from orchestrator.views.dependencies import Delay as Delay
    from orchestrator.views.gpus import GpuView as GpuView
    from orchestrator.views.job_record import job_record as job_record
    from orchestrator.views.jobs import Indexes as Indexes
    from orchestrator.views.jobs import WorkloadView as WorkloadView
    from orchestrator.views.nodes import NodePod as NodePod
    from orchestrator.views.nodes import NodeView as NodeView
    from orchestrator.views.nodes import Usage as Usage


def __getattr__(name: str) -> Any:
    """Import the object of a public name at its first use."""
    if name == "__all__":
        return sorted(_modules())
    if name.startswith("__") or name not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_modules()[name]), name)


def __dir__() -> list[str]:
    return sorted(_modules())


@cache
def _modules() -> dict[str, str]:
    """Return the module of every public name, from the imports above."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(__file__).read_bytes())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: str(statement.module)
        for statement in imports
        for alias in statement.names
        if alias.asname == alias.name
    }
