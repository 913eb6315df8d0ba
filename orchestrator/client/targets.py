"""Chooses a container of a workload's pod, and adds the node to errors about it.

NotRunning the workload has no running container, and no container started in time
NoSuchPod       the workload has no pod of that name
NoSuchContainer the pod has no container of that name
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from orchestrator.cluster.errors import ClusterError, ServerFault
from orchestrator.cluster.objects import ContainerStateTerminated, ContainerStatus, Pod
from orchestrator.cluster.resources import PODS
from orchestrator.errors import FieldProblem, MusterError
from orchestrator.views.jobs import WorkloadView, index_of

ENDED: Final = ("Succeeded", "Failed")
Entered = TypeVar("Entered")


class NotRunning(MusterError):
    """The workload has no running container, and no container started in time."""


class NoSuchPod(FieldProblem):
    """The workload has no pod of that name."""


class NoSuchContainer(FieldProblem):
    """The pod has no container of that name."""


@dataclass(frozen=True, slots=True)
class Target:
    """One container of a pod."""

    pod: Pod
    container: str
    pods: int = 1
    """The number of pods from which this pod was chosen."""

    def path(self, subresource: str) -> str:
        """Return the URL path of a subresource of the pod."""
        metadata = self.pod.metadata
        return PODS.path(metadata.namespace, metadata.name, subresource)

    @property
    def status(self) -> ContainerStatus | None:
        """The status of the container; None if the pod has none yet."""
        statuses = (*self.pod.status.container_statuses, *self.pod.status.init_container_statuses)
        return next((status for status in statuses if status.name == self.container), None)

    @property
    def runs(self) -> bool:
        """Whether the container runs."""
        return self.status is not None and self.status.state.running is not None

    @property
    def is_simulated(self) -> bool:
        """Whether the container runs without a container runtime, on a simulated node of a lab."""
        return self.runs and self.status is not None and not self.status.container_id

    def better(self, error: ClusterError) -> MusterError:
        """Return an error that names the node instead of the request, if the kubelet of the node did not answer."""
        node = self.pod.spec.node_name
        if self.is_simulated:
            return NotRunning(
                f"pod {self.pod.metadata.name} is on the simulated node {node}, which runs no containers; for logs and "
                "commands, start a lab with --real-nodes"
            )
        if isinstance(error, ServerFault):
            return ServerFault(
                f"the kubelet of node {node} does not answer for pod {self.pod.metadata.name}: {error.message}",
                status=error.status,
                reason=error.reason,
                request=error.request,
            )
        return error

    @property
    def terminated(self) -> ContainerStateTerminated | None:
        """The end of the container or, if it was restarted, of its previous run. None if it never ended."""
        if self.status is None:
            return None
        return self.status.state.terminated or self.status.last_state.terminated

    @property
    def has_terminal(self) -> bool:
        """Whether the container was made with a terminal."""
        return any(
            container.tty for container in self.pod.spec.containers if container.name == self.container
        )

    @property
    def reads_input(self) -> bool:
        """Whether the container was made with an open standard input."""
        return any(
            container.stdin for container in self.pod.spec.containers if container.name == self.container
        )


@contextmanager
def naming_node(target: Target) -> Iterator[None]:
    """Replace an error about the kubelet by `Target.better`."""
    try:
        yield
    except ClusterError as error:
        better = target.better(error)
        if better is error:
            raise
        raise better from error


@asynccontextmanager
async def entered_by(
    target: Target, context: AbstractAsyncContextManager[Entered]
) -> AsyncGenerator[Entered, None]:
    """Enter the context of a request to the target's kubelet, with the errors of `Target.better`."""
    with naming_node(target):
        async with context as entered:
            yield entered


def chosen_pod(
    view: WorkloadView, pods: Sequence[Pod], pod_name: str | None, index: int | None
) -> Pod | None:
    """Return the pod of that name. Without a name, return the youngest pod that has not ended, else the youngest pod.

    With `index`, only the pods of that index count.
    """
    if index is not None:
        if view.indexes is None or not 0 <= index < view.indexes.count:
            known = "no indexes" if view.indexes is None else f"the indexes 0 to {view.indexes.count - 1}"
            raise NoSuchPod(
                "{index} {number}: job '{job}' has {known}", number=index, job=view.name, known=known
            )
        pods = [pod for pod in pods if index_of(pod) == index]
    if pod_name is not None:
        matching = [pod for pod in pods if pod.metadata.name == pod_name]
        if not matching:
            known = ", ".join(pod.metadata.name for pod in pods) or "none"
            raise NoSuchPod(
                "{pod} {name}: job '{job}' has no such pod; it has: {known}",
                name=pod_name,
                job=view.name,
                known=known,
            )
        return matching[-1]
    return max(pods, key=lambda pod: pod.status.phase not in ENDED, default=None) if pods else None


def target_of(pod: Pod, container: str | None, pods: int = 1) -> Target:
    """Return the named or the first container of the pod, one of `pods`. Raises NoSuchContainer."""
    known = [spec.name for spec in (*pod.spec.containers, *pod.spec.init_containers)]
    if container is not None and container not in known:
        raise NoSuchContainer(
            "{container} {name}: pod {pod_name} has no such container; it has: {known}",
            name=container,
            pod_name=pod.metadata.name,
            known=", ".join(known),
        )
    return Target(pod, container or known[0], pods)
