"""The result of a submission by `AsyncClient`: the job's name and objects, and the operations on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from orchestrator.client.jobs import Submitted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from orchestrator.client.jobs import Scope
    from orchestrator.client.streams import LogRequest
    from orchestrator.views.jobs import WorkloadView


class Operations(Protocol):
    """The operations of `AsyncClient` on a job, which are described there."""

    async def wait_for_jobs(
        self, *names: str, until: str, timeout_seconds: float | None, project: Scope
    ) -> list[WorkloadView]:
        """Wait until the jobs have reached this state, and return them."""

    def log(self, name: str, *, project: Scope, request: LogRequest) -> AsyncGenerator[bytes, None]:
        """Yield the log."""

    async def delete_job(self, name: str, *, project: Scope) -> None:
        """Delete the job."""


@dataclass(frozen=True, slots=True)
class AsyncJob(Submitted):
    """A job that `AsyncClient` submitted. Its methods work as long as the client is open."""

    client: Operations = field(kw_only=True, repr=False, compare=False)

    async def wait(self, until: str = "ended", *, timeout_seconds: float | None = None) -> WorkloadView:
        """Return the job as soon as it is `running`, `ended`, `succeeded` or `failed`.

        Raises WaitTimeout, NotReached.
        """
        (view,) = await self.client.wait_for_jobs(
            self.name, until=until, timeout_seconds=timeout_seconds, project=self
        )
        return view

    async def result(self, *, timeout_seconds: float | None = None) -> WorkloadView:
        """Return the job after it has succeeded. Raises NotReached if it failed, and WaitTimeout."""
        return await self.wait("succeeded", timeout_seconds=timeout_seconds)

    async def logs(self, *, follow: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield the log of the job's newest pod, with `follow` until the container ends.

        Close it (`contextlib.aclosing`).
        """
        from orchestrator.client.streams import LogRequest

        async for chunk in self.client.log(self.name, project=self, request=LogRequest(follow=follow)):
            yield chunk

    async def cancel(self) -> None:
        """Delete the job."""
        await self.client.delete_job(self.name, project=self)
