"""The client for scripts and notebooks: plain calls, each of which returns when it is done.

The operations are those of `AsyncClient`, with their arguments and docstrings. They run in an event loop in a separate
thread, because the thread of a notebook already has an event loop.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING

from orchestrator.client.aio import AsyncClient
from orchestrator.client.error_hints import with_hint
from orchestrator.client.jobs import Submitted
from orchestrator.cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Concatenate, ParamSpec, Self, TypeVar

    from orchestrator.client.handles import AsyncJob
    from orchestrator.views.jobs import WorkloadView

    P = ParamSpec("P")
    T = TypeVar("T")


def _plain(
    operation: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return the operation as a method that returns its result."""

    @wraps(operation)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(operation(self._client, *args, **kwargs))

    return call


def _job(
    operation: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncJob]],
) -> Callable[Concatenate[Client, P], Job]:
    """Return the operation as a method that returns a handle with plain methods."""

    @wraps(operation)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        made = self._run(operation(self._client, *args, **kwargs))
        return Job(made.project, made.namespace, made.objects, client=self)

    return call


def _each(
    operation: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Generator[T, None, None]]:
    """Return the operation as a method that yields its items."""

    @wraps(operation)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        items = operation(self._client, *args, **kwargs)
        try:
            while True:
                try:
                    item = self._run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._run(items.aclose())

    return call


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


def _context(
    operation: Callable[Concatenate[AsyncClient, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[Client, P], AbstractContextManager[T]]:
    """Return the operation as a method that returns a context manager."""

    @wraps(operation)
    @contextmanager
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        context = operation(self._client, *args, **kwargs)
        entered = self._run(context.__aenter__())
        try:
            yield entered
        finally:
            self._run(context.__aexit__(None, None, None))

    return call


class Client:
    """A session with one cluster: `with Client() as client:`, or `client = Client()` and at the end `client.close()`.

    The arguments are those of `AsyncClient.of_kubeconfig`. Every method raises MusterError. Only for one thread at a
    time.
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

    scope = _plain(AsyncClient.scope)
    submit = _job(AsyncClient.submit)
    map = _plain(AsyncClient.map)
    wait_for_jobs = _plain(AsyncClient.wait_for_jobs)
    with_clones = _plain(AsyncClient.with_clones)
    with_dependencies = _plain(AsyncClient.with_dependencies)
    free_job_name = _plain(AsyncClient.free_job_name)
    list_jobs = _plain(AsyncClient.list_jobs)
    watch_jobs = _each(AsyncClient.watch_jobs)
    get_job = _plain(AsyncClient.get_job)
    describe_job = _plain(AsyncClient.describe_job)
    mounted_claims = _plain(AsyncClient.mounted_claims)
    delete_job = _plain(AsyncClient.delete_job)
    suspend_job = _plain(AsyncClient.suspend_job)
    resume_job = _plain(AsyncClient.resume_job)
    requeue_job = _plain(AsyncClient.requeue_job)
    restart_job = _plain(AsyncClient.restart_job)
    edit_job = _plain(AsyncClient.edit_job)
    log = _each(AsyncClient.log)
    execute = _plain(AsyncClient.execute)
    port_forward = _context(AsyncClient.port_forward)

    list_templates = _plain(AsyncClient.list_templates)
    get_template = _plain(AsyncClient.get_template)
    templates_to_apply = _plain(AsyncClient.templates_to_apply)
    create_template = _plain(AsyncClient.create_template)
    delete_template = _plain(AsyncClient.delete_template)

    list_projects = _plain(AsyncClient.list_projects)
    get_project = _plain(AsyncClient.get_project)
    create_project = _plain(AsyncClient.create_project)
    update_project = _plain(AsyncClient.update_project)
    delete_project = _plain(AsyncClient.delete_project)
    default_project = _plain(AsyncClient.default_project)
    set_default_project = _plain(AsyncClient.set_default_project)

    list_nodes = _plain(AsyncClient.list_nodes)
    get_node = _plain(AsyncClient.get_node)
    list_gpus = _plain(AsyncClient.list_gpus)
    whoami = _plain(AsyncClient.whoami)

    def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Return the result of an operation of `client`; this thread waits for it."""
        waiting = asyncio.run_coroutine_threadsafe(operation, self._running_loop())
        try:
            return waiting.result()
        except ClusterError as error:
            better = with_hint(error, self._client.access)
            if better is error:
                raise
            raise better from error
        except BaseException:
            waiting.cancel()  # the caller was interrupted and does not read the answer
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="muster-client", daemon=True)
            self._thread.start()
            asyncio.run_coroutine_threadsafe(self._client.transport.__aenter__(), self._loop).result()
        return self._loop


@dataclass(frozen=True, slots=True)
class Job(Submitted):
    """A job that `Client` submitted. Its methods work as long as the client is open."""

    client: Client = field(kw_only=True, repr=False, compare=False)

    def wait(self, until: str = "ended", *, timeout_seconds: float | None = None) -> WorkloadView:
        """Return the job as soon as it is `running`, `ended`, `succeeded` or `failed`.

        Raises WaitTimeout, NotReached.
        """
        (view,) = self.client.wait_for_jobs(
            self.name, until=until, timeout_seconds=timeout_seconds, project=self
        )
        return view

    def result(self, *, timeout_seconds: float | None = None) -> WorkloadView:
        """Return the job after it has succeeded. Raises NotReached if it failed, and WaitTimeout."""
        return self.wait("succeeded", timeout_seconds=timeout_seconds)

    def logs(self, *, follow: bool = False) -> Generator[bytes, None, None]:
        """Yield the log of the job's newest pod, with `follow` until it ends."""
        from orchestrator.client.streams import LogRequest

        yield from self.client.log(self.name, project=self, request=LogRequest(follow=follow))

    def cancel(self) -> None:
        """Delete the job."""
        self.client.delete_job(self.name, project=self)
