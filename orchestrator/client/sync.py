"""The client for scripts and notebooks: plain calls, each of which returns when it is done.

The operations are those of `AsyncClient`; they run in an event loop of their own, in a thread of their own, so that
they work in a notebook too, whose thread has a loop already.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.client.aio import AsyncClient
from orchestrator.client.error_hints import with_hint
from orchestrator.cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from orchestrator.client.aio import Where
    from orchestrator.client.identity import Identity
    from orchestrator.client.jobs import Scope, Submitted
    from orchestrator.client.nodes import Nodes
    from orchestrator.client.port_forward import ForwardedPort, Listening
    from orchestrator.client.streams import Finished, LogRequest
    from orchestrator.cluster.objects import Event, Project, ProjectSpec
    from orchestrator.submit.submission import Submission
    from orchestrator.submit.templates import Template
    from orchestrator.views.gpus import GpuView
    from orchestrator.views.jobs import WorkloadView
    from orchestrator.views.nodes import NodeView

    T = TypeVar("T")


class Client:
    """A session with one cluster: `with Client() as client:`, or `client = Client()` and at the end `client.close()`.

    The arguments are those of `AsyncClient.of_kubeconfig`. Every method raises MusterError. Not for several threads at
    once.
    """

    def __init__(
        self,
        kubeconfig: Path | str | None = None,
        *,
        context: str | None = None,
        project: str | None = None,
        as_user: str | None = None,
        as_groups: Sequence[str] = (),
    ) -> None:
        self._client = AsyncClient.of_kubeconfig(
            kubeconfig, context=context, project=project, as_user=as_user, as_groups=as_groups
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; the next call opens a new one."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._client.transport.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    # --- jobs -----------------------------------------------------------------------------------------

    def scope(self, project: Where = None) -> Scope:
        """Return a project and its namespace. Raises NoSuchProject, NoProject, OperatorSilent."""
        return self._run(self._client.scope(project))

    def submit(
        self,
        submission: Submission,
        *,
        project: Where = None,
        dry_run: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> Submitted:
        """Create a job with all that stands beside it, or nothing. Return where it is, and the objects.

        What the job names must be there: claims, secrets, storage classes, node types; `report` is told in one line
        what you may not check. With `dry_run` the server checks everything and creates nothing. Raises Missing,
        DuplicateName, HalfCreated.
        """
        return self._run(self._client.submit(submission, project=project, dry_run=dry_run, report=report))

    def free_job_name(self, prefix: str, *, project: Where = None) -> str:
        """Return the name `<prefix>-<number>` with the smallest number that no job of the project has."""
        return self._run(self._client.free_job_name(prefix, project=project))

    def list_jobs(self, *, project: Where = None, all_projects: bool = False) -> list[WorkloadView]:
        """Return the jobs of a project, or of all: those that wait on top, then the newest first."""
        return self._run(self._client.list_jobs(project=project, all_projects=all_projects))

    def watch_jobs(
        self, *, project: Where = None, all_projects: bool = False
    ) -> Generator[list[WorkloadView], None, None]:
        """Yield what `list_jobs` returns, now and whenever it has changed, without an end."""
        return self._each(self._client.watch_jobs(project=project, all_projects=all_projects))

    def get_job(self, name: str, *, project: Where = None) -> WorkloadView:
        """Return one job. Raises NoSuchWorkload."""
        return self._run(self._client.get_job(name, project=project))

    def describe_job(self, name: str, *, project: Where = None) -> tuple[WorkloadView, list[Event]]:
        """Return one job and the events about it and its pods, oldest first. Raises NoSuchWorkload."""
        return self._run(self._client.describe_job(name, project=project))

    def delete_job(self, name: str, *, project: Where = None) -> None:
        """Delete a job; what belongs to it follows in the background. Raises NoSuchWorkload."""
        self._run(self._client.delete_job(name, project=project))

    def suspend_job(self, name: str, *, project: Where = None) -> None:
        """Stop a job and give its GPUs back, until it is resumed. Raises NoSuchWorkload, NotPossible."""
        self._run(self._client.suspend_job(name, project=project))

    def resume_job(self, name: str, *, project: Where = None) -> None:
        """Let a suspended job wait for its turn again. Raises NoSuchWorkload, NotPossible."""
        self._run(self._client.resume_job(name, project=project))

    def log(
        self,
        name: str,
        *,
        project: Where = None,
        pod: str | None = None,
        container: str | None = None,
        request: LogRequest | None = None,
    ) -> Generator[bytes, None, None]:
        """Yield the log of a job's youngest pod, or of the named one, as it comes; by default what there is.

        Raises NoSuchWorkload, NoSuchPod, NoSuchContainer, NotRunning.
        """
        return self._each(
            self._client.log(name, project=project, pod=pod, container=container, request=request)
        )

    def execute(
        self,
        name: str,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        project: Where = None,
        pod: str | None = None,
        container: str | None = None,
        patience_seconds: float = 60,
    ) -> Finished:
        """Run a command in a job's container to its end, with `stdin` as its standard input; wait until it runs.

        Raises NoSuchWorkload, NoSuchPod, NoSuchContainer, NotRunning, NotExecutable.
        """
        return self._run(
            self._client.execute(
                name,
                command,
                stdin=stdin,
                project=project,
                pod=pod,
                container=container,
                patience_seconds=patience_seconds,
            )
        )

    @contextmanager
    def port_forward(
        self,
        name: str,
        *ports: ForwardedPort,
        project: Where = None,
        pod: str | None = None,
        patience_seconds: float = 60,
    ) -> Generator[list[Listening], None, None]:
        """Let local ports lead to a job while the context lasts; yields the addresses. Local port 0: any that is free.

        Raises NoSuchWorkload, NoSuchPod, NotRunning, PortInUse.
        """
        forwarding = self._client.port_forward(
            name, *ports, project=project, pod=pod, patience_seconds=patience_seconds
        )
        addresses = self._run(_entered(forwarding))
        try:
            yield addresses
        finally:
            self._run(_left(forwarding))

    # --- templates ------------------------------------------------------------------------------------

    def list_templates(self, *, project: Where = None) -> list[Template]:
        """Return the templates of a project, then the cluster's."""
        return self._run(self._client.list_templates(project=project))

    def get_template(self, name: str, *, project: Where = None) -> Template:
        """Return one template; a project's hides the cluster's of the same name. Raises NoSuchTemplate."""
        return self._run(self._client.get_template(name, project=project))

    def templates_to_apply(self, name: str | None, *, project: Where = None) -> list[Template]:
        """Return the templates that apply to a submission, the one that wins first: `name` and the defaults.

        Raises NoSuchTemplate.
        """
        return self._run(self._client.templates_to_apply(name, project=project))

    def create_template(self, template: Template) -> None:
        """Create a template in its namespace. Raises TemplateRefused when there is one or it cannot be used."""
        self._run(self._client.create_template(template))

    def delete_template(self, name: str, *, project: Where = None, of_cluster: bool = False) -> None:
        """Delete a template of a project, or of the cluster. Raises NoSuchTemplate."""
        self._run(self._client.delete_template(name, project=project, of_cluster=of_cluster))

    # --- projects -------------------------------------------------------------------------------------

    def list_projects(self) -> list[Project]:
        """Return all projects by name."""
        return self._run(self._client.list_projects())

    def get_project(self, name: str) -> Project:
        """Return one project. Raises NoSuchProject."""
        return self._run(self._client.get_project(name))

    def create_project(self, name: str, spec: ProjectSpec, *, wait: bool = True) -> str:
        """Create a project and return its namespace, or "" without waiting for it.

        Raises ProjectRefused when the quotas would exceed the cluster, OperatorSilent when nobody makes the namespace.
        """
        return self._run(self._client.create_project(name, spec, wait=wait))

    def update_project(self, name: str, patch: Mapping[str, Any], expected: ProjectSpec) -> None:
        """Merge `patch` (as in the API) into a project's spec; `expected` is the outcome, which is checked.

        Raises NoSuchProject, ProjectRefused.
        """
        self._run(self._client.update_project(name, patch, expected))

    def delete_project(self, name: str, *, force: bool = False) -> None:
        """Delete a project. Raises ProjectRefused while it has jobs or projects, unless `force`."""
        self._run(self._client.delete_project(name, force=force))

    def default_project(self) -> str | None:
        """Return the project of the kubeconfig's context, None where its namespace belongs to none."""
        return self._run(self._client.default_project())

    def set_default_project(self, name: str) -> None:
        """Make a project's namespace the default of the kubeconfig's context. Raises NoSuchProject."""
        self._run(self._client.set_default_project(name))

    # --- the cluster ----------------------------------------------------------------------------------

    def list_nodes(self, *, usage: bool = False) -> Nodes:
        """Return all nodes by name; with `usage` also what their kubelets measured, as far as they answer."""
        return self._run(self._client.list_nodes(usage=usage))

    def get_node(self, name: str) -> NodeView:
        """Return one node with what its kubelet measured. Raises NoSuchNode."""
        return self._run(self._client.get_node(name))

    def list_gpus(self) -> dict[str, tuple[GpuView, ...]]:
        """Return the GPUs by the names of their nodes, as the agents wrote them last; nothing where there are none."""
        return self._run(self._client.list_gpus())

    def whoami(self) -> Identity:
        """Return who the cluster takes the user for, and their role in each project that they may see."""
        return self._run(self._client.whoami())

    # --- the loop -------------------------------------------------------------------------------------

    def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        waiting = asyncio.run_coroutine_threadsafe(operation, self._running_loop())
        try:
            return waiting.result()
        except ClusterError as error:
            better = with_hint(error, self._client.access)
            if better is error:
                raise
            raise better from error
        except BaseException:
            waiting.cancel()  # the caller was interrupted: nobody waits for the answer any more
            raise

    def _each(self, generator: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while True:
                try:
                    item = self._run(_next(generator))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._run(generator.aclose())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="muster-client", daemon=True)
            self._thread.start()
            asyncio.run_coroutine_threadsafe(self._client.transport.__aenter__(), self._loop).result()
        return self._loop


async def _next(states: AsyncGenerator[T, None]) -> T:
    return await anext(states)


async def _entered(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _left(context: AbstractAsyncContextManager[Any]) -> None:
    await context.__aexit__(None, None, None)
