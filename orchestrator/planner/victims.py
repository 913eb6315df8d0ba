"""Who gives GPUs back, to whom, and by which rule.

A project reclaims for a workload if with it the project stays within its fair share. A victim is a borrowed workload of
another project, and at the level where the two lineages part, one of two rules must hold before each victim:
- `fair-share`: the victim's side holds more than its fair share;
- `quota`: the reclaiming side stays within its quota, and the victim's side is above its own.

Among the lawful sets that make room on a node, the smallest is taken; then the one that takes from the project that is
furthest above its share; then the one that loses the least work (the youngest).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.entitlement import borrowed
from orchestrator.planner.gangs import chunk_gpu_milli, give_up_chunks
from orchestrator.planner.ledger import Ledger, NodeAccount
from orchestrator.planner.model import Eviction, Pod, PodState, Workload
from orchestrator.planner.ordering import entitled_gpu_milli, share_per_billion
from orchestrator.planner.placement import Placer
from orchestrator.planner.quota import gpus


@dataclass(frozen=True, slots=True)
class Victim:
    """Pods that one workload gives up together."""

    workload: Workload
    pods: tuple[Pod, ...]

    @property
    def gpu_milli(self) -> int:
        """What the pods hold."""
        return chunk_gpu_milli(self.pods)


@dataclass(frozen=True, slots=True)
class Ruling:
    """By which rule a victim's pods may be taken, with the figures that make it so."""

    rule: str
    message: str


class Court:
    """Judges which reclaims are lawful on the ledger as it stands, and finds the cheapest lawful set of victims."""

    def __init__(self, ledger: Ledger, placer: Placer, shares_gpu_milli: Mapping[str, int]) -> None:
        self._ledger = ledger
        self._placer = placer
        self._shares = shares_gpu_milli

    def ruling(self, reclaimer: Workload, asked_gpu_milli: int, victim: Victim) -> Ruling | None:
        """The rule by which the victim may be taken now, or None. `asked_gpu_milli` is not yet on the ledger."""
        ours, theirs = self._where_they_part(reclaimer.project, victim.workload.project)
        if ours is None or theirs is None:
            return None
        held = self._ledger.allocated_gpu_milli
        quota = self._quota(theirs)
        above = f"{theirs} holds {gpus(held[theirs])} GPUs"
        if held[ours] + asked_gpu_milli <= self._quota(ours) and held[theirs] > quota:
            return Ruling("quota", f"{above}, over its quota of {gpus(quota)}; {ours} is within its own")
        entitled = self._entitled(theirs)
        if held[theirs] > entitled:
            return Ruling("fair-share", f"{above}, over its fair share of {gpus(entitled)}")
        return None

    def candidates(self, reclaimer: Workload, workloads: Mapping[str, Sequence[Workload]]) -> list[Victim]:
        """Every chunk of borrowed work of other projects, most dispensable first. `workloads` is by project."""
        victims: list[tuple[tuple[int, int, int, str], int, Victim]] = []
        for project in sorted(workloads):
            if project == reclaimer.project or project not in self._ledger.tree.projects:
                continue
            excess = -self._share_of(project, reclaimer.project)
            for workload in borrowed(workloads[project], self._quota(project)):
                key = (excess, workload.priority, -workload.started_at_us, workload.name)
                chunks = give_up_chunks(workload)
                victims += [(key, index, Victim(workload, pods)) for index, pods in enumerate(chunks)]
        return [victim for _, _, victim in sorted(victims, key=lambda each: (each[0], each[1]))]

    def make_room(
        self, reclaimer: Workload, pod: Pod, asked_gpu_milli: int, candidates: Sequence[Victim]
    ) -> list[tuple[Victim, Ruling]] | None:
        """Evict, on the ledger, the cheapest lawful victims after which the pod fits on one node; None: no such set."""
        best: tuple[tuple[int, list[int]], list[Victim]] | None = None
        for account, ranked in self._by_node(candidates):
            if not self._placer.accepts(account, reclaimer, pod):
                continue
            chosen = self._smallest_set(account, reclaimer, pod, asked_gpu_milli, ranked)
            if chosen is None:
                continue
            cost = (len(chosen), [rank for rank, _ in chosen])
            if best is None or cost < best[0]:
                best = (cost, [victim for _, victim in chosen])
            if len(chosen) == 1 and chosen[0][0] == 0:
                break
        return None if best is None else list(self._evict_lawfully(reclaimer, asked_gpu_milli, best[1]))

    def _smallest_set(
        self,
        account: NodeAccount,
        reclaimer: Workload,
        pod: Pod,
        asked_gpu_milli: int,
        ranked: Sequence[tuple[int, Victim]],
    ) -> list[tuple[int, Victim]] | None:
        """The first single victim that suffices; else the largest ones until it fits, less those not needed."""
        for rank, victim in ranked:
            if self._suffices(account, reclaimer, pod, asked_gpu_milli, [victim]):
                return [(rank, victim)]
        chosen: list[tuple[int, Victim]] = []
        for rank, victim in sorted(ranked, key=lambda each: (-self._freed_on(account, each[1]), each[0])):
            trial = [*chosen, (rank, victim)]
            fits = self._suffices(account, reclaimer, pod, asked_gpu_milli, [each for _, each in trial])
            if fits is None:
                continue
            chosen = trial
            if fits:
                return self._prune(account, reclaimer, pod, asked_gpu_milli, chosen)
        return None

    def _prune(
        self,
        account: NodeAccount,
        reclaimer: Workload,
        pod: Pod,
        asked_gpu_milli: int,
        chosen: list[tuple[int, Victim]],
    ) -> list[tuple[int, Victim]]:
        for item in sorted(chosen, key=lambda each: -each[0]):
            rest = [each for each in chosen if each is not item]
            if self._suffices(account, reclaimer, pod, asked_gpu_milli, [victim for _, victim in rest]):
                chosen = rest
        return sorted(chosen, key=lambda each: each[0])

    def _suffices(
        self,
        account: NodeAccount,
        reclaimer: Workload,
        pod: Pod,
        asked_gpu_milli: int,
        victims: Sequence[Victim],
    ) -> bool | None:
        """Whether the pod fits on the node after these evictions; None when one of them is not lawful."""
        checkpoint = self._ledger.checkpoint()
        try:
            taken = sum(1 for _ in self._evict_lawfully(reclaimer, asked_gpu_milli, victims))
            if taken < len(victims):
                return None
            return self._placer.fits_on(account, reclaimer, pod) is not None
        finally:
            self._ledger.rollback(checkpoint)

    def _evict_lawfully(
        self, reclaimer: Workload, asked_gpu_milli: int, victims: Iterable[Victim]
    ) -> Iterator[tuple[Victim, Ruling]]:
        for victim in victims:
            ruling = self.ruling(reclaimer, asked_gpu_milli, victim)
            if ruling is None:
                return
            for pod in victim.pods:
                self._ledger.evict(victim.workload, pod)
            yield victim, ruling

    def _by_node(self, candidates: Sequence[Victim]) -> list[tuple[NodeAccount, list[tuple[int, Victim]]]]:
        """Nodes with the candidates that hold something there, by rank; nodes with the best candidate first."""
        by_node: dict[str, list[tuple[int, Victim]]] = {}
        for rank, victim in enumerate(candidates):
            for node in sorted({pod.node for pod in victim.pods if pod.node in self._ledger.by_name}):
                by_node.setdefault(node, []).append((rank, victim))
        return [(self._ledger.by_name[node], ranked) for node, ranked in by_node.items()]

    def _freed_on(self, account: NodeAccount, victim: Victim) -> int:
        return sum(pod.request.gpu_milli for pod in victim.pods if pod.node == account.node.name)

    def _where_they_part(self, ours: str, theirs: str) -> tuple[str | None, str | None]:
        """The first pair of ancestors, from the top, that differ: the level at which the two compete."""
        lineage = self._ledger.tree.lineage
        for our_side, their_side in zip(reversed(lineage[ours]), reversed(lineage[theirs]), strict=False):
            if our_side != their_side:
                return our_side, their_side
        return None, None

    def _share_of(self, project: str, reclaimer: str) -> int:
        _, theirs = self._where_they_part(reclaimer, project)
        name = theirs or project
        return share_per_billion(self._ledger.allocated_gpu_milli[name], self._entitled(name))

    def _quota(self, name: str) -> int:
        return self._ledger.tree.projects[name].quota_gpu_milli

    def _entitled(self, name: str) -> int:
        project = self._ledger.tree.projects[name]
        return entitled_gpu_milli(project.quota_gpu_milli, project.limit_gpu_milli, self._shares[name])


def evictions_for(reclaimer: Workload, taken: Iterable[tuple[Victim, Ruling]]) -> list[Eviction]:
    """The plan's evictions, one for each pod, with the sentence that the pod's owner will read."""
    return [
        Eviction(
            pod=pod.id,
            workload=victim.workload.id,
            beneficiary=reclaimer.id,
            rule=ruling.rule,
            message=(
                f"{gpus(pod.request.gpu_milli)} GPUs reclaimed for {reclaimer.name} of {reclaimer.project} "
                f"by the rule of {ruling.rule}: {ruling.message}"
            ),
        )
        for victim, ruling in taken
        for pod in victim.pods
        if pod.state is PodState.ALLOCATED
    ]
