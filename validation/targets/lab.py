"""A lab as the target: a real control plane of our own with simulated nodes, and the operator as a process."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from validation.errors import TargetError
from validation.judge.events import PodSeen
from validation.report.record import Command
from validation.scenario.schema import Cluster
from validation.targets.installation import install
from validation.targets.kinds import LAB
from validation.targets.node_types import label_nodes
from validation.targets.operator_process import OperatorProcess
from validation.targets.process import run_command, server_version
from validation.targets.pulling import Pull
from validation.targets.recorder import Recorder
from validation.targets.upkeep import cordon_nodes, evict_pods, leader
from validation.targets.web_pages import PageShown, WebPages, serving_pages
from validation.witness.urls import Opened

if TYPE_CHECKING:
    from musterlab.cluster import Lab

STOP_SECONDS_ANNOTATION: Final = "muster.dev/lab-stop-seconds"
"""On a pod of a simulated node: seconds that its termination takes (`musterlab/stages.yaml`)."""
STOP_SECONDS: Final = 5


class LabTarget:
    """Starts a lab for the first scenario, keeps it while scenarios need the same nodes, and stops it at the end."""

    kind = LAB
    pulls_images = False
    disposable = True

    def __init__(
        self, operator: OperatorProcess, run_directory: Path, progress: Callable[[str], None]
    ) -> None:
        self._operator = operator
        self._run_directory = run_directory
        self._progress = progress
        self._stack = contextlib.AsyncExitStack()
        self._shape: Cluster | None = None
        self._lab: Lab | None = None
        self._transport: Transport | None = None
        self._pages: WebPages | None = None
        self._timings: dict[str, str] = {}
        self._killed = ""

    async def start(self, cluster: Cluster) -> bool:
        """Start a lab with these nodes, and the operator in it.

        If a lab with the same nodes runs already, return False.
        """
        if self._shape == cluster:
            return False
        await self.stop()
        self._shape = cluster
        begin = time.monotonic()
        self._lab = await self._stack.enter_async_context(self._operator.lab(cluster))
        self._timings["lab ready after"] = f"{time.monotonic() - begin:.1f} s"
        self._transport = await self._stack.enter_async_context(
            Transport(load_access(self._lab.kubeconfig), user_agent="muster-validate")
        )
        self._progress("installing the orchestrator")
        try:
            await install(
                self._operator.site, self._lab.kubeconfig, self._run_directory / "install", self._progress
            )
            self._timings["orchestrator installed after"] = f"{time.monotonic() - begin:.1f} s"
            await self._stack.enter_async_context(self._operator.running(self._lab, self._transport))
        except ClusterError as error:
            raise TargetError(f"the orchestrator cannot be installed in the lab: {error}") from error
        self._timings["operator leads after"] = f"{time.monotonic() - begin:.1f} s"
        return True

    async def execute(self, line: str, *, started_ms: int) -> Command:
        """Run the command line against the lab, and return its result."""
        if self._lab is None:
            raise TargetError("the lab is not started")
        return await run_command(line, self._lab.kubeconfig, started_ms=started_ms)

    async def set_node_types(self, types: Mapping[str, str]) -> None:
        """Set the label of its group on each of these nodes. Raises TargetError."""
        await label_nodes(self._transport, types)

    async def open_pages(self) -> None:
        """Serve the pages of the lab. Raises TargetError."""
        if self._pages is None:
            self._pages = await self._stack.enter_async_context(self._serving())

    async def show_page(self, view: str) -> PageShown:
        """Return the present content of the page of this view. Raises TargetError."""
        if self._pages is None:
            raise TargetError("the pages are not served")
        return await self._pages.show(view)

    async def open_url(self, url: str) -> Opened:
        """Return that there is no answer: a lab with simulated nodes has no ingress controller."""
        return Opened(0, f"no ingress controller serves {url}")

    async def pull(self, nodes: Sequence[str], images: Sequence[str]) -> list[Pull]:
        """Do nothing: the nodes of a lab have their images already, or run no containers.

        Return an empty result for each node and image.
        """
        return [Pull(node, image) for image in images for node in nodes]

    async def cordon(self, nodes: Mapping[str, bool]) -> None:
        """Cordon (True) or uncordon (False) each of these nodes. Raises TargetError."""
        await cordon_nodes(self._transport, nodes)

    async def drain(self, pods: Sequence[PodSeen]) -> None:
        """Evict the pods. Raises TargetError."""
        await evict_pods(self._transport, pods)

    async def let_end_slowly(self, pods: Sequence[PodSeen]) -> None:
        """If the nodes are simulated, let the pods take a few seconds to end. Raises TargetError."""
        if self._transport is None:
            raise TargetError("the lab is not started")
        annotations = {"metadata": {"annotations": {STOP_SECONDS_ANNOTATION: str(STOP_SECONDS)}}}
        try:
            for pod in pods:
                path = PODS.path(pod.namespace, pod.pod)
                with contextlib.suppress(NotFound):  # the pod has ended in the meantime
                    await self._transport.patch(path, annotations, content_type=MERGE_PATCH)
        except ClusterError as error:
            raise TargetError(f"the lab's pods cannot be annotated: {error}") from error

    async def kill_operator(self) -> str:
        """Kill the leading operator; return why that is not possible, empty if it was killed. Raises TargetError."""
        self._killed = await leader(self._transport)
        return await self._operator.kill(self._killed)

    async def operator_leads_again(self) -> None:
        """Wait until another operator than the killed one leads. Raises TargetError."""
        await self._operator.start_again(self._killed)

    def recording(self, recorder: Recorder) -> contextlib.AbstractAsyncContextManager[None]:
        """Let the recorder watch the lab."""
        if self._lab is None:
            raise TargetError("the lab is not started")
        return recorder.watching(self._lab.kubeconfig)

    def describe(self) -> dict[str, str]:
        """Return the description of the lab for the report."""
        described = {"kind": self.kind, **self._operator.describe()}
        if self._shape is not None:
            described["profile"] = self._shape.profile
        return described

    def timings(self) -> dict[str, str]:
        """Return the times from the start of the lab until each part was ready."""
        return dict(self._timings)

    def _serving(self) -> contextlib.AbstractAsyncContextManager[WebPages]:
        if self._lab is None or self._transport is None:
            raise TargetError("the lab is not started")
        return serving_pages(self._transport, self._lab.kubeconfig)

    async def kubernetes(self) -> str:
        """Return the version of the API server of the lab, or `unknown`."""
        return await server_version(self._transport)

    async def problem(self) -> str:
        """Return a line if the operator or a process of the lab has ended, or ""."""
        if operator_problem := await self._operator.problem():
            return operator_problem
        if self._lab is not None:
            ended = [process.name for process in self._lab.status().ended]
            if ended:
                return f"the lab lost {', '.join(ended)}"
        return ""

    async def stop(self) -> None:
        """Stop the operator and the lab."""
        self._shape = None
        self._lab = None
        self._transport = self._pages = None
        await self._stack.aclose()
