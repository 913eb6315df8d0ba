"""The placement of one pod on the node and devices that keep the most free GPUs together for large requests.

Whole devices are placed on the fullest node that has enough of them. A GPU fraction is placed on devices that are
shared already: first devices with pods of the same project, then the fullest. It gets an idle device only if no shared
device fits.

With the setting `spread` the emptiest node comes first. If the pod has preferences, the node that meets most of them
comes first.
"""

from collections.abc import Collection, Iterable

from orchestrator.planner.accounting.gpu_models import may_take, within_quota
from orchestrator.planner.accounting.ledger import Ledger, NodeAccount
from orchestrator.planner.failures import NO_FAILURES, Failures
from orchestrator.planner.model import DEVICE_MILLI, Constraints, Pod, Request, Workload
from orchestrator.planner.node_sets import NodeSet, NodeSets, node_types_for
from orchestrator.planner.placement.node_devices import (
    best_devices,
    devices_for,
    devices_on,
    has_plugin_gpus,
)
from orchestrator.planner.placement.preferences import scores_of
from orchestrator.planner.placement.reservations import Reservations
from orchestrator.planner.placements import Placement
from orchestrator.planner.traits import Preferences

_LISTED_NODES_PER_LOOKUP = 32
"""Number of list entries that take as long to read as one node to examine."""


_MAX_SCORE = 1 << 32
"""Larger than the score of every node."""


class Placer:
    """Finds placements on one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        node_sets: NodeSets,
        reservations: Reservations,
        *,
        spread: bool = False,
        failures: Failures = NO_FAILURES,
    ) -> None:
        self.ledger = ledger
        self._spread = spread
        self._failures = failures
        self._avoided: dict[str, NodeSet] = {}
        self._models, self._models_with_quota = ledger.tree.models, ledger.tree.models_with_quota
        self._reservations = reservations
        self._node_sets = node_sets
        self.looked_at = 0
        # The largest free amount of one device, now and later, by node position. Computing it for thousands
        # of nodes would take most of the time, so only the ledger's changes after `_cursor` are applied.
        self._max_free: tuple[list[int], list[int]] = ([], [])
        self._cursor = 0
        self._admitting: dict[tuple[int, tuple[str, ...]], NodeSet] = {}

    def find(
        self,
        workload: Workload,
        pod: Pod,
        positions: Collection[int] | None = None,
        *,
        only_now: bool = False,
    ) -> Placement | None:
        """Return the best placement on free GPUs, else the best placement on GPUs of terminating pods, else None.

        `positions` limits the nodes. A GPU fraction waits for a shared device instead of taking an idle device.
        On an idle device, it would block requests for whole GPUs for much longer.
        """
        placement = self._find(workload, pod, positions, later=False)
        if only_now or not self.ledger.releasing_nodes:
            return placement
        if placement is None:
            return self._find(workload, pod, positions, later=True)
        if pod.request.is_shared and not pod.claims and self._opens_device(placement):
            return self._find_shared_later(workload, pod, positions) or placement
        return placement

    def _opens_device(self, placement: Placement) -> bool:
        """Return whether at least one of the devices is used by no pod."""
        account = self.ledger.by_name[placement.node]
        return any(not account.tenants[device] for device in placement.devices)

    def _find_shared_later(
        self, workload: Workload, pod: Pod, positions: Collection[int] | None
    ) -> Placement | None:
        """Return shared devices of one node that have enough free after terminating pods have ended; else None."""
        for position in sorted(self.ledger.nodes_with_free_gpus):
            account = self.ledger.nodes[position]
            if positions is not None and position not in positions:
                continue
            self.looked_at += 1
            portion = account.share_milli(pod.request)
            shared = [
                (account.free_milli(device, later=True), device)
                for device in range(account.node.gpu_count)
                if account.used_milli[device] > account.releasing_milli[device]
                and account.free_milli(device, later=True) >= portion
            ]
            devices = tuple(device for _, device in sorted(shared)[: pod.request.shared_devices])
            if len(devices) < pod.request.shared_devices or not self.accepts(account, workload, pod):
                continue
            if not account.has_capacity(pod.request, later=True) or not self._may_take(
                account, workload, pod
            ):
                continue
            if not self._leaves_reserved(account, workload, pod, devices, later=True):
                continue
            if self._may_have(account, pod, devices, later=True):
                return Placement(account.node.name, devices, waits=True)
        return None

    def _may_have(self, account: NodeAccount, pod: Pod, devices: tuple[int, ...], *, later: bool) -> bool:
        """Return whether the pod's ResourceClaims can get these devices; true for a pod without claims."""
        claims = self.ledger.claims
        if not claims.concern(account.node, pod):
            return True
        return claims.devices(account.node, pod, later=later, among=devices) is not None

    def keep(
        self, workload: Workload, pod: Pod, where: Placement, *, is_home: bool = False
    ) -> Placement | None:
        """Return this placement, free now or after terminating pods have ended; None if it is not possible.

        `is_home`: the pod already runs there, so required affinity and spread do not count.
        """
        account, request = self.ledger.by_name.get(where.node), pod.request
        accepts = self._takes_back if is_home else self.accepts
        if account is None or not accepts(account, workload, pod):
            return None
        if not account.has_capacity(request, later=True) or not self._may_take(account, workload, pod):
            return None
        now = account.has_capacity(request, later=False)
        if now and self.ledger.neighbours is not None:
            now = bool(self.ledger.neighbours.admitting(pod, later=False) >> account.position & 1)
        if self.ledger.claims.concern(account.node, pod):
            return self._keep_by_claims(account, pod, where.devices, now=now)
        return self._keep_devices(account, request, where.devices, now=now)

    def original_placement(self, workload: Workload, pod: Pod) -> Placement | None:
        """Return the placement on which the pod ran, with the same devices; None if other pods get the devices.

        The caller has removed the pod and all other users of its ResourceClaims from the ledger.
        """
        account = self.ledger.by_name.get(pod.node or "")
        if account is None or not pod.claims:
            return self.keep(workload, pod, Placement(pod.node or "", pod.devices), is_home=True)
        if not self._takes_back(account, workload, pod) or not self._may_take(account, workload, pod):
            return None
        return Placement(account.node.name, pod.devices, waits=True) if self.can_keep_running(pod) else None

    def can_keep_running(self, pod: Pod) -> bool:
        """Return whether an evicted pod could keep running beside all nominations.

        The taints and constraints of its node do not matter, as the pod runs there already.
        """
        account = self.ledger.by_name.get(pod.node or "")
        if account is None or not account.has_capacity(pod.request, later=True):
            return False
        neighbours = self.ledger.neighbours
        if neighbours is not None and not neighbours.is_bearable(pod, account.position):
            return False
        if pod.claims and not self.ledger.claims.may_keep_devices(account.node, pod):
            return False
        if pod.claims and account.node.published_gpus:
            share = account.share_milli(pod.request)
            return all(account.free_milli(device, later=True) >= share for device in pod.devices)
        return self._keep_devices(account, pod.request, pod.devices, now=False) is not None

    @staticmethod
    def _keep_devices(
        account: NodeAccount, request: Request, devices: tuple[int, ...], *, now: bool
    ) -> Placement | None:
        count = request.shared_devices if request.is_shared else request.gpu_count
        if len(set(devices)) != count or len(devices) != count:
            return None
        share = account.share_milli(request) if count else 0
        for device in devices:
            if not 0 <= device < account.node.gpu_count or account.free_milli(device, later=True) < share:
                return None
            now = now and account.free_milli(device, later=False) >= share
        if account.lost and not _spares_lost(account, devices, later=True):
            return None
        now = now and (not account.lost or _spares_lost(account, devices, later=False))
        return Placement(account.node.name, devices, waits=not now)

    def _keep_by_claims(
        self, account: NodeAccount, pod: Pod, reserved: tuple[int, ...], *, now: bool
    ) -> Placement | None:
        """Return a placement on the node with devices for the pod's ResourceClaims: the reserved devices if
        possible.
        """
        if has_plugin_gpus(account, pod.request):
            where = self._keep_devices(account, pod.request, reserved, now=now)
            if where is None:
                return None
            now = not where.waits
        times = (False, True) if now else (True,)
        # The reserved devices come first, even if the pod has to wait for them, because other devices can be
        # nominated to other pods.
        own = [(later, True) for later in times if reserved]
        for later, only_preferred in (*own, *((later, False) for later in times)):
            devices = self._devices_for(
                account, "", pod, later=later, preferred=reserved, only_preferred=only_preferred
            )
            if devices is not None:
                if has_plugin_gpus(account, pod.request):
                    devices = reserved
                return Placement(account.node.name, devices, waits=later)
        return None

    def _devices_for(
        self,
        account: NodeAccount,
        project: str,
        pod: Pod,
        *,
        later: bool,
        preferred: tuple[int, ...] = (),
        only_preferred: bool = False,
    ) -> tuple[int, ...] | None:
        """Return the result of `devices_on`, and count the devices that it examined as work."""
        claims = self.ledger.claims
        if not claims.concern(account.node, pod):
            return devices_for(account, pod.request, project, later=later)
        before = claims.allocator.looked_at
        devices = devices_on(
            claims, account, project, pod, later=later, preferred=preferred, only_preferred=only_preferred
        )
        self.looked_at += claims.allocator.looked_at - before
        return devices

    def accepts(self, account: NodeAccount, workload: Workload, pod: Pod) -> bool:
        """Return whether the node admits the pod, also by constraints on the pods that do not terminate."""
        return bool(self._open_to(workload, pod, later=True) >> account.position & 1)

    def _takes_back(self, account: NodeAccount, workload: Workload, pod: Pod) -> bool:
        """Return the result of `accepts` for a pod that already runs on the node: affinity and spread do not count."""
        neighbours = self.ledger.neighbours
        if neighbours is not None and not neighbours.is_bearable(pod, account.position):
            return False
        return bool(self.admitting(workload, pod) >> account.position & 1)

    def _open_to(self, workload: Workload, pod: Pod, *, later: bool) -> NodeSet:
        """Return the nodes that admit the pod and that no required constraint between pods excludes."""
        nodes = self.admitting(workload, pod)
        neighbours = self.ledger.neighbours
        return nodes if neighbours is None else nodes & neighbours.admitting(pod, later=later)

    def admitting(self, workload: Workload, pod: Pod) -> NodeSet:
        """Return the nodes that match the pod and are not avoided after failures."""
        return self.matching(workload, pod) & ~self.avoided(workload)

    def matching(self, workload: Workload, pod: Pod) -> NodeSet:
        """Return the nodes that match the pod, including nodes that are avoided after failures."""
        project = self.ledger.tree.projects[workload.project]
        return self._nodes_for(pod.constraints, node_types_for(project, workload))

    def avoided(self, workload: Workload) -> NodeSet:
        """Return the nodes that the workload avoids after failures."""
        if not self._failures.has_avoided:
            return 0
        nodes = self._avoided.get(workload.id)
        if nodes is None:
            accounts = map(self.ledger.by_name.get, self._failures.avoided_by(workload))
            nodes = sum(1 << account.position for account in accounts if account is not None)
            self._avoided[workload.id] = nodes
        return nodes

    def _nodes_for(self, constraints: Constraints, node_types: tuple[str, ...]) -> NodeSet:
        """Return the nodes that admit pods with these constraints.

        The cache uses the identity of the constraints, because hashing them takes longer than the computation.
        """
        key = (id(constraints), node_types)
        nodes = self._admitting.get(key)
        if nodes is None:
            nodes = self._admitting[key] = self._node_sets.admitting(constraints, node_types)
        return nodes

    def fits_on(self, account: NodeAccount, workload: Workload, pod: Pod) -> tuple[int, ...] | None:
        """Return devices for the pod on this node after terminating pods have ended; None if it does not fit."""
        if not self.accepts(account, workload, pod) or not account.has_capacity(pod.request, later=True):
            return None
        if not self._may_take(account, workload, pod):
            return None
        devices = self._devices_for(account, workload.project, pod, later=True)
        if devices is None or not self._leaves_reserved(account, workload, pod, devices, later=True):
            return None
        return devices

    def count_on(self, account: NodeAccount, workload: Workload, pod: Pod) -> int:
        """Return an upper bound for the number of pods like this one that fit on the node, from GPUs and scalars
        alone. 0 if the node has too little CPU or memory for one of them.
        """
        request = pod.request
        if not self.accepts(account, workload, pod) or not account.has_capacity(request, later=True):
            return 0
        most = [account.free_scalar(name, later=True) // amount for name, amount in request.scalars]
        if request.is_shared:
            portion = account.share_milli(request)
            fitting = sum(
                account.free_milli(device, later=True) // portion for device in range(account.node.gpu_count)
            )
            return min([fitting // request.shared_devices, *most])
        if not request.gpu_count:
            return 1
        return min([account.count_whole_devices(later=True) // request.gpu_count, *most])

    def _find(
        self, workload: Workload, pod: Pod, positions: Collection[int] | None, *, later: bool
    ) -> Placement | None:
        if pod.request.is_shared:
            return self._find_portion(workload, pod, positions, later=later)
        second: Placement | None = None
        admitting = self._open_to(workload, pod, later=later)
        nodes, request = self.ledger.nodes, pod.request
        candidates = self._candidates(pod, positions, later=later)
        if pod.traits.preferences is not None:
            scores = self._scores(pod, pod.traits.preferences)
            candidates = sorted(candidates, key=lambda position: -scores[position])
        for position in candidates:
            self.looked_at += 1
            account = nodes[position]
            if not later and account.cpu_used_milli + request.cpu_milli > account.node.cpu_milli:
                continue  # a cheap check first: if CPU is short, most nodes with idle GPUs fail here
            if not admitting >> position & 1 or not account.has_capacity(request, later=later):
                continue
            if not self._may_take(account, workload, pod):
                continue
            is_of_others = self._is_model_of_others(account, workload, pod)
            if is_of_others and second is not None:
                continue
            devices = self._devices_for(account, workload.project, pod, later=later)
            if devices is None or not self._leaves_reserved(account, workload, pod, devices, later=later):
                continue
            placement = Placement(account.node.name, devices, waits=later)
            if not is_of_others:
                return placement
            second = placement
        return second

    def _scores(self, pod: Pod, preferences: Preferences) -> list[int]:
        return scores_of(pod, preferences, self._node_sets, self.ledger.neighbours)

    def _may_take(self, account: NodeAccount, workload: Workload, pod: Pod) -> bool:
        """Return whether limits and quotas for the node's GPU model allow the pod."""
        if account.model not in self._models or not pod.request.gpu_milli:
            return True
        return may_take(self.ledger, workload, pod.request.gpu_milli, account.model)

    def _leaves_reserved(
        self, account: NodeAccount, workload: Workload, pod: Pod, devices: tuple[int, ...], *, later: bool
    ) -> bool:
        """Return whether the pod leaves the GPUs that are reserved on the node, or may use them."""
        return not self._reservations or self._reservations.lets(account, workload, pod, devices, later=later)

    def _is_model_of_others(self, account: NodeAccount, workload: Workload, pod: Pod) -> bool:
        """Return whether only other projects have a quota for the node's GPU model. If so, nodes with other GPUs are
        tried first.
        """
        if account.model not in self._models_with_quota or not pod.request.gpu_milli:
            return False
        return not within_quota(self.ledger, workload, pod.request.gpu_milli, account.model)

    def _candidates(self, pod: Pod, positions: Collection[int] | None, *, later: bool) -> Iterable[int]:
        nodes, request, neighbours = self.ledger.nodes, pod.request, self.ledger.neighbours
        if later:
            need = request.gpu_count * DEVICE_MILLI
            known: Iterable[int] = self.ledger.nodes_with_free_gpus if need else self.ledger.releasing_nodes
            if neighbours is not None and neighbours.concerns(pod):
                # Until its end, a terminating pod can exclude other nodes by anti-affinity.
                known = range(len(nodes))
            return [
                position
                for position in sorted(known)
                if nodes[position].later_milli >= need and (positions is None or position in positions)
            ]
        if positions is None and not self._spread:
            return self.ledger.with_idle_devices(request.gpu_count)
        chosen = range(len(nodes)) if positions is None else positions
        sign = -1 if self._spread else 1
        enough = [position for position in chosen if nodes[position].idle_devices >= request.gpu_count]
        return sorted(enough, key=lambda position: (sign * nodes[position].idle_devices, position))

    def _with_portion(
        self, request: Request, positions: Collection[int] | None, *, later: bool
    ) -> Collection[int]:
        """Return the positions of nodes on which a device may have enough free for the requested fraction."""
        if positions is not None or request.gpu_memory_mib:
            return range(len(self.ledger.nodes)) if positions is None else positions
        self.looked_at += len(self.ledger.nodes) // _LISTED_NODES_PER_LOOKUP
        portion, nodes = request.gpu_portion_milli, self.ledger.nodes
        now, then = self._max_free
        changes = self.ledger.changes
        changed = range(len(nodes)) if not now else dict.fromkeys(changes[self._cursor :])
        if not now:
            now += [0] * len(nodes)
            then += now
        for position in changed:
            now[position] = nodes[position].max_free_milli(later=False)
            then[position] = nodes[position].max_free_milli(later=True)
        self._cursor = len(changes)
        return [position for position, free in enumerate(then if later else now) if free >= portion]

    def _find_portion(
        self, workload: Workload, pod: Pod, positions: Collection[int] | None, *, later: bool
    ) -> Placement | None:
        best: tuple[tuple[int, bool, int, int, int], NodeAccount, tuple[int, ...]] | None = None
        scores = None if pod.traits.preferences is None else self._scores(pod, pod.traits.preferences)
        admitting = self._open_to(workload, pod, later=later)
        nodes = self.ledger.nodes
        for position in self._with_portion(pod.request, positions, later=later):
            self.looked_at += 1
            account = nodes[position]
            portion = account.share_milli(pod.request)
            if account.later_milli < portion * pod.request.shared_devices:
                continue
            if account.max_free_milli(later=later) < portion:
                continue
            if not admitting >> account.position & 1 or not account.has_capacity(pod.request, later=later):
                continue
            if not self._may_take(account, workload, pod):
                continue
            choice = best_devices(account, pod.request, workload.project, later=later)
            if choice is None:
                continue
            foreign, free, _ = choice[0]
            is_of_others = self._is_model_of_others(account, workload, pod)
            rank = is_of_others if scores is None else is_of_others * _MAX_SCORE - scores[position]
            key = (rank, foreign, free, account.idle_devices, account.position)
            if best is not None and key >= best[0]:
                continue
            chosen = tuple(device for _, _, device in choice)
            if self.ledger.claims.concern(account.node, pod):
                by_claims = self._devices_for(account, workload.project, pod, later=later)
                if by_claims is None:
                    continue
                chosen = by_claims
            if self._leaves_reserved(account, workload, pod, chosen, later=later):
                best = (key, account, chosen)
        return None if best is None else Placement(best[1].node.name, best[2], waits=later)


def _spares_lost(account: NodeAccount, devices: tuple[int, ...], *, later: bool) -> bool:
    """Return whether the node has, in addition to these devices, as many unused devices as it has lost."""
    if not later and account.is_short_of_lost():
        return False
    opened = sum(account.free_milli(device, later=later) == DEVICE_MILLI for device in devices)
    return opened <= len(account.whole_devices(later=later))
