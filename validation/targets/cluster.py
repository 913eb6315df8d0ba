"""An existing cluster, reached by kubeconfig, with the orchestrator installed. Nothing is installed or
changed here.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from musterlab.components import PROGRAMS_ANNOTATION
from orchestrator.cluster.discovery import served_version
from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Lease, Node, Pod, Project
from orchestrator.cluster.resources import (
    DRA_VERSIONS,
    LEASES,
    NODES,
    PODS,
    PROJECTS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from orchestrator.cluster.transport import Transport
from orchestrator.names import (
    GPU_DRIVER,
    GPU_RESOURCE,
    LEASE_NAME,
    RESERVATION_LABEL,
    SCHEDULER_NAME,
    SYSTEM_NAMESPACE,
)
from validation.errors import TargetError
from validation.judge.events import PodSeen
from validation.report.record import Command
from validation.scenario.schema import Cluster
from validation.targets.node_types import label_nodes
from validation.targets.own_context import with_own_context
from validation.targets.process import run_command, server_version
from validation.targets.pulling import Pull, pull_images
from validation.targets.recorder import Recorder
from validation.targets.upkeep import (
    cordon_nodes,
    evict_one_by_one,
    kill_leading_pod,
    leader,
    until_another_leads,
)
from validation.targets.web_pages import PageShown, WebPages, serving_pages
from validation.witness.objects import published_gpus
from validation.witness.urls import Opened, open_url

OPERATOR_SECONDS = 15.0
"""Maximum wait for a renewal of the operator's lease.

A leader renews it every 2.5 s. A standby operator takes it over within 12 s, and a new operator must start first.
"""
IDLE_SECONDS = 60.0
"""Maximum wait for the end of reservations of GPUs that no fraction uses."""
_POLL_SECONDS = 0.25


class ClusterTarget:
    """An existing cluster.

    A cluster is refused if scenarios could not be judged on it, or if they would disturb other workloads.
    """

    kind = "cluster"
    pulls_images = True
    disposable = False

    def __init__(
        self, kubeconfig: Path | None, projects: frozenset[str], progress: Callable[[str], None]
    ) -> None:
        self._given = kubeconfig
        self._projects = projects
        self._progress = progress
        self._stack = contextlib.AsyncExitStack()
        self._transport: Transport | None = None
        self._pages: WebPages | None = None
        self._commands_kubeconfig = ""
        self._server = ""
        self._renewed: str | None = None
        self._killed = ""
        self._programs: list[str] = []

    async def start(self, cluster: Cluster) -> bool:
        """Connect and check. The projects of the scenarios must not exist yet."""
        opened = self._transport is None
        if opened:
            access = load_access(self._given)
            self._server = access.server
            transport = Transport(access, user_agent="muster-validate")
            self._transport = await self._stack.enter_async_context(transport)
            private = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-validate-"))
            self._commands_kubeconfig = with_own_context(self._kubeconfig, Path(private))
        try:
            await self._check_projects()
            await self._check_idle()
            await self._check_size(cluster)
            await self._check_operator()
        except ClusterError as error:
            raise TargetError(f"{self._server} cannot be used: {error}") from error
        return opened

    async def execute(self, line: str, *, started_ms: int) -> Command:
        """Run the line with the chosen kubeconfig, else with the kubeconfig that KUBECONFIG names, else with
        ~/.kube/config. A default project is set in a copy of its context.
        """
        return await run_command(line, self._commands_kubeconfig, started_ms=started_ms)

    async def set_node_types(self, types: Mapping[str, str]) -> None:
        """Put each of these nodes into its group. Raises TargetError."""
        await label_nodes(self._transport, types)

    async def open_pages(self) -> None:
        """Serve the pages of the cluster. Raises TargetError."""
        if self._pages is None:
            self._pages = await self._stack.enter_async_context(
                serving_pages(self.transport, self._kubeconfig)
            )

    async def show_page(self, view: str) -> PageShown:
        """Return the present content of the page. Raises TargetError."""
        if self._pages is None:
            raise TargetError("the pages are not served")
        return await self._pages.show(view)

    async def open_url(self, url: str) -> Opened:
        """Return the answer to a request to the SERVICE URL of a job, by the DNS of this machine."""
        return await asyncio.to_thread(open_url, url)

    async def pull(self, nodes: Sequence[str], images: Sequence[str]) -> list[Pull]:
        """Let the nodes pull the images, by a pod for each. Raises TargetError."""
        return await pull_images(self.transport, nodes, images)

    async def cordon(self, nodes: Mapping[str, bool]) -> None:
        """Cordon (True) or uncordon (False) each of these nodes. Raises TargetError."""
        await cordon_nodes(self._transport, nodes)

    async def drain(self, pods: Sequence[PodSeen]) -> None:
        """Evict the pods, one after the other. Raises TargetError."""
        await evict_one_by_one(self._transport, pods)

    async def let_end_slowly(self, pods: Sequence[PodSeen]) -> None:
        """Do nothing: the containers of a real cluster have a grace period."""

    async def kill_operator(self) -> str:
        """Delete the pod of the leading operator.

        If the leader is not a pod, return why it cannot be killed. Raises TargetError.
        """
        self._killed = await leader(self._transport)
        return await kill_leading_pod(self._transport, self._killed)

    async def operator_leads_again(self) -> None:
        """Wait until another pod of the operator leads. Raises TargetError."""
        await until_another_leads(self._transport, self._killed)

    def recording(self, recorder: Recorder) -> contextlib.AbstractAsyncContextManager[None]:
        """Watch the cluster."""
        return recorder.watching(self._given)

    @property
    def _kubeconfig(self) -> Path:
        environment_path = os.environ.get("KUBECONFIG", "")
        default = Path(environment_path) if environment_path else Path.home() / ".kube" / "config"
        return self._given or default

    @property
    def transport(self) -> Transport:
        """The connection with the access of the kubeconfig."""
        if self._transport is None:
            raise TargetError("the cluster is not connected")
        return self._transport

    def describe(self) -> dict[str, str]:
        """Return the description of the cluster for the report, without its address."""
        return {"kind": self.kind, **({"programs": " | ".join(self._programs)} if self._programs else {})}

    def timings(self) -> dict[str, str]:
        """Return an empty mapping, because this target starts nothing."""
        return {}

    async def kubernetes(self) -> str:
        """Return the version of the API server, or `unknown`."""
        return await server_version(self._transport)

    async def problem(self) -> str:
        """Return "": muster does not know the processes of an existing cluster."""
        return ""

    async def stop(self) -> None:
        """Disconnect."""
        self._transport = self._pages = None
        await self._stack.aclose()

    async def _check_projects(self) -> None:
        try:
            projects = await self.transport.list(PROJECTS.path(), Project)
        except NotFound as error:
            message = (
                f"{self._server} does not know projects.muster.dev: run `muster operator-yaml` and apply it"
            )
            raise TargetError(message) from error
        existing = sorted({project.metadata.name for project in projects.items} & self._projects)
        if existing:
            raise TargetError(
                f"project {existing[0]} exists already: `muster project delete {existing[0]}`, then run again"
            )

    async def _check_idle(self) -> None:
        """Wait until the reservations of earlier fractions and the claims of earlier checks are deleted.

        If another pod uses GPUs, raises TargetError.
        """
        deadline = time.monotonic() + IDLE_SECONDS
        while busy := await self._busy_pods():
            pod = next((each for each in busy if not _is_reservation(each)), busy[0])
            if not _is_reservation(pod) or time.monotonic() > deadline:
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                raise TargetError(f"pod {name} uses GPUs or waits for them: validate on an idle cluster")
            self._progress(f"waiting until the operator deletes {pod.metadata.name}")
            await asyncio.sleep(_POLL_SECONDS)
        while claim := await self._busy_claim():
            if time.monotonic() > deadline:
                raise TargetError(f"ResourceClaim {claim} holds a GPU: validate on an idle cluster")
            self._progress(f"waiting until the ResourceClaim {claim} is deleted")
            await asyncio.sleep(_POLL_SECONDS)

    async def _busy_pods(self) -> list[Pod]:
        """Return the pods that have GPUs or wait for the operator."""
        pods = await self.transport.list(PODS.path(), Pod)
        return [
            pod
            for pod in pods.items
            if pod.status.phase not in {"Succeeded", "Failed"}
            and (pod.spec.scheduler_name == SCHEDULER_NAME or (pod.spec.node_name and _wants_gpus(pod)))
        ]

    async def _busy_claim(self) -> str:
        """Return namespace and name of a ResourceClaim with a GPU of NVIDIA's DRA driver; empty if there is none."""
        version = await served_version(self.transport, RESOURCE_CLAIMS.group, DRA_VERSIONS)
        if version is None:
            return ""
        answer = await self.transport.get(replace(RESOURCE_CLAIMS, version=version).path())
        for claim in answer["items"]:
            allocation = claim.get("status", {}).get("allocation") or {}
            devices = (allocation.get("devices") or {}).get("results") or ()
            if any(device["driver"] == GPU_DRIVER for device in devices):
                return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        return ""

    async def _check_size(self, cluster: Cluster) -> None:
        nodes = await self.transport.list(NODES.path(), Node)
        said = {node.metadata.annotations.get(PROGRAMS_ANNOTATION, "") for node in nodes.items}
        self._programs = sorted(text for text in said if text and text.isascii() and text.isprintable())
        published = await self._published_gpus()
        counted = {
            node.metadata.name: max(
                int(node.status.allocatable.get(GPU_RESOURCE, 0)), published.get(node.metadata.name, 0)
            )
            for node in nodes.items
            if not node.spec.unschedulable
        }
        usable = {name: gpus for name, gpus in counted.items() if gpus}
        if sorted(usable.values()) != [cluster.gpus_per_node] * cluster.nodes:
            has = ", ".join(f"{name} {gpus}" for name, gpus in sorted(usable.items())) or "none"
            raise TargetError(
                f"the scenario needs exactly {cluster.nodes} nodes with {cluster.gpus_per_node} GPUs each, the cluster "
                f"has: {has}. Cordon the other nodes, or name another size with --size"
            )

    async def _published_gpus(self) -> dict[str, int]:
        """Return the number of GPUs that NVIDIA's DRA driver publishes, by node."""
        version = await served_version(self.transport, RESOURCE_SLICES.group, DRA_VERSIONS)
        if version is None:
            return {}
        answer = await self.transport.get(replace(RESOURCE_SLICES, version=version).path())
        return published_gpus(answer["items"])

    async def _check_operator(self) -> None:
        """Wait until the operator's lease is renewed.

        The holder's name in the lease proves nothing, because it remains after a crash.
        """
        deadline = time.monotonic() + OPERATOR_SECONDS
        self._progress("waiting until the operator renews its lease")
        while time.monotonic() < deadline:
            with contextlib.suppress(NotFound):
                lease = await self.transport.get(LEASES.path(SYSTEM_NAMESPACE, LEASE_NAME), Lease)
                if lease.spec.holder_identity:
                    before, self._renewed = self._renewed, lease.spec.renew_time
                    if before is not None and before != self._renewed:
                        return
            await asyncio.sleep(_POLL_SECONDS)
        raise TargetError(
            f"no operator runs on {self._server}: the lease {SYSTEM_NAMESPACE}/{LEASE_NAME} was not renewed within "
            f"{OPERATOR_SECONDS:g} s: `kubectl -n {SYSTEM_NAMESPACE} get pods` shows why"
        )


def _wants_gpus(pod: Pod) -> bool:
    return any(GPU_RESOURCE in container.resources.limits for container in pod.spec.containers)


def _is_reservation(pod: Pod) -> bool:
    """Return whether the pod is a reservation of a shared GPU.

    The operator deletes it when no fraction uses the GPU.
    """
    return pod.metadata.namespace == SYSTEM_NAMESPACE and RESERVATION_LABEL in pod.metadata.labels
