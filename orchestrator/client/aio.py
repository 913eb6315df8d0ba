"""The client for programs with an event loop of their own: one session with one cluster.

    async with AsyncClient.of_kubeconfig() as client:
        await client.submit(Submission(...))
        jobs = await client.list_jobs()

A `project` of None is the project of the default namespace in the kubeconfig's context. A `Scope` from an earlier
look-up saves a request. Every operation raises MusterError.

A module that only a few operations need is imported inside these operations: most programs and commands use only a few.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client.error_hints import with_hint
from orchestrator.client.jobs import Scope, WorkloadClient
from orchestrator.client.projects import ProjectClient
from orchestrator.cluster.errors import ClusterError, Forbidden, NotFound
from orchestrator.cluster.kubeconfig import Access, load_access, set_default_namespace
from orchestrator.cluster.quantity import format_time
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError
from orchestrator.names import TEMPLATES_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from orchestrator.client.data import DataClient
    from orchestrator.client.drains import DrainClient
    from orchestrator.client.editing import Editor
    from orchestrator.client.handles import AsyncJob
    from orchestrator.client.identity import Identity
    from orchestrator.client.nodes import NodeClient, Nodes
    from orchestrator.client.port_forward import ForwardedPort, Listening
    from orchestrator.client.streams import Finished, LogRequest, StreamClient
    from orchestrator.client.targets import Target
    from orchestrator.client.templates import TemplateClient
    from orchestrator.cluster.objects import Event, Project, ProjectSpec
    from orchestrator.submit.changes import Change
    from orchestrator.submit.submission import Submission
    from orchestrator.submit.templates import Template
    from orchestrator.views.gpus import GpuView
    from orchestrator.views.jobs import WorkloadView
    from orchestrator.views.nodes import NodeView

    Where = str | Scope | None


class AsyncClient:
    """See the module. `access` names cluster and user; `default_project` overrides the kubeconfig's."""

    def __init__(
        self,
        access: Access,
        *,
        default_project: str | None = None,
        kubeconfig: Path | None = None,
        context: str | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.access = access
        self.transport = Transport(access)
        self._default_project = default_project
        self._kubeconfig = kubeconfig
        self._context = context
        self._report = report
        self._jobs = WorkloadClient(self.transport)
        self._projects = ProjectClient(self.transport, report=report)

    @cached_property
    def streams(self) -> StreamClient:
        """Logs, commands and ports of containers."""
        from orchestrator.client.streams import StreamClient

        return StreamClient(self.transport)

    @cached_property
    def data(self) -> DataClient:
        """The volumes and snapshots of projects."""
        from orchestrator.client.data import DataClient

        return DataClient(self.transport)

    @cached_property
    def drains(self) -> DrainClient:
        """The drains of nodes."""
        from orchestrator.client.drains import DrainClient

        return DrainClient(self.transport)

    @cached_property
    def _templates(self) -> TemplateClient:
        from orchestrator.client.templates import TemplateClient

        return TemplateClient(self.transport)

    @cached_property
    def _editor(self) -> Editor:
        from orchestrator.client.editing import Editor

        return Editor(self.transport, self._jobs, self._report)

    @cached_property
    def _nodes(self) -> NodeClient:
        from orchestrator.client.nodes import NodeClient

        return NodeClient(self.transport)

    @classmethod
    def of_kubeconfig(
        cls,
        kubeconfig: Path | str | None = None,
        *,
        context: str | None = None,
        project: str | None = None,
        as_user: str | None = None,
        as_groups: Sequence[str] = (),
        report: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Return a client of a kubeconfig's context: by default the current context of $KUBECONFIG or ~/.kube/config.

        `project` becomes the default project. `as_user` and `as_groups` are impersonated, which the cluster must
        allow. `report` gets one line about each wait. Raises ConfigurationError.
        """
        path = Path(kubeconfig) if kubeconfig is not None else None
        access = load_access(path, context, as_user=as_user, as_groups=as_groups)
        return cls(access, default_project=project, kubeconfig=path, context=context, report=report)

    async def __aenter__(self) -> Self:
        await self.transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transport.__aexit__(kind, error, trace)
        if isinstance(error, ClusterError):
            better = with_hint(error, self.access)
            if better is not error:
                raise better from error

    def with_hint(self, error: MusterError) -> MusterError:
        """Return the error with a hint: the context, the missing right, and the role that has it."""
        return with_hint(error, self.access) if isinstance(error, ClusterError) else error

    async def scope(self, project: Where = None) -> Scope:
        """Return a project and its namespace. Raises NoSuchProject, NoProject, OperatorSilent."""
        if isinstance(project, Scope):
            return project
        return await self._projects.resolve(project or self._default_project, self.access.namespace)

    # --- jobs -----------------------------------------------------------------------------------------

    async def submit(
        self,
        submission: Submission,
        *,
        project: Where = None,
        submitted_at: str | None = None,
        dry_run: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> AsyncJob:
        """Create a job with its other objects, or nothing. Return a handle of it, with the objects.

        The objects that the job names must exist: PVCs, secrets, storage classes, node types, jobs. `report` gets one
        line for each check that the user may not make. `submitted_at` is RFC 3339 with microseconds, by default now.
        With `dry_run` the server checks everything and creates nothing. Raises Missing, DuplicateName, HalfCreated.
        """
        from orchestrator.client.handles import AsyncJob
        from orchestrator.client.preflight import preflight

        scope = await self.scope(project)
        submission = await self.with_clones(submission, project=scope)
        submission = await self.with_dependencies(submission, project=scope)
        checked = await preflight(self.transport, submission, scope)
        for line in checked.warnings:
            report(line)
        moment = submitted_at or format_time(time.time_ns() // 1000)
        objects = await self._jobs.submit(
            submission,
            scope,
            moment,
            dry_run=dry_run,
            is_restricted=checked.is_restricted,
            limits_gpu_memory=checked.limits_gpu_memory,
            ingress=checked.ingress,
        )
        return AsyncJob(scope.project, scope.namespace, objects, client=self)

    async def map(
        self,
        function: Callable[[Any], Any],
        parameters: Iterable[Any],
        job: Submission,
        *,
        project: Where = None,
        parallelism: int | None = None,
        timeout_seconds: float | None = None,
    ) -> list[Any]:
        """Run `function` for each of the parameters in a pod of its own, and return the results in their order.

        `job` has the name, the image and the resources of a pod. At most `parallelism` pods run at the same time. The
        job is deleted when the results are there. After an error it stays.

        A result is at most 4 KB of JSON: None, bool, int, float, str, list, or dict with str keys. A tuple comes back
        as a list. Raises FunctionFailed with the index of the first function that failed, PythonDiffers, WaitTimeout,
        and InvalidField.
        """
        from orchestrator.client.functions import map_function

        return await map_function(
            self,
            function,
            list(parameters),
            job,
            scope=await self.scope(project),
            parallelism=parallelism,
            timeout_seconds=timeout_seconds,
        )

    async def with_clones(self, submission: Submission, *, project: Where = None) -> Submission:
        """Return a submission whose clones have the size, class and access mode of their sources.

        Raises NoSuchVolume, DatasetNotReady.
        """
        if not any(claim.clone_of and not claim.size_bytes for claim in submission.new_claims):
            return submission
        scope = await self.scope(project)
        claims = [await self.data.filled_clone(scope, claim) for claim in submission.new_claims]
        return replace(submission, new_claims=tuple(claims))

    async def with_dependencies(self, submission: Submission, *, project: Where = None) -> Submission:
        """Return a submission with the uids of the jobs that it depends on, without dependencies that are met.

        Raises Missing if a job does not exist, or can no longer reach the state.
        """
        if not submission.after:
            return submission
        from orchestrator.client.dependencies import unmet

        return replace(
            submission, after=await unmet(self.transport, await self.scope(project), submission.after)
        )

    async def free_job_name(self, prefix: str, *, project: Where = None) -> str:
        """Return the name `<prefix>-<number>` with the smallest number that no job of the project has."""
        return await self._jobs.free_name(await self.scope(project), prefix)

    async def list_jobs(self, *, project: Where = None, all_projects: bool = False) -> list[WorkloadView]:
        """Return the jobs of a project, or of all: pending ones first, then the newest."""
        if all_projects:
            return await self._jobs.workloads(await self._projects.namespaces())
        scope = await self.scope(project)
        return await self._jobs.workloads({scope.namespace: scope.project}, scope.namespace)

    async def watch_jobs(
        self, *, project: Where = None, all_projects: bool = False, timeout_seconds: float | None = None
    ) -> AsyncGenerator[list[WorkloadView], None]:
        """Yield the result of `list_jobs`, now and after each change; end after `timeout_seconds`, or never.

        `AsyncClient`: close it by `aclosing`.
        """
        from orchestrator.client.watching import watch_jobs

        scope = None if all_projects else await self.scope(project)
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        async with aclosing(watch_jobs(self.transport, scope)) as states:
            while True:
                left = None if until is None else until - time.monotonic()
                try:
                    views = await asyncio.wait_for(anext(states), left)
                except (TimeoutError, StopAsyncIteration):
                    return
                yield views

    async def wait_for_jobs(
        self,
        *names: str,
        until: str = "ended",
        timeout_seconds: float | None = None,
        project: Where = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> list[WorkloadView]:
        """Return the jobs as soon as each of them is `running`, has `ended`, has `succeeded` or has `failed`.

        `report` gets a line for each new status. Raises NoSuchWorkload, WaitTimeout after `timeout_seconds`, and
        NotReached if a job was deleted, or can no longer reach the state: it failed before it ran.
        """
        from orchestrator.client.waits import wait_for_jobs

        scope = await self.scope(project)
        return await wait_for_jobs(
            self.transport, scope, names, goal=until, timeout_seconds=timeout_seconds, report=report
        )

    async def get_job(self, name: str, *, project: Where = None) -> WorkloadView:
        """Return one job. Raises NoSuchWorkload."""
        return (await self.describe_job(name, project=project))[0]

    async def describe_job(self, name: str, *, project: Where = None) -> tuple[WorkloadView, list[Event]]:
        """Return one job and the events about it and its pods, oldest first. Raises NoSuchWorkload."""
        return await self._jobs.workload(await self.scope(project), name)

    async def mounted_claims(self, view: WorkloadView) -> list[str]:
        """Return the PVCs of a job with their directories, such as `data at /work`; empty if the job has no pod."""
        from orchestrator.views.mounts import mounted_claims

        if not view.pods:
            return []
        path = PODS.path(view.namespace, view.pods[0].metadata.name)
        try:
            return mounted_claims(await self.transport.get(path))
        except NotFound:  # the pod has ended in the meantime
            return []

    async def delete_job(self, name: str, *, project: Where = None, dry_run: bool = False) -> None:
        """Delete a job; its other objects follow in the background.

        With `dry_run` the server checks the request and deletes nothing. Raises NoSuchWorkload.
        """
        await self._jobs.delete(await self.scope(project), name, dry_run=dry_run)

    async def suspend_job(self, name: str, *, project: Where = None) -> None:
        """Stop a job and give its GPUs back, until it is resumed. Raises NoSuchWorkload, NotPossible."""
        await self._jobs.suspend(await self.scope(project), name)

    async def resume_job(self, name: str, *, project: Where = None) -> None:
        """Resume a suspended job: it is pending again. Raises NoSuchWorkload, NotPossible."""
        await self._jobs.resume(await self.scope(project), name)

    async def requeue_job(self, name: str, *, project: Where = None) -> None:
        """Stop a job, give its GPUs back, and put it at the end of its project's queue.

        Raises NoSuchWorkload, NotPossible.
        """
        await self._editor.requeue(await self.scope(project), name)

    async def restart_job(self, name: str, *, project: Where = None) -> None:
        """Stop a job, and return it to the queue with its age. Raises NoSuchWorkload, NotPossible."""
        await self._editor.restart(await self.scope(project), name)

    async def edit_job(
        self, name: str, change: Change, *, project: Where = None, dry_run: bool = False
    ) -> WorkloadView:
        """Change a job, and return it: its priority at any time; its image and GPUs while none of its containers runs.

        A training job with another image or number of GPUs is created anew, and is the last in its queue. With
        `dry_run` the server checks the change, and the result is the job as it would be. Raises NoSuchWorkload,
        NotPossible, InvalidField, HalfEdited.
        """
        scope = await self.scope(project)
        edited = await self._editor.edit(scope, name, change, dry_run=dry_run)
        if not dry_run:
            return await self.get_job(name, project=scope)
        return await self._jobs.edited(scope, edited[0], keeps_pods=not change.is_of_pods)

    async def log(
        self,
        name: str,
        *,
        project: Where = None,
        pod: str | None = None,
        container: str | None = None,
        index: int | None = None,
        request: LogRequest | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the log of a job's pod: of `pod`, or by default of the youngest pod, with `index` only among the pods
        of that index.

        Without a `request`, the log ends with its present last line.

        `AsyncClient`: close it (`contextlib.aclosing`). Raises NoSuchWorkload, NoSuchPod, NoSuchContainer, NotRunning.
        """
        from orchestrator.client.streams import LogRequest

        target = await self.streams.target(await self.scope(project), name, pod, container, index=index)
        async with aclosing(self.streams.log(target, request or LogRequest())) as chunks:
            async for chunk in chunks:
                yield chunk

    async def execute(
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
        """Wait until a job's container runs, then run a command in it to its end, with `stdin` as its standard input.

        Raises NoSuchWorkload, NoSuchPod, NoSuchContainer, NotRunning, NotExecutable.
        """
        target = await self._running(name, project, pod, container, patience_seconds)
        return await self.streams.completed(target, command, stdin)

    @asynccontextmanager
    async def port_forward(
        self,
        name: str,
        *ports: ForwardedPort,
        project: Where = None,
        pod: str | None = None,
        patience_seconds: float = 60,
        report: Callable[[str], None] = lambda _: None,
    ) -> AsyncGenerator[list[Listening], None]:
        """Forward local ports to a job while the context lasts; yield the addresses. Local port 0 is any free port.

        Raises NoSuchWorkload, NoSuchPod, NotRunning, PortInUse.
        """
        from orchestrator.client.port_forward import listening

        target = await self._running(name, project, pod, None, patience_seconds)
        async with listening(self.streams, target, ports, report=report) as listeners:
            yield listeners

    async def _running(
        self, name: str, project: Where, pod: str | None, container: str | None, patience_seconds: float
    ) -> Target:
        scope = await self.scope(project)
        return await self.streams.running(
            scope, name, pod, container, patience_seconds=patience_seconds, report=lambda _: None
        )

    # --- templates ------------------------------------------------------------------------------------

    async def list_templates(self, *, project: Where = None) -> list[Template]:
        """Return the templates of a project, then the cluster's."""
        return await self._templates.templates(await self.scope(project))

    async def get_template(self, name: str, *, project: Where = None) -> Template:
        """Return one template; a project's template hides the cluster's template of the same name.

        Raises NoSuchTemplate.
        """
        return await self._templates.get(await self.scope(project), name)

    async def templates_to_apply(self, name: str | None, *, project: Where = None) -> list[Template]:
        """Return the templates that apply to a submission, in order of precedence: the template `name`, then the
        defaults.

        Raises NoSuchTemplate.
        """
        from orchestrator.submit.templates import in_order

        return in_order(await self._templates.templates(await self.scope(project)), name)

    async def create_template(self, template: Template) -> None:
        """Create a template in its namespace.

        Raises TemplateRefused if the name is taken, UsageError if its values are invalid.
        """
        await self._templates.create(template)

    async def delete_template(self, name: str, *, project: Where = None, of_cluster: bool = False) -> None:
        """Delete a template of a project, or of the cluster. Raises NoSuchTemplate."""
        scope = None if of_cluster else await self.scope(project)
        await self._templates.delete(scope.namespace if scope else TEMPLATES_NAMESPACE, name)

    # --- projects -------------------------------------------------------------------------------------

    async def list_projects(self) -> list[Project]:
        """Return all projects by name."""
        return await self._projects.projects()

    async def get_project(self, name: str) -> Project:
        """Return one project. Raises NoSuchProject."""
        return await self._projects.get(name)

    async def create_project(self, name: str, spec: ProjectSpec, *, wait: bool = True) -> str:
        """Create a project and return its namespace; if `wait` is False, return "" without waiting.

        Raises ProjectRefused if the quotas would exceed the cluster, OperatorSilent if no operator makes the
        namespace.
        """
        await self._projects.create(name, spec)
        return await self._projects.wait_for_namespace(name) if wait else ""

    async def update_project(self, name: str, patch: Mapping[str, Any], expected: ProjectSpec) -> None:
        """Merge `patch` (as in the API) into a project's spec; `expected` is the resulting spec, which is checked.

        Raises NoSuchProject, ProjectRefused.
        """
        await self._projects.update(name, patch, expected)

    async def delete_project(self, name: str, *, force: bool = False) -> None:
        """Delete a project. Raises ProjectRefused while it has jobs or projects, unless `force`."""
        await self._projects.delete(name, force=force)

    async def default_project(self) -> str | None:
        """Return the project of the kubeconfig's context, None if the context's namespace belongs to no project."""
        return await self._projects.of_namespace(self.access.namespace)

    async def set_default_project(self, name: str) -> None:
        """Make a project's namespace the default of the kubeconfig's context. Raises NoSuchProject."""
        scope = await self._projects.resolve(name, "")
        set_default_namespace(scope.namespace, self._kubeconfig, self._context)

    # --- the cluster ----------------------------------------------------------------------------------

    async def list_nodes(self, *, usage: bool = False) -> Nodes:
        """Return all nodes by name; with `usage` also the measurements of kubelets that answer."""
        return await self._nodes.nodes(usage=usage)

    async def get_node(self, name: str) -> NodeView:
        """Return one node with the measurements of its kubelet. Raises NoSuchNode."""
        return await self._nodes.node(name)

    async def list_gpus(self) -> dict[str, tuple[GpuView, ...]]:
        """Return the GPUs by the names of their nodes, as the agents wrote them last; empty if the cluster has no
        agents.
        """
        return await self._nodes.gpus()

    async def whoami(self) -> Identity:
        """Return the user for the cluster, and the user's role in each visible project."""
        from orchestrator.client.identity import IdentityClient

        try:
            namespaces = await self._projects.namespaces()
        except Forbidden:
            try:
                scope = await self.scope()
            except MusterError:
                namespaces = {}
            else:
                namespaces = {scope.namespace: scope.project}
        return await IdentityClient(self.transport, self.access.user).identity(namespaces)
