"""The running pods within a quota, by the rule in docs/explanation/sharing.md.

Non-preemptible pods come first, then pods by priority and by age. The minimum of a gang is judged as a whole, and each
pod beyond it alone. Of the total quota, the pods within quotas for GPU models come first: otherwise the total quota
could cover pods whose GPUs a project with a quota for the model may reclaim. The worlds make no workload with
sub-groups that has more pods than its minimum.
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
    """Pods of one workload that are within the quota together, or not at all."""

    workload: Workload
    pods: tuple[Pod, ...]
    is_core: bool

    @property
    def order(self) -> tuple[object, ...]:
        """The position in the order in which a quota is filled."""
        return (self.workload.preemptible, *order_in_project(self.workload))


class Coverage:
    """The pods within the quota of each project and department.

    The quota of a department is filled in the order in which siblings reclaim from each other: first the pods within
    the quotas of its projects, then those within their fair shares of GPUs (`shares`, in `gpu_milli`; 0 for projects
    that are not named).
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
        """Return the ids of the pods within the quota of this project or department."""
        return {pod.id for candidate in self._split[name][0] for pod in candidate.pods}

    def borrowed(self, name: str) -> list[Candidate]:
        """Return the candidates beyond the quota of this project or department."""
        return self._split[name][1]

    def protects(self, workload: Workload, pod: Pod, up_to: str) -> bool:
        """Return whether the pod is surely within the quotas of its project and of each department up to `up_to`.

        It is not sure if a larger workload before it in the order does not fit: the planner may count the rest of the
        quota for the larger one, so that it evicts the smaller one, or for the smaller one.
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
        """Return the candidates within the quotas for GPU models, as far as the total quota allows them."""
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
    # A nominated pod fills the quota as if it ran. A pod that is evicted and nominated has its nomination
    # itself.
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
    """Return the ids of the pods for which the quota is enough even if all candidates before them are counted."""
    used, pods = NOTHING, set()
    for candidate in candidates:
        used = add(used, total(candidate.pods))
        if within(used, quota):
            pods |= {pod.id for pod in candidate.pods}
    return pods
