"""The interface of a cluster that scenarios run against."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from validation.judge.events import PodSeen
from validation.report.record import Command
from validation.scenario.schema import Cluster
from validation.targets.pulling import Pull
from validation.targets.recorder import Recorder
from validation.targets.web_pages import PageShown
from validation.witness.urls import Opened


class Target(Protocol):
    """A cluster with the orchestrator in it. Not usable before `start`, nor after `stop`."""

    kind: str
    pulls_images: bool
    """Whether its nodes have to pull the images of scenarios; False if no containers run."""
    disposable: bool
    """Whether nothing needs to be cleaned up at the end, because the target ends with the run."""

    async def start(self, cluster: Cluster) -> bool:
        """Provide a cluster that matches `cluster`, with the orchestrator running.

        Return True if it is another cluster than before, so that watches must be started again. Raises TargetError.
        """

    async def set_node_types(self, types: Mapping[str, str]) -> None:
        """Put each of these nodes into its group, by a label; "" removes a node from its group. Raises TargetError."""

    async def pull(self, nodes: Sequence[str], images: Sequence[str]) -> list[Pull]:
        """Let these nodes pull these images; return the result of each pull: the digest, or the problem. Raises
        TargetError.
        """

    async def cordon(self, nodes: Mapping[str, bool]) -> None:
        """Cordon (True) or uncordon (False) each of these nodes. Raises TargetError."""

    async def drain(self, pods: Sequence[PodSeen]) -> None:
        """Evict the pods as a drain of their node does.

        It is not an error if a pod is already deleted. Raises TargetError.
        """

    async def let_end_slowly(self, pods: Sequence[PodSeen]) -> None:
        """Give simulated pods a termination that takes time, because they have no containers. Raises TargetError."""

    async def kill_operator(self) -> str:
        """Kill the leading operator; return why that is not possible, empty if it was killed. Raises TargetError."""

    async def operator_leads_again(self) -> None:
        """Wait until another operator than the killed one leads. Raises TargetError."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        """Run a `muster` command line with the access of an administrator, and wait for its end."""

    async def open_pages(self) -> None:
        """Serve the pages for browsers from now on, as an administrator does. Raises TargetError."""

    async def show_page(self, view: str) -> PageShown:
        """Return the content of this view's page, as a viewer sees it after opening the page. Raises TargetError."""

    async def open_url(self, url: str) -> Opened:
        """Return the answer to a request to the SERVICE URL of a job."""

    def recording(self, recorder: Recorder) -> contextlib.AbstractAsyncContextManager[None]:
        """Let the recorder watch the cluster. Raises TargetError if it cannot be watched."""

    def describe(self) -> dict[str, str]:
        """Return the description of the target for the report: without secrets and without values that differ in each
        run.
        """

    def timings(self) -> dict[str, str]:
        """Return the time that each part of the target took to become ready, as text."""

    async def kubernetes(self) -> str:
        """Return the version of the API server, or `unknown`."""

    async def problem(self) -> str:
        """Return the present problem of the cluster, in one line; empty if none is known."""

    async def stop(self) -> None:
        """Release everything that `start` acquired. If `start` was not called, do nothing."""
