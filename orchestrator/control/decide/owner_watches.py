"""The caches of pod owners: a kind is watched after the first pod or owner that refers to it.

    pod or owner refers to a kind ──> looked up ──┬──> watched: CURRENT
                                                  └──> not served, forbidden: UNREADABLE, looked up again later

A cluster has hundreds of kinds, few of which own pods, and CRDs and rights can change while the operator runs. So only
kinds that a pod needs are watched. An unreadable kind is logged once, and its pods are scheduled without its gangs.
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
"""Maximum time for the look-up and the first list of a kind; after it, the kind counts as unreadable."""
RETRY_SECONDS: Final = 60.0
"""Time after which a new pod of an unreadable kind causes another look-up."""
MAX_KINDS: Final = 64
"""Maximum number of kinds that are looked up: users can refer to any kind."""
MAX_AWAITED: Final = 100_000


class OwnerWatches:
    """Watches kinds of owners after the first reference. `tell` gets every change of an owner and of a `KindState`.

    `caches` has the kinds that are always watched. `wake` is called after a change that a decision can depend on. If
    `namespace` is given, only its objects are watched. `guard` leaves out objects that cannot be handled.
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
        """Return the state of each known kind."""
        return [KindState(kind, reading) for kind, reading in self._states.items()]

    def reflectors(self) -> Iterable[Reflector[Any]]:
        """Return the reflectors of all watched kinds."""
        return list(self._caches.values())

    def see_pod(self, pod: Pod) -> None:
        """Process a pod: if muster schedules it and it has not finished, watch the kinds of its owners."""
        reference = pod.metadata.controller
        if reference is None or pod.spec.scheduler_name != SCHEDULER_NAME or pod.status.phase in FINISHED:
            return
        self._want(reference)

    def see_owner(self, change: Change[Any]) -> None:
        """Process a change of an owner."""
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
        """Start the look-ups of requested kinds as tasks of `spawn`. Return after all look-ups."""
        self._spawn = spawn
        for kind, api_version in list(self._wanted.items()):
            self._begin(spawn, kind, api_version)
        while self._lookups:
            await asyncio.wait(self._lookups)

    def stop(self) -> None:
        """Cancel all look-ups and watches."""
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
            # Kinds of CONTROLLERS do not count toward the maximum, so that references to invented kinds
            # cannot block them.
            return
        if (
            not kind[0] and kind not in CONTROLLERS
        ):  # other kinds of the core group are not followed as owners
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
        name = name if name.isprintable() else ascii(name)  # users choose the text: no line break in the log
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
        """Start the watch of a kind. Return the reason why that is impossible, or "" after the first list."""
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
    """Return whether a part of the controller changed on which a decision can depend."""
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
