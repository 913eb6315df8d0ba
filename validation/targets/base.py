"""What a scenario runs against."""

from pathlib import Path
from typing import Any, Protocol

from orchestrator.cluster.transport import Transport
from validation.scenario.schema import Cluster


class Target(Protocol):
    """A cluster with the orchestrator in it. Not usable before `start`, nor after `stop`."""

    kind: str
    disposable: bool
    """Nothing on it needs to be cleaned up at the end, because it ends with the run."""

    async def start(self, cluster: Cluster) -> bool:
        """Be a cluster that `cluster` describes, with the orchestrator running.

        True if it is another cluster than before, so that what watched the old one must start anew.
        Raises TargetError when it cannot be.
        """

    @property
    def kubeconfig(self) -> Path:
        """Access of an administrator, for the commands of the scenarios."""

    @property
    def transport(self) -> Transport:
        """An open connection with that access."""

    def describe(self) -> dict[str, Any]:
        """What the report should say about it; nothing secret."""

    def problem(self) -> str:
        """What is wrong with it now, in one line; empty if nothing is known to be."""

    async def stop(self) -> None:
        """Give back everything that `start` took. Does nothing if nothing was taken."""
