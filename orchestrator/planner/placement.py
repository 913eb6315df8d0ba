"""Where a pod goes: the first node and devices that fit, packed so that large requests keep finding room.

Whole devices go to the fullest node that has enough of them. A portion goes to devices that are shared already, first
those that the same project shares, then the fullest; a new device is opened only when no shared one fits. With the
setting `spread` the emptiest node comes first.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from orchestrator.planner.holds import Holds
from orchestrator.planner.ledger import Ledger, NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Constraints, Pod, Project, Request, Workload
from orchestrator.planner.model_bounds import may_take, within_quota
from orchestrator.planner.predicates import NodeFilter


@dataclass(frozen=True, slots=True)
class Placement:
    """A node and devices for a pod; `promised` when part of it is still being released."""

    node: str
    devices: tuple[int, ...]
    promised: bool


class Placer:
    """Finds placements on one ledger."""

    def __init__(self, ledger: Ledger, holds: Holds, *, spread: bool = False) -> None:
        self.ledger = ledger
        self._spread = spread
        self._models, self._promised = ledger.tree.models, ledger.tree.promised_models
        self._holds = holds
        self._filter = NodeFilter(lambda position: ledger.nodes[position].node)

    def find(
        self, workload: Workload, pod: Pod, positions: Collection[int] | None = None
    ) -> Placement | None:
        """The best placement now, else the best one on what is being released, else None; on these nodes, if given."""
        found = self._find(workload, pod, positions, later=False)
        if found is None and self.ledger.releasing_nodes:
            found = self._find(workload, pod, positions, later=True)
        return found

    def accepts(self, account: NodeAccount, workload: Workload, pod: Pod) -> bool:
        """Whether the node's labels, taints and the project's node types let the pod in."""
        project = self.ledger.tree.projects[workload.project]
        return self.admits(account, pod.constraints, node_types_for(project, workload))

    def admits(self, account: NodeAccount, constraints: Constraints, node_types: tuple[str, ...]) -> bool:
        """`accepts` for any pod with these constraints."""
        return self._filter.accepts(account.position, constraints, node_types)

    def fits_on(self, account: NodeAccount, workload: Workload, pod: Pod) -> tuple[int, ...] | None:
        """Devices on this node once all releases are through, or None."""
        if not self.accepts(account, workload, pod) or not account.has_room(pod.request, later=True):
            return None
        if not self._may_take(account, workload, pod):
            return None
        devices = devices_for(account, pod.request, workload.project, later=True)
        if devices is None or not self._leaves_held(account, workload, pod, devices, later=True):
            return None
        return devices

    def _find(
        self, workload: Workload, pod: Pod, positions: Collection[int] | None, *, later: bool
    ) -> Placement | None:
        if pod.request.is_shared:
            return self._find_portion(workload, pod, positions, later=later)
        second: Placement | None = None
        for position in self._candidates(pod.request, positions, later=later):
            account = self.ledger.nodes[position]
            if not self.accepts(account, workload, pod) or not account.has_room(pod.request, later=later):
                continue
            if not self._may_take(account, workload, pod):
                continue
            lent = self._is_promised(account, workload, pod)
            if lent and second is not None:
                continue
            devices = devices_for(account, pod.request, workload.project, later=later)
            if devices is None or not self._leaves_held(account, workload, pod, devices, later=later):
                continue
            found = Placement(account.node.name, devices, promised=later)
            if not lent:
                return found
            second = found
        return second

    def _may_take(self, account: NodeAccount, workload: Workload, pod: Pod) -> bool:
        """Whether the project may hold that much more of the node's GPU model."""
        if account.model not in self._models or not pod.request.gpu_milli:
            return True
        return may_take(self.ledger, workload, pod.request.gpu_milli, account.model)

    def _leaves_held(
        self, account: NodeAccount, workload: Workload, pod: Pod, devices: tuple[int, ...], *, later: bool
    ) -> bool:
        """Whether what is kept on the node for somebody else stays there, or the pod may use it."""
        return not self._holds or self._holds.lets(account, workload, pod, devices, later=later)

    def _is_promised(self, account: NodeAccount, workload: Workload, pod: Pod) -> bool:
        """Whether the node's GPU model is promised to others, so that any other node is better."""
        if account.model not in self._promised or not pod.request.gpu_milli:
            return False
        return not within_quota(self.ledger, workload, pod.request.gpu_milli, account.model)

    def _candidates(
        self, request: Request, positions: Collection[int] | None, *, later: bool
    ) -> Iterable[int]:
        nodes = self.ledger.nodes
        if later:
            need = request.gpu_count * DEVICE_MILLI
            known = self.ledger.spare_nodes if need else self.ledger.releasing_nodes
            return [
                each
                for each in sorted(known)
                if nodes[each].later_milli >= need and (positions is None or each in positions)
            ]
        if positions is None and not self._spread:
            return self.ledger.with_idle_devices(request.gpu_count)
        chosen = range(len(nodes)) if positions is None else positions
        sign = -1 if self._spread else 1
        enough = [each for each in chosen if nodes[each].idle_devices >= request.gpu_count]
        return sorted(enough, key=lambda each: (sign * nodes[each].idle_devices, each))

    def _find_portion(
        self, workload: Workload, pod: Pod, positions: Collection[int] | None, *, later: bool
    ) -> Placement | None:
        best: tuple[tuple[bool, bool, int, int, int], NodeAccount, tuple[int, ...]] | None = None
        for account in (
            self.ledger.nodes if positions is None else map(self.ledger.nodes.__getitem__, positions)
        ):
            if account.later_milli < account.share_milli(pod.request) * pod.request.shared_devices:
                continue
            if not self.accepts(account, workload, pod) or not account.has_room(pod.request, later=later):
                continue
            if not self._may_take(account, workload, pod):
                continue
            choice = best_devices(account, pod.request, workload.project, later=later)
            if choice is None:
                continue
            chosen = tuple(device for _, _, device in choice)
            if not self._leaves_held(account, workload, pod, chosen, later=later):
                continue
            foreign, free, _ = choice[0]
            lent = self._is_promised(account, workload, pod)
            key = (lent, foreign, free, account.idle_devices, account.position)
            if best is None or key < best[0]:
                best = (key, account, chosen)
        return None if best is None else Placement(best[1].node.name, best[2], promised=later)


def node_types_for(project: Project, workload: Workload) -> tuple[str, ...]:
    """The node types that the project allows for this kind of workload; empty allows all."""
    return project.interactive_node_types if workload.interactive else project.train_node_types


def devices_for(
    account: NodeAccount, request: Request, project: str, *, later: bool
) -> tuple[int, ...] | None:
    """Device indices on this node for the request; () when it asks for no GPU; None when they are not there."""
    if request.is_shared:
        choice = best_devices(account, request, project, later=later)
        return None if choice is None else tuple(device for _, _, device in choice)
    if request.gpu_count == 0:
        return ()
    whole = account.whole_devices(later=later)
    return tuple(whole[: request.gpu_count]) if len(whole) >= request.gpu_count else None


def best_devices(
    account: NodeAccount, request: Request, project: str, *, later: bool
) -> list[tuple[bool, int, int]] | None:
    """(not shared by this project yet, free part in `gpu_milli`, index) of the tightest devices that fit, or None."""
    choices: list[tuple[bool, int, int]] = []
    portion = account.share_milli(request)
    whole = account.whole_devices(later=later) if account.lost else ()
    for device in range(account.node.gpu_count):
        free = account.free_milli(device, later=later)
        if free < portion:
            continue
        if account.lost and free == DEVICE_MILLI and device not in whole:
            continue
        shared_by_us = free < DEVICE_MILLI and project in account.tenants[device]
        choices.append((not shared_by_us, free, device))
    choices.sort()
    return choices[: request.shared_devices] if len(choices) >= request.shared_devices else None
