"""The caches of the owners of pods, of any kind: each is watched after the first pod refers to it.

    pod or owner refers to a kind ──> looked up ──┬──> watched: CURRENT
                                                  └──> not served, forbidden: UNREADABLE, looked up again later

Definitions and rights can come and end while the operator runs, and a cluster has hundreds of kinds of which few own
pods. So only kinds that a pod of a project needs are watched. An unreadable kind is logged once, and its pods are
scheduled without its gangs.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orchestrator.cluster.discovery import discover, probe
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.objects import FINISHED, Object, Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.wire import OwnerReference
from orchestrator.control.decide.object_guard import ObjectGuard
from orchestrator.names import SCHEDULER_NAME
from orchestrator.observe.controllers import CONTROLLERS, Controller, ControllerKind, climbs, decode, key_of
from orchestrator.observe.owners import POD_KIND, KindState, Reading

if TYPE_CHECKING:
    from orchestrator.cluster.resources import Resource
    from orchestrator.cluster.transport import Transport

logger = logging.getLogger(__name__)

Kind = tuple[str, str]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

LOOKUP_SECONDS: Final = 10.0
"""A kind that has not been looked up and listed by then cannot be read for now."""
RETRY_SECONDS: Final = 60.0
"""Time after which a new pod of an unreadable kind causes another look-up."""
MAX_KINDS: Final = 64
"""Maximum number of kinds that are looked up: users can refer to any kind."""
MAX_AWAITED: Final = 100_000


class OwnerWatches:
    """Watches kinds of owners as they are referred to; `tell` gets every change, and `KindState` changes before.

    `caches` are the kinds that are always watched. `wake` is called when an object was found that a pod waits for.
    With `namespace` only its objects are watched. `guard` keeps the objects apart that cannot be handled.
    """

    def __init__(
        self,
        transport: "Transport",
        caches: Mapping["Resource", Reflector[Any]],
        *,
        tell: Callable[[Change[Any]], None],
        wake: Callable[[], None],
        namespace: str | None = None,
        retry_seconds: float = RETRY_SECONDS,
        guard: ObjectGuard | None = None,
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._retry_seconds = retry_seconds
        self._tell = tell
        self._wake = wake
        self._guard = guard or ObjectGuard()

        self._caches: dict[Kind, Reflector[Any]] = {
            (resource.group, resource.kind): cache for resource, cache in caches.items()
        }
        self._states: dict[Kind, Reading] = dict.fromkeys(self._caches, Reading.CURRENT)
        self._retry_at: dict[Kind, float] = {}
        self._awaited: dict[str, Kind] = {}
        self._wanted: dict[Kind, str] = {}
        self._spawn: Spawn | None = None
        self._lookups: set[asyncio.Task[None]] = set()
        self._watches: set[asyncio.Task[None]] = set()

    def states(self) -> Iterable[KindState]:
        """The known kinds."""
        return [KindState(kind, reading) for kind, reading in self._states.items()]

    def reflectors(self) -> Iterable[Reflector[Any]]:
        """The caches of the kinds that were looked up."""
        return list(self._caches.values())

    def see_pod(self, pod: Pod) -> None:
        """Take a pod of the caches: its owners are wanted if it is ours and not at its end."""
        reference = pod.metadata.controller
        if reference is None or pod.spec.scheduler_name != SCHEDULER_NAME or pod.status.phase in FINISHED:
            return
        self._want(reference)

    def see_owner(self, change: Change[Any]) -> None:
        """Take a change of an owner."""
        self._tell(change)
        _say_problem(change)
        owner = change.object
        kind = None if change.type == "deleted" else self._awaited.pop(owner.metadata.uid, None)
        if kind is not None:
            self._want_above(owner, kind)
            self._wake()
        elif isinstance(owner, Controller) and _differ(change.previous, owner):
            self._wake()

    async def start(self, spawn: Spawn) -> None:
        """Start the look-up of requested kinds, as tasks of `spawn`; return when no look-up is running."""
        self._spawn = spawn
        for kind, api_version in list(self._wanted.items()):
            self._begin(spawn, kind, api_version)
        while self._lookups:
            await asyncio.wait(self._lookups)

    def stop(self) -> None:
        """End all watches."""
        self._spawn = None
        for task in (*self._lookups, *self._watches):
            task.cancel()

    def _want(self, reference: OwnerReference) -> None:
        kind = key_of(reference)
        if kind == POD_KIND:
            return
        cache = self._caches.get(kind)
        owner = None if cache is None else cache.objects.get(reference.uid)
        if owner is not None:
            self._want_above(owner, kind)
            return
        self._awaited[reference.uid] = kind
        while len(self._awaited) > MAX_AWAITED:
            del self._awaited[next(iter(self._awaited))]
        if cache is None:
            self._want_kind(kind, reference.api_version)

    def _want_above(self, owner: Object, kind: Kind) -> None:
        above = owner.metadata.controller
        if above is not None and climbs(kind, key_of(above)):
            self._want(above)

    def _want_kind(self, kind: Kind, api_version: str) -> None:
        state = self._states.get(kind)
        if state in {Reading.PENDING, Reading.CURRENT}:
            return
        if state is Reading.UNREADABLE and asyncio.get_running_loop().time() < self._retry_at[kind]:
            return
        if state is None and kind not in CONTROLLERS and len(self._states) >= MAX_KINDS:
            return  # those of CONTROLLERS are few: invented kinds do not keep their gangs from being read
        if (
            not kind[0] and kind not in CONTROLLERS
        ):  # no kind of the core group makes pods that we would follow
            return
        self._wanted[kind] = api_version
        self._put(kind, Reading.PENDING)
        if self._spawn is not None:
            self._begin(self._spawn, kind, api_version)

    def _put(self, kind: Kind, reading: Reading) -> None:
        self._states[kind] = reading
        self._tell(Change("modified", KindState(kind, reading)))

    def _begin(self, spawn: Spawn, kind: Kind, api_version: str) -> None:
        del self._wanted[kind]
        task = spawn(self._look_up(spawn, kind, api_version))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, spawn: Spawn, kind: Kind, api_version: str) -> None:
        name = f"{kind[1]} of {api_version}"[:200]
        name = name if name.isprintable() else ascii(name)  # text of a user: one line of the log stays one
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                problem = await self._watch(spawn, kind, api_version)
        except ClusterError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"it was not listed within {LOOKUP_SECONDS:.0f} s"
        if not problem:
            logger.info("owners of kind %s are watched", name)
            self._put(kind, Reading.CURRENT)
        else:
            if kind not in self._retry_at:
                logger.warning(
                    "owners of kind %s cannot be read, their pods are scheduled without: %s", name, problem
                )
            self._retry_at[kind] = asyncio.get_running_loop().time() + self._retry_seconds
            self._put(kind, Reading.UNREADABLE)
        self._wake()

    async def _watch(self, spawn: Spawn, kind: Kind, api_version: str) -> str:
        """Begin to watch a kind; return why it cannot be, or nothing once its first list is there."""
        resource = await discover(self._transport, api_version, kind[1])
        if resource is None:
            return "the API server serves no such kind in namespaces"
        await probe(self._transport, resource, self._namespace)
        cache = self._reflector(resource, CONTROLLERS.get(kind))
        task = spawn(cache.run())
        self._watches.add(task)
        try:
            await cache.synced()
        except asyncio.CancelledError:
            task.cancel()
            self._watches.discard(task)
            raise
        self._caches[kind] = cache
        return ""

    def _reflector(self, resource: "Resource", known: ControllerKind | None) -> Reflector[Any]:
        if known is None or known.gang is None:
            return Reflector(
                self._transport,
                resource,
                Object,
                namespace=self._namespace,
                metadata_only=True,
                decode=self._guard.decoder(resource.kind, msgspec.json.Decoder(Object).decode),
                on_change=self._guard.guarded(resource.kind, self.see_owner, [self._tell]),
            )
        return Reflector(
            self._transport,
            resource,
            Controller,
            namespace=self._namespace,
            decode=self._guard.decoder(resource.kind, lambda raw: decode(raw, known)),
            on_change=self._guard.guarded(resource.kind, self.see_owner, [self._tell]),
        )


def _differ(before: Controller | None, after: Controller) -> bool:
    """Whether there is something about the controller that a decision may depend on."""
    if before is None:
        return True
    now, then = after.metadata, before.metadata
    return (after.gang, now.controller, now.annotations) != (before.gang, then.controller, then.annotations)


def _say_problem(change: Change[Any]) -> None:
    owner, before = change.object, change.previous
    if (
        isinstance(owner, Controller)
        and owner.problem
        and (before is None or before.problem != owner.problem)
    ):
        metadata = owner.metadata
        logger.warning(
            "%s %s/%s: its gang cannot be read and is taken as one pod: %s",
            owner.kind,
            metadata.namespace,
            metadata.name,
            owner.problem,
        )
