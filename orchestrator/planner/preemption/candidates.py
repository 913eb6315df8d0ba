"""What could make way on each node: the pieces in which running work may be taken off it.

A piece is a surplus pod of an elastic workload, everything that a workload runs, or, for moves, a single pod. Pieces
are made once for a decision; which of them may go, and for whom, is for the policies to say.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.planner.accounting.coverage import Victim, coverage, filling_order
from orchestrator.planner.gangs import give_up_chunks
from orchestrator.planner.model import Pod, PodState, Workload
from orchestrator.planner.preemption.victims import VictimKey, victim_order
from orchestrator.planner.session import Session


@dataclass(slots=True)
class Piece:
    """Pods that go together. `order` sorts the pieces of a project: who has least to lose is first.

    `pods_on` are its pods by the position of their node; `gpu_milli` is what it holds in all. `is_harmless`: all that
    it has are nominations, nobody is evicted. `is_covered`: the quota of its project covers some of it.
    """

    victim: Victim
    order: tuple[VictimKey, bool, int]
    gpu_milli: int
    pod_count: int
    is_harmless: bool
    is_covered: bool = False
    pods_on: dict[int, list[Pod]] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        """Whose pods they are."""
        return self.victim.workload

    @property
    def is_move(self) -> bool:
        """Whether the piece is not evicted for good."""
        return self.victim.is_move

    @property
    def project(self) -> str:
        """Whose workload it is."""
        return self.victim.workload.project

    def is_gone(self, evicted: set[str]) -> bool:
        """Whether all its pods are evicted by now."""
        pods = self.victim.pods
        return pods[0].id in evicted if len(pods) == 1 else all(pod.id in evicted for pod in pods)


class Candidates:
    """The pieces of all running work that can be taken back, by node and by project, for one decision.

    Pieces that can be evicted and pieces that can be moved; policies choose among them.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._losers: set[str] = set()
        self._looked_at = 0
        self.by_node: dict[int, list[Piece]] = {}
        self.by_project: dict[str, list[Piece]] = {}
        running: dict[str, list[Workload]] = {}
        for workload in session.running():
            if workload.project in session.tree.projects:
                running.setdefault(workload.project, []).append(workload)
        self._covered = _covered_pods(session, running)
        for project in sorted(running):
            for workload in running[project]:
                if workload.preemptible:
                    for sequence, victim in enumerate((*_pieces(workload), *_moves(workload))):
                        self._add(victim, sequence)
        for pieces in (*self.by_project.values(), *self.by_node.values()):
            pieces.sort(key=lambda piece: piece.order)

    def losers_of_covered(self) -> Collection[str]:
        """The projects that this decision took something from that their quota covered at its beginning."""
        lost, self._looked_at = self._session.lost_since(self._looked_at)
        self._losers.update(self._covered[pod] for pod in lost if pod in self._covered)
        return self._losers

    def _add(self, victim: Victim, sequence: int) -> None:
        by_name = self._session.ledger.by_name
        piece = Piece(
            victim,
            (victim_order(victim), victim.is_move, sequence),
            gpu_milli=victim.gpu_milli,
            pod_count=sum(not self._session.is_nominated(pod) for pod in victim.pods),
            # Whoever only has nominations has started nothing: it waits on, and no work is lost.
            is_harmless=all(self._session.is_nominated(pod) for pod in victim.pods),
            is_covered=any(pod.id in self._covered for pod in victim.pods),
        )
        for pod in victim.pods:
            account = by_name.get(pod.node or "")
            if account is not None:
                piece.pods_on.setdefault(account.position, []).append(pod)
        for position in piece.pods_on:
            self.by_node.setdefault(position, []).append(piece)
        self.by_project.setdefault(piece.project, []).append(piece)


def _covered_pods(session: Session, running: Mapping[str, Sequence[Workload]]) -> dict[str, str]:
    """The pods, by id, that their project's quota covers, as it is filled at the beginning, with the project."""
    tree = session.tree
    return {
        pod.id: project
        for project, workloads in running.items()
        for victim in coverage(filling_order(workloads), tree.quota[project], tree.resources).covered
        for pod in victim.pods
    }


def _pieces(workload: Workload) -> Iterable[Victim]:
    *surplus, everything = give_up_chunks(workload) or [()]
    for chunk in surplus:
        yield Victim(workload, chunk, is_core=False)
    if everything:
        yield Victim(workload, everything)


def _moves(workload: Workload) -> Iterable[Victim]:
    if any(pod.state is PodState.RELEASING for pod in workload.pods):
        return  # some of it is on its way already: the rest moves when that has arrived
    for pod in reversed(workload.pods):
        if pod.state is PodState.ALLOCATED:
            yield Victim(workload, (pod,), is_move=True)
