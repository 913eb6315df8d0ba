"""The interface of a cluster that scenarios run against."""

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
        """Provide a cluster as `cluster` describes it, with the orchestrator running.

        True if it is another one than before, so that watches must be started again. Raises TargetError.
        """

    @property
    def kubeconfig(self) -> Path:
        """Access of an administrator, for the commands of the scenarios."""

    @property
    def transport(self) -> Transport:
        """An open connection with that access."""

    def describe(self) -> dict[str, Any]:
        """What the report says about the target; nothing secret."""

    async def problem(self) -> str:
        """What is wrong with the cluster now, in one line; empty if nothing is known to be."""

    async def stop(self) -> None:
        """Release everything that `start` acquired; does nothing before `start`."""
