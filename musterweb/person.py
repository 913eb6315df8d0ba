"""The data that one signed-in person may see, kept current with that person's token.

    asleep ──request──> reading ──lists and watches are there──> live ──a failure──> stale ──pause──> reading
                                                                  └──the token is refused──> ended

All pages of a person share one watch for each kind of object. If one watch fails, all watches end. The pages show the
last state with its time until all objects have been read again.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from musterweb.errors import SignInNeeded
from musterweb.sights import ReadingSlots, Rights, Seen, Sight, Sights, are_same
from orchestrator.client.aio import AsyncClient
from orchestrator.client.identity import IdentityClient
from orchestrator.client.jobs import Scope
from orchestrator.client.projects import ProjectClient
from orchestrator.client.watching import Caches, JobCaches, NodeCaches, ProjectCaches, visible_node_kinds
from orchestrator.cluster.errors import ClusterError, Forbidden, Unauthorized, Unreachable
from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.resources import (
    INGRESSES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PROJECTS,
    SERVICES,
    STATEFUL_SETS,
)
from orchestrator.errors import MusterError
from orchestrator.views.jobs import newest_first

if TYPE_CHECKING:
    from musterweb.renewal import Renewal

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 3.0
"""Interval of the requests that test whether the API server answers and accepts the token."""
BEAT_LIMIT_SECONDS: Final = 5.0
RIGHTS_SECONDS: Final = 60.0
"""Interval of the checks of the person's rights."""
RETRY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.5
"""Minimum time between two reads of the caches. After a slow read, the pause is four times its duration."""
SETTLE_SECONDS: Final = 0.15
"""Time to wait for related changes after a change: the start of a job causes four events."""
AGE_SECONDS: Final = 10.0
"""Interval of new sights if nothing changes, so that the shown ages grow."""
LINGER_SECONDS: Final = 60.0
"""Time after the last page is closed until the watches end."""
READY_SECONDS: Final = 15.0
MAX_SCOPES: Final = 50
"""Maximum number of projects with five watches each, for a person who may not list the jobs of all projects."""

ENDED: Final = "The API server no longer accepts your token: sign in again"


@dataclass(frozen=True, slots=True)
class Watched:
    """The caches of the kinds of objects that a person may see."""

    rights: Rights
    jobs: list[JobCaches]
    nodes: NodeCaches | None
    projects: ProjectCaches | None

    @property
    def caches(self) -> list[Caches]:
        """All caches."""
        return [cache for cache in (*self.jobs, self.nodes, self.projects) if cache is not None]

    @property
    def objects(self) -> list[Mapping[str, Any]]:
        """The present objects of all caches."""
        return [objects for cache in self.caches for objects in cache.objects()]

    @property
    def with_parts(self) -> list[JobCaches | NodeCaches]:
        """The caches with intermediate results (`known`) that make the next sight faster."""
        return [*self.jobs, *([self.nodes] if self.nodes else [])]


class Person:
    """One signed-in person; see the module. Close it at the end."""

    def __init__(self, client: AsyncClient, user: str, project: str | None, sights: Sights) -> None:
        self.client = client
        self.user = user
        self.rights: Rights | None = None
        self._sights = sights
        self._seen: Seen | None = None
        self.problem = ""
        self.is_ended = False
        self._project = project
        self._users = 0
        self._used_at = time.monotonic()
        self._number = 0
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._bodies: dict[str, tuple[int, str]] = {}
        self._renewal: Renewal | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def sight(self) -> Sight | None:
        """The present or last sight."""
        return self._seen.sight if self._seen is not None else None

    @property
    def is_live(self) -> bool:
        """Whether the sight is the present state of the cluster, as far as is known."""
        return self.sight is not None and not self.problem and self._task is not None

    @property
    def number(self) -> int:
        """A number that increases with every visible change."""
        return self._number

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the watches while a page is open."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._used_at = time.monotonic()

    async def ready(self) -> Sight:
        """Return the sight. If no page was open recently, read it first.

        Raises SignInNeeded for a refused token, and Unreachable if the read takes too long.
        """
        self.wake()
        deadline = time.monotonic() + READY_SECONDS
        while self.sight is None:
            if self.is_ended:
                raise SignInNeeded(ENDED)
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0 or self.problem:
                raise Unreachable(
                    self.problem or "the API server has not answered yet: try again in a moment"
                )
            await self.news(self._number, left_seconds)
        return self.sight

    def wake(self) -> None:
        """Start to read and watch, if that is not running already. Raises SignInNeeded for a refused token."""
        self._used_at = time.monotonic()
        if self.is_ended:
            raise SignInNeeded(ENDED)
        if self._task is None:
            if self.sight is None:
                self.problem = ""
            self._task = asyncio.create_task(self._follow())

    async def news(self, number: int, seconds: float) -> int:
        """Wait until `self.number` exceeds `number`, at most these seconds; return the present number."""
        if self._number <= number:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        return self._number

    async def body(self, target: str, render: Callable[[], Awaitable[str]], *, is_shared: bool) -> str:
        """Return the body of a page, rendered once for all readers of the same sight.

        If the page depends only on rights and sight (`is_shared`), people with the same sight share the body.
        """
        seen = self._seen
        if is_shared and seen is not None:
            shared = seen.bodies.get(target)
            if shared is None:
                shared = await render()
                if self._seen is seen:
                    seen.keep_body(target, shared)
            return shared
        number, text = self._bodies.get(target, (-1, ""))
        if number != self._number:
            number, text = self._number, await render()
            if self._bodies and next(iter(self._bodies.values()))[0] != number:
                self._bodies.clear()
            self._bodies[target] = (number, text)
        return text

    def renew_by(self, renewal: "Renewal") -> None:
        """Renew the token while the person is signed in. If there is no further token, sign them out."""
        self._renewal = renewal
        self._renewing = asyncio.create_task(renewal.run())
        self._renewing.add_done_callback(lambda task: None if task.cancelled() else self.end())

    def end(self) -> None:
        """Show nothing from now on, because the token is refused or the session is closed."""
        self.is_ended, self._seen = True, None
        self._tell()

    async def close(self) -> None:
        """End the watches and the renewal, close the client, and revoke the refresh token."""
        self.end()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.client.__aexit__(None, None, None)
        if self._renewal is not None and self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            try:
                await self._renewal.forget()
            except MusterError as error:
                log.warning(
                    "the refresh token of %s could not be revoked at the identity provider: %s",
                    self.user,
                    error,
                )

    def _tell(self) -> None:
        self._number += 1
        self._news.set()
        self._news = asyncio.Event()

    async def _follow(self) -> None:
        try:
            while True:
                try:
                    await self._follow_once()
                except Unauthorized:
                    self.end()
                    return
                except MusterError as error:
                    self.problem = str(self.client.with_hint(error))
                    self._tell()
                    await asyncio.sleep(RETRY_SECONDS)
                if self._is_idle():
                    self._seen, self.problem = None, ""
                    return
        except Exception:
            log.exception("the pages of %s cannot be kept current", self.user)
            self.problem = "a mistake in muster keeps this page from being current: see its log"
            self._tell()
        finally:
            self._task = None

    async def _follow_once(self) -> None:
        """Read and watch until a failure, a change of rights, or the end of the last page."""
        async with self._sights.asking.one():
            rights = await self._read_rights(in_parallel=True)
        if rights != self.rights:
            self._forget()
        self.rights = rights
        shared = self._sights.objects
        jobs = [
            JobCaches(self.client.transport, scope, self._changed, shared)
            for scope in (rights.scopes if rights.scopes is not None else (None,))
        ]
        nodes = None
        if rights.nodes:
            nodes = NodeCaches(
                self.client.transport, await visible_node_kinds(self.client.transport), self._changed, shared
            )
        projects = None
        if rights.projects and rights.scopes is not None:
            projects = ProjectCaches(self.client.transport, self._changed, shared)
        watched = Watched(rights, jobs, nodes, projects)
        async with _held(watched.caches, self._sights.reading) as ready:
            asking = asyncio.create_task(self._request_other_rights(rights))
            try:
                await self._watch_over(watched, ready, asking)
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _watch_over(self, watched: Watched, ready: asyncio.Event, asking: asyncio.Task[None]) -> None:
        caches = watched.caches
        beat_at = time.monotonic() + BEAT_SECONDS
        read_at = age_at = 0.0
        is_settled = False
        self._changed.set()
        while not self._is_idle():
            if problem := next((cache.problem for cache in caches if cache.problem is not None), None):
                raise problem
            now = time.monotonic()
            if now >= beat_at:
                await self._beat()
                beat_at = time.monotonic() + BEAT_SECONDS
            if asking.done():
                asking.result()
                self._forget()
                return
            if ready.is_set() and now >= read_at and (self._changed.is_set() or now >= age_at):
                if self._changed.is_set() and self._seen is not None and not is_settled:
                    await asyncio.sleep(SETTLE_SECONDS)
                    is_settled = True
                    continue  # during the pause, a watch can fail or rights can change
                is_settled = False
                self._changed.clear()
                self._read(watched)
                cost_seconds = time.monotonic() - now
                read_at = now + max(POLL_SECONDS, 5 * cost_seconds)
                age_at = now + AGE_SECONDS
            await self._pause(ready, read_at)

    async def _pause(self, ready: asyncio.Event, read_at: float) -> None:
        """Wait until the caches may be read and have changed, at most one second."""
        wait_seconds = read_at - time.monotonic()
        if wait_seconds > 0:
            await asyncio.sleep(min(wait_seconds, 1.0))
            return
        awaited = self._changed if ready.is_set() else ready
        with suppress(TimeoutError):
            await asyncio.wait_for(awaited.wait(), 1.0)

    def _read(self, watched: Watched) -> None:
        """Set the sight to the state of the caches: another person's sight of the same objects, or a new one."""
        now_us = time.time_ns() // 1000
        newest = self._sights.newest(watched.rights)
        if (
            newest is not None
            and now_us - newest.sight.at_us < AGE_SECONDS * 1_000_000
            and are_same(newest.objects, watched.objects)
        ):
            seen = newest
        else:
            seen = _see(watched, newest, now_us)
            self._sights.add(watched.rights, seen)
        if seen is not self._seen or self.problem:
            self._seen, self.problem = seen, ""
            self._tell()

    def _forget(self) -> None:
        """Drop the sight, because the rights have changed."""
        if self._seen is not None:
            self._seen = None
            self._bodies.clear()
            self._tell()

    async def _request_other_rights(self, rights: Rights) -> None:
        """Return when the person's rights differ from `rights`. Asks every `RIGHTS_SECONDS`."""
        while True:
            await asyncio.sleep(RIGHTS_SECONDS)
            if await self._read_rights(in_parallel=False) != rights:
                return

    async def _beat(self) -> None:
        try:
            async with asyncio.timeout(BEAT_LIMIT_SECONDS):
                await IdentityClient(self.client.transport, "").user_info()
        except TimeoutError as error:
            raise Unreachable(
                f"{self.client.access.server} has not answered for {BEAT_LIMIT_SECONDS:g} seconds"
            ) from error

    def _is_idle(self) -> bool:
        return not self._users and time.monotonic() - self._used_at > LINGER_SECONDS

    async def _read_rights(self, *, in_parallel: bool) -> Rights:
        """Ask for the person's rights. In parallel, each question opens a connection, which a watch uses later."""
        identity = IdentityClient(self.client.transport, "")
        kinds = (PODS, JOBS, STATEFUL_SETS, SERVICES, INGRESSES, NAMESPACES, PROJECTS, NODES)
        questions = (*(("list", kind) for kind in kinds), ("patch", PROJECTS))
        if in_parallel:
            answers = await asyncio.gather(*(identity.may(verb, kind, None) for verb, kind in questions))
        else:
            answers = [await identity.may(verb, kind, None) for verb, kind in questions]
        *lists, edits_projects = answers
        may_list = dict(zip(kinds, lists, strict=True))
        is_everything = all(may_list[kind] for kind in kinds if kind is not NODES)
        scopes: list[Scope] = []
        if not is_everything:
            scopes = await self._read_scopes(
                identity, lists_namespaces=may_list[NAMESPACES] and may_list[PROJECTS]
            )
        left_out = tuple(scope.project for scope in scopes[MAX_SCOPES:])
        return Rights(
            None if is_everything else tuple(scopes[:MAX_SCOPES]),
            is_everything and may_list[NODES],
            may_list[PROJECTS],
            may_list[PROJECTS] and edits_projects,
            left_out,
        )

    async def _read_scopes(self, identity: IdentityClient, *, lists_namespaces: bool) -> list[Scope]:
        """Return the projects whose jobs the person may list: the one named at the sign-in, then the others by name."""
        named: list[Scope] = []
        if self._project is not None:
            named.append(await self.client.scope(self._project))
        others: list[Scope] = []
        if lists_namespaces:
            namespaces = await ProjectClient(self.client.transport).namespaces()
            others += [Scope(project, namespace) for namespace, project in namespaces.items()]
        distinct = list(dict.fromkeys([*named, *sorted(others, key=lambda scope: scope.project)]))
        allowed = await asyncio.gather(*(identity.may("list", JOBS, scope.namespace) for scope in distinct))
        return [scope for scope, is_allowed in zip(distinct, allowed, strict=True) if is_allowed]


def _see(watched: Watched, newest: Seen | None, now_us: int) -> Seen:
    """Return the present state of the caches. Parts with the same objects as in `newest` are taken from it."""
    jobs, nodes = watched.jobs, watched.nodes
    objects = [dict(objects) for objects in watched.objects]
    if newest is not None:
        for cache, known in zip(watched.with_parts, newest.known, strict=True):
            cache.known = known
    gpus = nodes.gpus(now_us) if nodes else {}
    listed = watched.projects or (jobs[0] if watched.rights.scopes is None else None)
    views = [view for cache in jobs for view in cache.jobs()]
    sight = Sight(
        at_us=now_us,
        jobs=views if len(jobs) == 1 else sorted(views, key=newest_first),
        gpus=gpus,
        nodes=nodes.nodes(jobs[0].pods(), gpus) if nodes else None,
        projects=listed.projects() if listed else None,
    )
    parts = [cache.known for cache in watched.with_parts]
    for cache in watched.with_parts:
        cache.known = {}  # otherwise each person would keep older results in memory
    return Seen(sight, objects, parts)


async def sign_in(access: Access, token: Callable[[], str], project: str | None, sights: Sights) -> Person:
    """Return the person whose user name the API server gives for the token. Raises SignInNeeded, MusterError."""
    own = replace(access, user="", token=token, token_blocks=False, as_user=None, as_groups=())
    client = AsyncClient(own)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        try:
            async with asyncio.timeout(BEAT_LIMIT_SECONDS):
                user = await IdentityClient(client.transport, "").user_info()
        except Unauthorized as error:
            raise SignInNeeded("the API server does not accept this token") from error
        except TimeoutError as error:
            raise Unreachable(f"{access.server} does not answer") from error
        if user is None:
            raise SignInNeeded("this API server cannot say whose token it is (Kubernetes 1.28 or newer can)")
        if not user.username or user.username == "system:anonymous":
            raise SignInNeeded("this token belongs to no user")
        if project is not None:
            try:
                await client.scope(project)
            except (Forbidden, ClusterError) as error:
                raise SignInNeeded(str(client.with_hint(error))) from error
        stack.pop_all()
    return Person(client, user.username, project, sights)


@asynccontextmanager
async def _held(caches: Sequence[Caches], reading: ReadingSlots) -> AsyncIterator[asyncio.Event]:
    """Keep the caches current while the block runs. The yielded event is set when all caches have been read.

    `reading` limits the number of people whose caches are read for the first time at the same moment.
    """
    ready = asyncio.Event()

    async def hold() -> None:
        async with AsyncExitStack() as stack:
            async with reading.one():
                await asyncio.gather(*(stack.enter_async_context(cache.running()) for cache in caches))
            ready.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    try:
        yield ready
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
