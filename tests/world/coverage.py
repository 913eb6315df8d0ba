"""Which running pods a quota covers, by the rule in docs/explanation/sharing.md.

First what cannot be taken back, then by priority, then by age; what a gang needs is judged as a whole, every pod beyond
it by itself. Of the total quota, what quotas for GPU models cover is taken first: a total quota promises no particular
model, and without this it would cover work that those who have a quota for the model may claim. The worlds make no
workload with sub-groups that has more pods than it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState
from tests.world.facts import NOTHING, add, allocated, order_in_project, total, within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.planner.model import Amounts, Pod, Snapshot, Workload
    from tests.world.facts import Tree


@dataclass(frozen=True)
class Candidate:
    """Pods of one workload that are covered together, or not."""

    workload: Workload
    pods: tuple[Pod, ...]
    is_core: bool

    @property
    def order(self) -> tuple[object, ...]:
        """The place in the order in which a quota is filled."""
        return (self.workload.preemptible, *order_in_project(self.workload))


class Coverage:
    """What the quota of each project and department covers.

    Of a department, first what its projects' quotas cover, then what their fair shares of GPUs do (`shares`, in
    `gpu_milli`; a project that is not named has none): that is the order in which siblings take from each other.
    """

    def __init__(self, snapshot: Snapshot, tree: Tree, shares: Mapping[str, int]) -> None:
        self._tree = tree
        self._shares = shares
        self._model_of = {node.name: node.gpu_model for node in snapshot.nodes}
        self._own: dict[str, list[Candidate]] = {name: [] for name in tree.projects}
        for workload in snapshot.workloads:
            if workload.project in self._own:
                self._own[workload.project] += _known_candidates(workload)
        self._split: dict[str, tuple[list[Candidate], list[Candidate]]] = {}
        self._first: dict[str, set[str]] = {}
        for name in tree.projects:
            self._fill(name)

    def covered(self, name: str) -> set[str]:
        """The ids of the pods that the quota of this project or department covers."""
        return {pod.id for candidate in self._split[name][0] for pod in candidate.pods}

    def borrowed(self, name: str) -> list[Candidate]:
        """What it does not cover."""
        return self._split[name][1]

    def protects(self, workload: Workload, pod: Pod, up_to: str) -> bool:
        """Whether the quotas of the project and of every department up to `up_to` cover the pod without any doubt.

        There is doubt where a larger workload before it in the order does not fit: what is left of the quota may count
        as the larger one's, so that the smaller goes first, or as the smaller one's.
        """
        for name in self._tree.lineage[workload.project]:
            if pod.id not in self.covered(name) or pod.id not in self._first[name]:
                return False
            if name != workload.project:
                inside = NOTHING
                for child in self._tree.children.get(name, ()):
                    for candidate in self._split[child][0]:
                        inside = add(inside, total(candidate.pods))
                if not within(inside, self._tree.quota(name)):
                    return False
            if name == up_to:
                return True
        return False

    def _fill(self, name: str) -> None:
        if name in self._split:
            return
        inside: list[Candidate] = []
        fair: list[Candidate] = []
        outside: list[Candidate] = list(self._own[name])
        for child in self._tree.children.get(name, ()):
            self._fill(child)
            covered, borrowed = self._split[child]
            within_share = _divide([*covered, *borrowed], (self._shares.get(child, 0), None, None))[0]
            inside += covered
            fair += [candidate for candidate in borrowed if candidate in within_share]
            outside += [candidate for candidate in borrowed if candidate not in within_share]
        ordered = [
            candidate
            for candidates in (inside, fair, outside)
            for candidate in sorted(candidates, key=lambda candidate: candidate.order)
        ]
        firm = self._covered_by_models(name, ordered)
        ordered = [*firm, *(candidate for candidate in ordered if candidate not in firm)]
        self._split[name] = _divide(ordered, self._tree.quota(name))
        self._first[name] = _first(ordered, self._tree.quota(name))

    def _covered_by_models(self, name: str, ordered: Sequence[Candidate]) -> list[Candidate]:
        """What the quotas for GPU models cover, as far as the total quota has room for it."""
        left = {model: self._tree.model_quota(name, model) for model in self._tree.models}
        used, firm, without_core = NOTHING, [], set()
        for candidate in ordered:
            on: dict[str, int] = {}
            for pod in candidate.pods:
                model = self._model_of.get(pod.node or pod.nominated_node or "", "")
                if model in left and pod.request.gpu_milli:
                    on[model] = on.get(model, 0) + pod.request.gpu_milli
            then = add(used, total(candidate.pods))
            is_enough = bool(on) and all(amount <= left[model] for model, amount in on.items())
            if (
                is_enough
                and within(then, self._tree.quota(name))
                and candidate.workload.id not in without_core
            ):
                used = then
                firm.append(candidate)
                left = {model: amount - on.get(model, 0) for model, amount in left.items()}
            elif candidate.is_core:
                without_core.add(candidate.workload.id)
        return firm


def _known_candidates(workload: Workload) -> list[Candidate]:
    # work that was promised a room is about to hold it, and fills the quota as if it did; while the pod is there that
    # it is promised to come back from, the promise is written on that one
    promised = [
        pod for pod in workload.pods if pod.nominated_node is not None and pod.state is not PodState.ALLOCATED
    ]
    running = sorted([*allocated(workload), *promised], key=lambda pod: (-pod.priority, pod.name, pod.id))
    if not running:
        return []
    if workload.groups is not None:
        return [Candidate(workload, tuple(running), is_core=True)]
    core, surplus = running[: workload.min_member], running[workload.min_member :]
    return [
        Candidate(workload, tuple(core), is_core=True),
        *(Candidate(workload, (pod,), is_core=False) for pod in surplus),
    ]


def _divide(
    candidates: Sequence[Candidate], quota: tuple[int | None, ...]
) -> tuple[list[Candidate], list[Candidate]]:
    covered: list[Candidate] = []
    borrowed: list[Candidate] = []
    used: Amounts = NOTHING
    without_core: set[str] = set()
    for candidate in candidates:
        then = add(used, total(candidate.pods))
        fits = within(then, quota) and candidate.workload.id not in without_core
        if fits:
            used = then
        if fits or not candidate.workload.preemptible:
            covered.append(candidate)
            continue
        borrowed.append(candidate)
        if candidate.is_core:
            without_core.add(candidate.workload.id)
    return covered, borrowed


def _first(candidates: Sequence[Candidate], quota: tuple[int | None, ...]) -> set[str]:
    """The ids of the pods that the quota covers before anything in the order does not fit."""
    used, pods = NOTHING, set()
    for candidate in candidates:
        used = add(used, total(candidate.pods))
        if within(used, quota):
            pods |= {pod.id for pod in candidate.pods}
    return pods
