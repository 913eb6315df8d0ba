"""Projects behind one API server: their namespaces, and the changes of administrators.

NoSuchProject        no project of that name
NoProject            neither -p nor the kubeconfig names the project
OperatorSilent       the project exists, and no operator creates its namespace
NoNamespace          the project exists, and its namespace does not belong to it
ProjectRefused       the change would guarantee GPUs that do not exist, or delete a project in use
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from orchestrator.client.jobs import Scope, WorkloadClient
from orchestrator.cluster.errors import AlreadyExists, Forbidden, NotFound
from orchestrator.cluster.objects import Metadata, Namespace, Node, Project, ProjectSpec
from orchestrator.cluster.resources import NAMESPACES, NODES, PROJECTS
from orchestrator.cluster.timeouts import NAMESPACE_SECONDS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import ConfigurationError, FieldProblem, MusterError
from orchestrator.names import NAMESPACE_PREFIX, PROJECT_LABEL
from orchestrator.observe.namespaces import (
    names_its_project,
    namespace_name,
    objection,
    projects_by_namespace,
)
from orchestrator.roles import RESEARCHER, VIEWER
from orchestrator.submit.name_rules import is_object_name

if TYPE_CHECKING:
    from orchestrator.observe.published_gpus import PublishedGpus

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 2.0


class NoSuchProject(MusterError):
    """There is no project of that name."""


class NoProject(MusterError):
    """Neither the command nor the kubeconfig names a project."""


class NoNamespace(MusterError):
    """A project cannot have its namespace now; the message has the cause and the remedy."""


class OperatorSilent(MusterError):
    """The operator has not created the namespace of a project in time. It probably does not run."""


class ProjectRefused(MusterError):
    """The change of a project is impossible; the message names the obstacle."""


class ProjectInUse(FieldProblem, ProjectRefused):
    """A project that has jobs or projects is deleted only by force."""


class ProjectClient:
    """The projects behind one API server. Raises MusterError; `report` gets a line about each wait."""

    def __init__(
        self,
        transport: Transport,
        patience_seconds: float = NAMESPACE_SECONDS,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._report = report
        self._transport = transport
        self._patience_seconds = patience_seconds

    async def resolve(self, project: str | None, default_namespace: str) -> Scope:
        """Return the scope of a project; if `project` is None, the scope of the default namespace.

        Waits for the namespace of a project that was just created. Raises NoSuchProject, NoProject,
        OperatorSilent.
        """
        if project is None:
            return await self._default(default_namespace)
        if not is_object_name(project):
            raise _no_such(project)
        namespace = await self._usual_namespace(project)
        if namespace is None:
            try:
                await self._require(project)
            except Forbidden as error:  # members may read their namespaces, but no Project
                if await self.of_namespace(default_namespace) != project:
                    raise _no_role_in(project) from error
                namespace = default_namespace
            else:
                namespace = await self.wait_for_namespace(project)
        return Scope(project, namespace)

    async def namespaces(self) -> dict[str, str]:
        """Return every namespace that belongs to a project, with the project's name."""
        labelled, projects = await asyncio.gather(
            self._transport.list(NAMESPACES.path(), Namespace, params={"labelSelector": PROJECT_LABEL}),
            self.projects(),
        )
        return projects_by_namespace(labelled.items, projects)

    async def projects(self) -> list[Project]:
        """Return all projects by name."""
        try:
            page = await self._transport.list(PROJECTS.path(), Project)
        except NotFound as error:
            raise _no_projects_here() from error
        return sorted(page.items, key=lambda project: project.metadata.name)

    async def wait_for_namespace(self, project: str) -> str:
        """Return the project's namespace as soon as the operator has made it.

        Raises NoNamespace with the operator's reason. If the operator has written none, raises OperatorSilent.
        """
        pause_seconds = _FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        started, is_reported = loop.time(), False
        try:
            async with asyncio.timeout(self._patience_seconds):
                while True:
                    namespace = await self._namespace(project)
                    if namespace is not None:
                        return namespace
                    if not is_reported and loop.time() - started > min(
                        _SILENCE_SECONDS, self._patience_seconds / 2
                    ):
                        is_reported = True
                        why = await self._without_namespace(project)
                        self._report(
                            "Waiting until the operator creates the namespace of project "
                            f"{project}{f': {why}' if why else ''} …"
                        )
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(pause_seconds * 1.5, _MAX_PAUSE_SECONDS)
        except TimeoutError as error:
            if why := await self._without_namespace(project):
                raise NoNamespace(f"the project {project} has no namespace: {why}") from error
            raise OperatorSilent(
                f"the project {project} has no namespace after {self._patience_seconds:g} seconds: the "
                f"muster operator does not run; check its pods with 'kubectl -n muster-system get pods'"
            ) from error

    async def _without_namespace(self, project: str) -> str:
        """Return why the project has no namespace, from the Project's conditions; "" if the operator has given no
        reason.
        """
        owner = await self._require(project)
        ready = next((each for each in owner.status.conditions if each.type == "Ready"), None)
        return ready.message if ready is not None and ready.status == "False" else ""

    async def create(self, name: str, spec: ProjectSpec) -> None:
        """Create a project. Raises ProjectRefused when the quotas would exceed the cluster."""
        projects, nodes = await asyncio.gather(self.projects(), self._nodes())
        if any(project.metadata.name == name for project in projects):
            raise _exists(name)
        _check(projects, name, spec, nodes)
        body = Project(metadata=Metadata(name=name), spec=spec)
        try:
            await self._transport.create(PROJECTS.path(), body)
        except AlreadyExists as error:
            raise _exists(name) from error

    async def update(self, name: str, spec: Mapping[str, Any], expected: ProjectSpec) -> None:
        """Merge `spec` (as in the API) into a project; `expected` is the resulting spec, whose quotas are checked."""
        projects, nodes = await asyncio.gather(self.projects(), self._nodes())
        _check(projects, name, expected, nodes)
        await self._transport.patch(PROJECTS.path(name=name), {"spec": spec})

    async def get(self, name: str) -> Project:
        """Return one project. Raises NoSuchProject."""
        return await self._require(name)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a project. Raises ProjectRefused while it has workloads or projects, unless `force`."""
        project = await self._require(name)
        if not force:
            await self._refuse_if_used(name)
        try:
            await self._transport.delete(PROJECTS.path(name=name), uid=project.metadata.uid)
        except NotFound as error:
            raise _no_such(name) from error

    async def _refuse_if_used(self, name: str) -> None:
        children = [project.metadata.name for project in await self.projects() if project.spec.parent == name]
        if children:
            raise ProjectInUse(
                "the project {project} has projects in it: {children}; use {force}",
                project=name,
                children=", ".join(children),
            )
        namespace = await self._namespace(name)
        if namespace is None:
            return
        count = len(await WorkloadClient(self._transport).workloads({namespace: name}, namespace))
        if count:
            raise ProjectInUse(
                "the project {project} has {count} workloads: delete them first, or use {force}",
                project=name,
                count=count,
            )

    async def of_namespace(self, namespace: str) -> str | None:
        """Return the project that a namespace belongs to, or None."""
        existing = await self._find(namespace)
        return None if existing is None else existing.metadata.labels.get(PROJECT_LABEL) or None

    async def _default(self, namespace: str) -> Scope:
        project = await self.of_namespace(namespace)
        if project is None:
            raise NoProject(
                "Please set a default project by running 'muster project set <project-name>' "
                "or use the flag -p to use a specific project."
            )
        return Scope(project, namespace)

    async def _usual_namespace(self, project: str) -> str | None:
        """Return the name of the project's usual namespace, if that namespace has the label of the project."""
        namespace = await self._find(NAMESPACE_PREFIX + project)
        if namespace is None or not names_its_project(namespace, project):
            return None
        return namespace.metadata.name

    async def _namespace(self, project: str) -> str | None:
        """Return the name of a project's namespace, from its Project; None if the user cannot see the namespace yet.

        Raises NoSuchProject, NoNamespace.
        """
        owner = await self._require(project)
        namespace = await self._find(namespace_name(owner))
        if namespace is None:
            return None
        if why := objection(namespace, owner):
            raise NoNamespace(f"the project {project} has no namespace: {why}")
        return namespace.metadata.name

    async def _find(self, name: str) -> Namespace | None:
        """Return the namespace; None if it does not exist, is terminating, or is invisible to the user."""
        try:
            namespace = await self._transport.get(NAMESPACES.path(name=name), Namespace)
        except (NotFound, Forbidden):
            return None
        return namespace if namespace.metadata.deletion_timestamp is None else None

    async def _require(self, name: str) -> Project:
        if not is_object_name(name):
            raise _no_such(name)
        try:
            return await self._transport.get(PROJECTS.path(name=name), Project)
        except NotFound as error:
            raise _no_such(name) from error

    async def _nodes(self) -> "tuple[list[Node], Mapping[str, PublishedGpus]]":
        """Return the nodes, and the GPUs that drivers publish, by node."""
        from orchestrator.client.published import published_gpus

        nodes, published = await asyncio.gather(
            self._transport.list(NODES.path(), Node), published_gpus(self._transport)
        )
        return nodes.items, published


def _check(
    projects: list[Project],
    name: str,
    spec: ProjectSpec,
    installed: "tuple[list[Node], Mapping[str, PublishedGpus]]",
) -> None:
    from orchestrator.client.project_checks import objection_to

    specs = {project.metadata.name: project.spec for project in projects} | {name: spec}
    if why := objection_to(specs, name, *installed):
        raise ProjectRefused(why)


def _no_such(name: str) -> NoSuchProject:
    return NoSuchProject(
        f"project {name} was not found. Please run 'muster project list' to view all available projects"
    )


def _no_role_in(name: str) -> NoSuchProject:
    return NoSuchProject(
        f"there is no project {name}, or you have no role in it; ask an administrator for "
        f"{VIEWER}, which shows its jobs, or {RESEARCHER}, which submits"
    )


def _exists(name: str) -> ProjectRefused:
    return ProjectRefused(
        f"the project {name} already exists; use 'muster project update {name}' to change it"
    )


def _no_projects_here() -> ConfigurationError:
    return ConfigurationError(
        "this cluster does not know projects: install the operator, "
        "'muster operator-yaml --cluster NAME | kubectl apply -f -'"
    )
