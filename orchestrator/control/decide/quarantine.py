"""Finds the objects that make the planner raise an error, and decides without them. No input or output.

    plan ── raises ──> halve the workloads ──> few culprits ──> plan without them ──> decided
                                          └──> many: halve nodes, then projects ──> the result with more starts

A running culprit keeps its devices: it stays in the snapshot as pods without constraints. If the planner still
raises, its devices count as used by another scheduler. Later decisions leave out a culprit for a time that doubles with
each relapse. If the culprit changes, the next decision includes it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from orchestrator.planner.accounting.amounts import summed_scalars
from orchestrator.planner.model import (
    Constraints,
    Node,
    Plan,
    Pod,
    Project,
    Request,
    Snapshot,
    Workload,
)

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 60.0
MAX_SECONDS: Final = 3600.0
MAX_REMEMBERED: Final = 1000
MAX_PLANS: Final = 100
"""Maximum number of plans that one decision makes to find culprits of one kind. To find one culprit among 4,000
workloads takes about 25 plans, most of them for few workloads.
"""
SEARCH_SECONDS: Final = 30.0
"""Maximum time of a search; it must be less than STUCK_SECONDS of `health`."""
FEW: Final = 2
"""If at most this number of workloads are culprits, the search does not check whether a node or project is the
cause.
"""

Planner = Callable[[Snapshot], Plan]
Object = Workload | Node | Project
Key = tuple[str, str]
"""Kind, and id of a workload or name of a node or project."""

WORKLOAD: Final = "Workload"
NODE: Final = "Node"
PROJECT: Final = "Project"


@dataclass(frozen=True, slots=True)
class Culprit:
    """An object that made the planner raise an error, and the error."""

    kind: str
    id: str
    object: Object
    why: str

    @property
    def key(self) -> Key:
        """Kind and id of the object, which do not depend on its state."""
        return (self.kind, self.id)


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and the objects that it leaves out.

    `undecided` are the ids of further workloads that it leaves out, because they could not be checked yet. `excluded`
    are ids of workloads that `first_decisions` has set aside.
    """

    plan: Plan
    quarantined: tuple[Culprit, ...] = ()
    undecided: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


@dataclass(slots=True)
class _Entry:
    culprit: Culprit
    seconds: float
    until: float


class Quarantine:
    """Decides, and stores the objects that it had to leave out. `clock` is monotonic, in seconds."""

    def __init__(self, planner: Planner, clock: Callable[[], float], *, max_plans: int = MAX_PLANS) -> None:
        self._planner = planner
        self._clock = clock
        self._max_plans = max_plans
        self._entries: dict[Key, _Entry] = {}
        self._as_foreign = False
        self._reduced: dict[Key, tuple[Workload, Workload]] = {}

    def decide(self, snapshot: Snapshot) -> Decided:
        """Decide on the snapshot without its culprits. Raises the planner's error if no culprit is found."""
        quarantined = self._in_force(snapshot)
        self._as_foreign = self._as_foreign and bool(quarantined)
        try:
            reduced = self._without(snapshot, quarantined, as_foreign=self._as_foreign)
            return Decided(self._planner(reduced), tuple(quarantined))
        except Exception as error:
            logger.exception("the planner raised; looking for the object that it cannot decide on")
            return self._find(snapshot, quarantined, error)

    def without(self, snapshot: Snapshot, workloads: Iterable[str]) -> Snapshot:
        """Return the snapshot without these workloads (ids); their running pods keep their devices."""
        return self._without(snapshot, (), workloads)

    def _in_force(self, snapshot: Snapshot) -> list[Culprit]:
        """Return the culprits that are unchanged in the snapshot and whose time is not over."""
        now = self._clock()
        # after this time without an error, the next error of a culprit does not count as a relapse
        forgotten = [key for key, entry in self._entries.items() if now >= entry.until + MAX_SECONDS]
        forgotten += list(self._entries)[: max(0, len(self._entries) - MAX_REMEMBERED)]
        for key in forgotten:
            self._entries.pop(key, None)
        self._reduced = {key: reduced for key, reduced in self._reduced.items() if key in self._entries}
        there = _objects(snapshot, self._entries)
        return [
            entry.culprit
            for key, entry in self._entries.items()
            if now < entry.until and there.get(key) == entry.culprit.object
        ]

    def _find(self, snapshot: Snapshot, quarantined: list[Culprit], error: Exception) -> Decided:
        if quarantined and not self._as_foreign:
            plan = self._plan_without(snapshot, quarantined, ())
            if plan is not None:
                return Decided(plan, tuple(quarantined))
        without = self._without(snapshot, quarantined, as_foreign=True)
        search = _Search(self._planner, without, self._clock, max_plans=self._max_plans, error=error)
        answers: list[Decided] = []
        for kind in (WORKLOAD, NODE, PROJECT):
            suspects = _objects(without, [key for key in self._entries if key[0] == kind])
            keys, unknown = search.culprits(kind, list(suspects))
            there = _objects(snapshot, keys)
            culprits = [Culprit(*key, there[key], search.why.get(key, _words(error))) for key in keys]
            undecided = tuple(name for kind, name in unknown if kind == WORKLOAD)
            plan = self._plan_without(snapshot, [*quarantined, *culprits], undecided) if keys else None
            if plan is None:
                continue
            answers.append(Decided(plan, (*quarantined, *culprits), undecided))
            if len(keys) <= FEW and 2 * len(keys) < len(_of_kind(without, kind)) and not undecided:
                break
        if not answers:
            raise error
        best = max(answers, key=lambda answer: len(answer.plan.bindings))
        for culprit in best.quarantined[len(quarantined) :]:
            self._remember(culprit)
        return best

    def _remember(self, culprit: Culprit) -> None:
        known = self._entries.pop(culprit.key, None)
        seconds = FIRST_SECONDS if known is None else min(MAX_SECONDS, 2 * known.seconds)
        self._entries[culprit.key] = _Entry(culprit, seconds, self._clock() + seconds)
        logger.error(
            "%s %s is left out of decisions for %.0f s, or until it changes: %s",
            culprit.kind,
            culprit.id,
            seconds,
            culprit.why,
        )

    def _plan_without(
        self, snapshot: Snapshot, culprits: list[Culprit], undecided: tuple[str, ...]
    ) -> Plan | None:
        """Return the plan without the culprits, or None.

        The running pods of the culprits keep their devices, in the first form that the planner accepts. If the planner
        raises with every form, return None.
        """
        for as_foreign in (False, True):
            try:
                plan = self._planner(self._without(snapshot, culprits, undecided, as_foreign=as_foreign))
            except Exception as error:  # the caller tries something else, or raises the first error
                logger.warning("the planner raised without the culprits too: %s", _words(error))
            else:
                self._as_foreign = as_foreign
                return plan
        return None

    def _without(
        self,
        snapshot: Snapshot,
        culprits: Iterable[Culprit],
        undecided: Iterable[str] = (),
        *,
        as_foreign: bool = False,
    ) -> Snapshot:
        keys = {culprit.key for culprit in culprits} | {(WORKLOAD, workload_id) for workload_id in undecided}
        if not keys:
            return snapshot
        out = [workload for workload in snapshot.workloads if _key(workload) in keys]
        remaining = [workload for workload in snapshot.workloads if _key(workload) not in keys]
        nodes = tuple(node for node in snapshot.nodes if _key(node) not in keys)
        if as_foreign:
            nodes = _with_foreign(nodes, out)
        else:
            remaining += [
                self._reduced_of(workload) for workload in out if any(pod.node for pod in workload.pods)
            ]
            remaining.sort(key=lambda workload: workload.id)
        return replace(
            snapshot,
            nodes=nodes,
            projects=tuple(project for project in snapshot.projects if _key(project) not in keys),
            workloads=tuple(remaining),
        )

    def _reduced_of(self, workload: Workload) -> Workload:
        """Return the workload reduced to its devices; cached, because the planner skips unchanged objects."""
        known = self._reduced.get(_key(workload))
        if known is None or known[0] is not workload:
            known = self._reduced[_key(workload)] = (workload, holding(workload))
        return known[1]


class _Search:
    """Finds culprits by halving, with a maximum number of plans for each kind. `why` has the errors, by culprit."""

    def __init__(
        self,
        planner: Planner,
        snapshot: Snapshot,
        clock: Callable[[], float],
        *,
        max_plans: int,
        error: Exception,
    ) -> None:
        self.why: dict[Key, str] = {}
        self._planner = planner
        self._snapshot = snapshot
        self._clock = clock
        self._ends = clock() + SEARCH_SECONDS
        self._max_plans = max_plans
        self._plans = 0
        self._first = self._last = _words(error)

    def culprits(self, kind: str, suspects: Collection[Key]) -> tuple[list[Key], list[Key]]:
        """Return the culprits of one kind, and the untried objects. Without the culprits, the planner does not raise.

        `suspects` were culprits before and are tried first. If the planner raises even without all objects of the kind,
        both results are empty.
        """
        self._plans, self._last = self._max_plans, self._first
        everything = [_key(item) for item in _of_kind(self._snapshot, kind)]
        rest = [key for key in everything if key not in suspects]
        if suspects and not self._raises(rest, kind):
            return self._grow(rest, list(suspects), kind)
        if self._raises([], kind):
            return [], []
        alone, unknown = self._alone(everything, kind)
        out = {*alone, *unknown}
        rest = [key for key in everything if key not in out]
        if not out or (rest and self._raises(rest, kind)):
            together, more = self._grow([], rest, kind)
            return alone + together, unknown + more
        return alone, unknown

    def _alone(self, chunk: list[Key], kind: str) -> tuple[list[Key], list[Key]]:
        """Return the objects of a failing chunk that make the planner raise, and those that could not be tried."""
        if len(chunk) <= 1:
            self.why.update(dict.fromkeys(chunk, self._last))
            return chunk, []
        culprits: list[Key] = []
        unknown: list[Key] = []
        middle = len(chunk) // 2
        for half in (chunk[:middle], chunk[middle:]):
            if self._is_spent():
                unknown += half
            elif self._raises(half, kind):
                more, untried = self._alone(half, kind)
                culprits += more
                unknown += untried
        return culprits, unknown

    def _grow(self, good: list[Key], chunk: list[Key], kind: str) -> tuple[list[Key], list[Key]]:
        """Add the largest parts of the chunk that the planner accepts to `good`.

        Return the rest: the culprits, and untried objects.
        """
        culprits: list[Key] = []
        unknown: list[Key] = []
        stack = [chunk]
        while stack:
            part = stack.pop()
            if self._is_spent():
                unknown += part
            elif not self._raises([*good, *part], kind):
                good = [*good, *part]
            elif len(part) <= 1:
                self.why.update(dict.fromkeys(part, self._last))
                culprits += part
            else:
                middle = len(part) // 2
                stack += [part[middle:], part[:middle]]
        return culprits, unknown

    def _is_spent(self) -> bool:
        return self._plans <= 0 or self._clock() >= self._ends

    def _raises(self, keys: Collection[Key], kind: str) -> bool:
        """Return whether the planner raises on the snapshot with only these objects of the kind."""
        self._plans -= 1
        try:
            self._planner(_only(self._snapshot, kind, frozenset(keys)))
        except Exception as error:  # any error marks a culprit
            self._last = _words(error)
            return True
        return False


def _only(snapshot: Snapshot, kind: str, keys: Collection[Key]) -> Snapshot:
    """Return the snapshot with only these objects of one kind."""
    if kind == WORKLOAD:
        return replace(
            snapshot, workloads=tuple(workload for workload in snapshot.workloads if _key(workload) in keys)
        )
    if kind == NODE:
        return replace(snapshot, nodes=tuple(node for node in snapshot.nodes if _key(node) in keys))
    return replace(
        snapshot, projects=tuple(project for project in snapshot.projects if _key(project) in keys)
    )


def _of_kind(snapshot: Snapshot, kind: str) -> Sequence[Object]:
    if kind == WORKLOAD:
        return snapshot.workloads
    return snapshot.nodes if kind == NODE else snapshot.projects


def holding(workload: Workload) -> Workload:
    """Return a workload with only the bound pods and their devices, without fields that can raise errors."""
    return Workload(
        id=workload.id,
        name=workload.name,
        project=workload.project,
        priority=0,
        preemptible=False,
        created_at_us=workload.created_at_us,
        pods=tuple(_holding(pod) for pod in workload.pods if pod.node is not None),
    )


def _holding(pod: Pod) -> Pod:
    return replace(
        pod,
        constraints=Constraints(),
        sub_group="",
        max_runtime_seconds=None,
        ends_by_us=0,
        nominated_node=None,
        nominated_devices=(),
    )


def _with_foreign(nodes: Iterable[Node], workloads: Iterable[Workload]) -> tuple[Node, ...]:
    """Return the nodes with the workloads' pods counted as pods of other schedulers, with whole GPUs."""
    held: dict[str, list[Pod]] = {}
    for workload in workloads:
        for pod in workload.pods:
            if pod.node is not None:
                held.setdefault(pod.node, []).append(pod)
    return tuple(_with_pods(node, held[node.name]) if node.name in held else node for node in nodes)


def _with_pods(node: Node, pods: Sequence[Pod]) -> Node:
    before = node.foreign
    return replace(
        node,
        foreign=Request(
            gpu_count=before.gpu_count + sum(max(len(pod.devices), pod.request.gpu_count) for pod in pods),
            cpu_milli=before.cpu_milli + sum(pod.request.cpu_milli for pod in pods),
            memory_bytes=before.memory_bytes + sum(pod.request.memory_bytes for pod in pods),
            scalars=summed_scalars((before.scalars, *(pod.request.scalars for pod in pods))),
        ),
        foreign_pods=node.foreign_pods + len(pods),
    )


def _objects(snapshot: Snapshot, keys: Collection[Key]) -> dict[Key, Object]:
    """Return the objects of these keys that are in the snapshot."""
    if not keys:
        return {}
    everything: Iterable[Object] = chain(snapshot.workloads, snapshot.nodes, snapshot.projects)
    return {key: item for item in everything if (key := _key(item)) in keys}


def _key(item: Object) -> Key:
    if isinstance(item, Workload):
        return (WORKLOAD, item.id)
    return (NODE if isinstance(item, Node) else PROJECT, item.name)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
