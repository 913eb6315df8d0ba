"""Repacking: take all candidates off a few nodes, place the preemptor's pods, and place the candidates again.

It is the last search, for cases in which one migration is possible only after another. The pods of the preemptor are
placed first, on any node. If a node is then over capacity, one of its pods is placed elsewhere. This is repeated until
all other pods fit on their original placements.

Example: three nodes have 4 GPUs each. Node a runs a job of 3 GPUs, node b a job of 3, and node c two jobs of 1. A job
of 4 GPUs is pending. The job of node a can migrate to node c, but only if a job of node c migrates to node b.

The search examines few nodes and has a bound on its steps.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from operator import itemgetter

from orchestrator.planner.accounting.ledger import Ledger, NodeAccount
from orchestrator.planner.accounting.quota_checks import limiting
from orchestrator.planner.gangs import Chunk, chunk_amounts, has_topology
from orchestrator.planner.model import Request, Workload
from orchestrator.planner.placement.chunks import candidate_domains
from orchestrator.planner.placements import Placed, Placement
from orchestrator.planner.preemption.candidates import Candidate
from orchestrator.planner.preemption.homes import Homes, Lifted
from orchestrator.planner.preemption.packing import Packing, parcels_of, spaces_of
from orchestrator.planner.preemption.rescheduling import MovePolicy
from orchestrator.planner.preemption.search import Outcome
from orchestrator.planner.preemption.victim_selection import VictimSelector
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

_MAX_NODES = 8
_MAX_STEPS = 1_500
_TRIES_OF_STEP = 4
_FEW_MOVES = 4
_FEW_NODES = 12
_STEPS_AMONG_MANY = 150
"""With more nodes than _FEW_NODES, other searches are more likely to succeed, so this one has fewer steps."""
_MAX_SETS = 6
_MAX_DOMAINS = 4
_MAX_COMBINATIONS = 70
_WORK_OF_STEP = 40
_WORK_OF_STATE = 20
_WORK_OF_NODE = 8
_Place = tuple[Lifted, Placement]


def repack_for(
    session: Session, workload: Workload, chunk: Chunk, selector: VictimSelector
) -> Outcome | None:
    """Place the whole chunk on the ledger by repacking. Return the victims and placements; None, with no change, if
    it fails.
    """
    policy = selector.policy
    if not isinstance(policy, MovePolicy):
        return None
    policy.start(workload, chunk)
    for scope in _scopes(session.ledger, workload, chunk):
        search = _Repacking(session, workload, chunk, selector, policy, scope=scope)
        if (outcome := search.run()) is not None:
            return outcome
    return None


def _scopes(ledger: Ledger, workload: Workload, chunk: Chunk) -> Sequence[Collection[int] | None]:
    """Return sets of nodes; the whole chunk must be placed in one of the sets. None stands for all nodes.

    The result is empty if sub-groups have topologies of their own: repacking does not support these.
    """
    rule, groups = workload.topology, workload.groups
    if groups is not None and has_topology(groups):
        return ()
    if rule is None or rule.required is None:
        return (None,)
    domains = candidate_domains(ledger, rule, workload)
    if len(chunk) == 1:
        return (frozenset(chain.from_iterable(domains)),)
    if len(domains) > _MAX_DOMAINS:
        free_milli = [account.later_milli for account in ledger.nodes]
        domains = sorted(domains, key=lambda domain: -sum([free_milli[position] for position in domain]))
    return domains[:_MAX_DOMAINS]


class _Repacking:
    def __init__(
        self,
        session: Session,
        workload: Workload,
        chunk: Chunk,
        selector: VictimSelector,
        policy: MovePolicy,
        *,
        scope: Collection[int] | None,
    ) -> None:
        self._session, self._ledger = session, session.ledger
        self._workload, self._chunk = workload, chunk
        self._selector, self._policy = selector, policy
        self._requested = chunk_amounts(chunk)
        self._open = scope
        self._positions = self._choose_nodes()
        self._tries = 0
        self._homes = Homes((), self._ledger)
        self._are_few = len(self._ledger.nodes) <= _FEW_NODES
        # With many nodes, most trials fail at the first check, so a check already counts as a step.
        self._tries_of_step = _TRIES_OF_STEP if self._are_few else 1
        self._max_tries = self._tries_of_step * (_MAX_STEPS if self._are_few else _STEPS_AMONG_MANY)
        # Failed states are stored only if equal free amounts mean equal results. ResourceClaims choose
        # devices by more than free amounts, and a search with few steps seldom reaches a state twice.
        self._is_memorized = self._are_few and not session.snapshot.dynamic.slices
        # With constraints between pods, equal free amounts beside different pods are different states.
        self._is_memorized = self._is_memorized and session.ledger.neighbours is None
        self._failed: dict[object, int] = {}
        self._sets: dict[object, Sequence[tuple[int, tuple[int, ...]]]] = {}

    def run(self) -> Outcome | None:
        checkpoint = self._ledger.checkpoint()
        evicted = [
            candidate for candidate in self._candidates() if not candidate.is_move and self._lift(candidate)
        ]
        if limiting(self._ledger, self._workload, self._requested) is not None:
            self._ledger.rollback(checkpoint)
            return None  # migrated pods still count for a limit, so only evictions can help
        lifted = [
            candidate for candidate in self._candidates() if candidate.is_move and self._lift(candidate)
        ]
        items = [Lifted(self._workload, pod, None) for pod in self._chunk]
        items += [Lifted(candidate.workload, candidate.pods[0], candidate) for candidate in lifted]
        items.sort(key=lambda item: (-item.pod.request.gpu_milli, item.candidate is not None))
        placements: list[_Place] = []
        fits = self._put_down_with_fewest_moves(items, placements)
        if not fits and self._is_memorized and self._tries > self._max_tries:
            fits = self._pack_anew(items, placements)
        # All candidates are off the ledger now. Those for eviction are placed again if they fit, most
        # entitled first.
        back: set[str] = set()
        restored = (
            {id(candidate) for candidate in reversed(evicted) if self._put_back(candidate, back)}
            if fits
            else set()
        )
        self._ledger.rollback(checkpoint)
        self._session.work.spend(self._tries * _WORK_OF_STEP // self._tries_of_step)
        if not fits:
            return None
        moved = [(item, where) for item, where in placements if item.candidate is not None]
        outcome = self._carry_out(
            [candidate for candidate in evicted if id(candidate) not in restored], moved, placements
        )
        if outcome is None:
            self._ledger.rollback(checkpoint)
        return outcome

    def _choose_nodes(self) -> list[int]:
        """Return the positions of the nodes with the most free or movable GPUs. Nodes that accept the largest pod
        come first.
        """
        largest = max(self._chunk, key=lambda pod: pod.request.gpu_milli)
        having = self._session.node_sets.having(largest.request.scalars)
        admitting = self._session.placer.admitting(self._workload, largest)
        weights: list[tuple[int, int]] = []
        for position, account in enumerate(self._ledger.nodes):
            if account.node.schedulable:
                accepts = (
                    self._is_open(position)
                    and bool(having >> position & 1)
                    and bool(admitting >> position & 1)
                )
                movable_milli = self._selector.candidates.movable_milli(position)
                weight = account.later_milli * 4 + movable_milli + 1_000_000 * accepts
                weights.append((-weight, position))
        self._session.work.spend(_WORK_OF_NODE * len(self._ledger.nodes))
        return sorted(position for _, position in sorted(weights)[:_MAX_NODES])

    def _is_open(self, position: int) -> bool:
        return self._open is None or position in self._open

    def _candidates(self) -> Iterator[Candidate]:
        """Yield the candidates whose pods are all on the chosen nodes and may be evicted, the least entitled first.

        A candidate can also have pods on cordoned nodes, which are never chosen.
        """
        closed = (account.position for account in self._ledger.nodes if not account.node.schedulable)
        chosen = {*self._positions, *closed}
        candidates = {
            id(candidate): candidate
            for position in self._positions
            for candidate in self._selector.candidates.on(position, moves=True)
            if chosen.issuperset(candidate.pods_on) and self._policy.may_go(self._workload, candidate)
        }
        yield from sorted(candidates.values(), key=self._policy.order(self._workload))

    def _lift(self, candidate: Candidate) -> bool:
        """Evict the candidate on the ledger if policy and budgets allow it. Return whether it was evicted."""
        if candidate.is_evicted(self._ledger.evicted) or (candidate.is_harmless and candidate.is_move):
            return False
        checkpoint = self._ledger.checkpoint()
        if self._selector.evict(self._workload, self._requested, [candidate]) is None:
            self._ledger.rollback(checkpoint)
            return False
        return True

    def _put_down_with_fewest_moves(self, items: Sequence[Lifted], placements: list[_Place]) -> bool:
        """Place the pods of the chunk with as few migrations as possible: try with 0, then with 1, and so on."""
        lifted = [item for item in items if item.candidate is not None]
        chunk = tuple(item for item in items if item.candidate is None)
        most = min(len(lifted), self._policy.max_moves)
        self._tries = 0
        self._homes = Homes(lifted, self._ledger)
        self._failed.clear()
        self._sets.clear()
        allowed = sorted({*range(min(most, _FEW_MOVES) + 1), most})
        return any(self._put_down(chunk, placements, moves) for moves in allowed)

    def _pack_anew(self, items: Sequence[Lifted], placements: list[_Place]) -> bool:
        """Place all pods with any number of migrations, after the search for the fewest has used up its steps."""
        nodes = [self._ledger.nodes[position] for position in self._positions]
        packing = Packing(parcels_of(items, nodes, self._may_be_on), spaces_of(items, nodes))
        slots = packing.find()
        self._session.work.spend(packing.state_count * _WORK_OF_STATE)
        if slots is None:
            return False
        checkpoint = self._ledger.checkpoint()
        moves = 0
        for item, (position, devices) in zip(items, slots, strict=True):
            name = nodes[position].node.name
            where = self._session.placer.keep(item.workload, item.pod, Placement(name, devices))
            is_home = item.candidate is not None and (name, devices) == (
                item.pod.node,
                tuple(item.pod.devices),
            )
            moves += item.candidate is not None and not is_home
            is_open = is_home or self._may_have(item, nodes[position], devices)
            if where is None or moves > self._policy.max_moves or not is_open:
                self._ledger.rollback(checkpoint)
                placements.clear()
                return False
            self._ledger.place(item.workload, item.pod, where)
            if not is_home:
                placements.append((item, where))
        return True

    def _may_be_on(self, item: Lifted, account: NodeAccount) -> bool:
        is_open = item.candidate is not None or self._is_open(account.position)
        return is_open and self._session.placer.accepts(account, item.workload, item.pod)

    def _put_down(self, waiting: tuple[Lifted, ...], placements: list[_Place], moves: int) -> bool:
        """Place these pods, and the pods that they displace with at most `moves` migrations; all others stay.

        The search backtracks until it finds a solution or has used up its steps. Return whether it found one.
        """
        if self._homes.count_lost() > moves:
            return False
        state = self._state(waiting, placements) if self._is_memorized else None
        if self._failed.get(state, -1) >= moves:
            return False
        if self._put_first_down(waiting, placements, moves) if waiting else self._make_way(placements, moves):
            return True
        if state is not None and self._tries <= self._max_tries:
            self._failed[state] = moves
        return False

    def _state(self, waiting: tuple[Lifted, ...], placements: Sequence[_Place]) -> object:
        """Return a key of all conditions that decide whether the rest of the search succeeds."""
        first = self._positions_for(waiting[0], placements)[:1] if waiting else ()
        nodes = tuple(self._homes.state(position) for position in self._positions)
        return (*first, *map(self._homes.kind_waiting, waiting)), nodes

    def _put_first_down(self, waiting: tuple[Lifted, ...], placements: list[_Place], moves: int) -> bool:
        item, *others = waiting
        for where in self._choices(item, placements):
            checkpoint = self._ledger.checkpoint()
            self._ledger.place(item.workload, item.pod, where)
            if self._homes.count_lost() > moves:
                # Check this before the next level of the search: most placements fail here, and the check is
                # cheaper.
                self._tries += 1
                self._ledger.rollback(checkpoint)
                continue
            self._tries += self._tries_of_step
            if self._tries > self._max_tries:
                self._ledger.rollback(checkpoint)
                return False
            placements.append((item, where))
            if self._put_down(tuple(others), placements, moves):
                return True
            placements.pop()
            self._ledger.rollback(checkpoint)
        return False

    def _make_way(self, placements: list[_Place], moves: int) -> bool:
        """Place all other pods on their original placements. If one does not fit, migrate a pod of its node."""
        crowd = self._homes.crowd()
        if not crowd and (misfit := self._put_down_at_home()) is not None:
            crowd = [misfit]
        if not crowd:
            return True
        pinned: list[Lifted] = []
        kinds = {id(item): self._homes.kind_of_place(item) for item in crowd} if moves else {}
        tried: set[tuple[object, ...]] = set()
        for item in crowd if moves else ():
            if self._homes.pinned(item):
                continue
            self._homes.remove(item)
            if kinds[id(item)] not in tried and self._put_down((item,), placements, moves - 1):
                return True
            # One pod of the crowd must migrate. All solutions in which this pod or an equal one migrates have
            # been tried, so pin it.
            tried.add(kinds[id(item)])
            self._homes.add(item, pinned=True)
            pinned.append(item)
        for item in pinned:
            self._homes.add(item)
        return False

    def _put_down_at_home(self) -> Lifted | None:
        """Place all remaining pods on their original placements. If a pod does not fit, undo all of these placements
        and return the pod.
        """
        checkpoint = self._ledger.checkpoint()
        for item in self._homes.items():
            where = self._session.placer.original_placement(item.workload, item.pod)
            if where is None:
                self._ledger.rollback(checkpoint)
                return item
            self._ledger.place(item.workload, item.pod, where)
        return None

    def _choices(self, item: Lifted, placements: Sequence[_Place]) -> Iterator[Placement]:
        """Yield the possible placements of the pod, for a migrated pod those that displace the fewest pods first."""
        placer = self._session.placer
        home = (item.pod.node, frozenset(item.pod.devices)) if item.candidate is not None else None
        choices: list[tuple[int, Placement]] = []
        for position in self._positions_for(item, placements):
            if item.candidate is None and not self._is_open(position):
                continue
            account = self._ledger.nodes[position]
            default = placer.fits_on(account, item.workload, item.pod)
            if default is None:
                continue
            if self._ledger.claims.concern(account.node, item.pod):
                # the allocator chooses the devices of ResourceClaims
                if (
                    item.pod.node != account.node.name
                    or placer.original_placement(item.workload, item.pod) is None
                ):
                    choices.append((0, Placement(account.node.name, default, waits=True)))
                continue
            # With many nodes, try another node and not other devices of the same node, because that succeeds
            # more often.
            residents = self._homes.on(position) if self._are_few or not item.pod.request.is_shared else {}
            for in_the_way, devices in self._device_sets(account, item.pod.request, default, residents):
                if (account.node.name, frozenset(devices)) == home:
                    continue
                if devices == default or self._may_have(item, account, devices):
                    choices.append((in_the_way, Placement(account.node.name, devices, waits=True)))
        if item.candidate is not None:
            choices.sort(key=itemgetter(0))
        return iter([where for _, where in choices])

    def _device_sets(
        self,
        account: NodeAccount,
        request: Request,
        default: tuple[int, ...],
        residents: Mapping[int, tuple[int, ...]],
    ) -> Sequence[tuple[int, tuple[int, ...]]]:
        """Return the sets of devices, each with the number of pods that it displaces; cached by the state of the
        node.
        """
        key = (request, default, bool(residents), self._homes.at(account.position))
        known = self._sets.get(key)
        if known is None:
            known = self._sets[key] = [
                (len({other for device in devices for other in residents.get(device, ())}), devices)
                for devices in _device_sets(account, request, default, residents, self._homes.kind)
            ]
        return known

    def _positions_for(self, item: Lifted, placements: Sequence[_Place]) -> Sequence[int]:
        """Return the positions of the nodes to try for the pod.

        Equal pods of the chunk are placed in the order of the nodes, because exchanging two of them changes nothing.
        """
        if not placements or not _are_alike(placements[-1][0], item):
            return self._positions
        last = self._ledger.by_name[placements[-1][1].node].position
        return self._positions[self._positions.index(last) :]

    def _may_have(self, item: Lifted, account: NodeAccount, devices: tuple[int, ...]) -> bool:
        """Return whether the pod may use these devices instead of those that the placer would choose."""
        lets = self._session.reservations.lets
        return lets(account, item.workload, item.pod, devices, later=True) and (
            self._session.placer.keep(item.workload, item.pod, Placement(account.node.name, devices))
            is not None
        )

    def _put_back(self, candidate: Candidate, back: set[str]) -> bool:
        """Place an evicted candidate on its original placement again, if it fits. Return whether it fits.

        `back` collects the ids of the pods that are placed again: elastic pods belong to the core candidate of the
        workload too.
        """
        pods = [pod for pod in candidate.pods if pod.id not in back]
        if limiting(self._ledger, candidate.workload, chunk_amounts(pods)) is not None:
            return False
        checkpoint = self._ledger.checkpoint()
        for pod in pods:
            where = self._session.placer.original_placement(candidate.workload, pod)
            if where is None:
                self._ledger.rollback(checkpoint)
                return False
            self._ledger.place(candidate.workload, pod, where)
        back.update(pod.id for pod in pods)
        return True

    def _carry_out(
        self,
        evicted: list[Candidate],
        moved: list[_Place],
        placements: list[_Place],
    ) -> Outcome | None:
        """Return the outcome on the ledger after the policy has checked it as a whole; None if the
        policy rejects it.
        """
        candidates = [*evicted, *(item.candidate for item, _ in moved if item.candidate is not None)]
        nominees = self._session.steady_nominees()
        losses = self._selector.evict(self._workload, self._requested, candidates)
        if losses is None:
            return None
        placed: Placed = []
        for item, where in placements:
            if item.candidate is None:
                self._ledger.place(item.workload, item.pod, where)
                placed.append((item.pod, where))
        if not self._policy.accepts_placements(self._session, self._workload, losses, _by_workload(moved)):
            return None
        moves = [(item.pod, where) for item, where in moved]
        started = self._session.seats.placed(self._workload, SeatState.NEW)
        is_met = self._session.meets_constraints([*started, *placed, *moves])
        return (losses, placed, []) if is_met and self._session.keeps_nominees(nominees) else None


def _are_alike(first: Lifted, second: Lifted) -> bool:
    """Return whether both are pods of the preemptor that could exchange their placements."""
    return (
        first.candidate is None
        and second.candidate is None
        and first.pod.request == second.pod.request
        and first.pod.constraints == second.pod.constraints
        and first.pod.max_runtime_seconds == second.pod.max_runtime_seconds
    )


def _by_workload(moved: list[_Place]) -> dict[str, Placed]:
    placements: dict[str, Placed] = {}
    for item, where in moved:
        placements.setdefault(item.workload.id, []).append((item.pod, where))
    return placements


def _device_sets(
    account: NodeAccount,
    request: Request,
    default: tuple[int, ...],
    residents: Mapping[int, tuple[int, ...]],
    kind_of: Callable[[int], tuple[int, bool]],
) -> list[tuple[int, ...]]:
    """Return sets of devices that differ in their free amounts or in the pods that would migrate, fewest pods first.

    Devices without other pods are equal. If there are enough such devices, the result is one set.
    """
    count = len(default)
    # If a pod has several fractions, the choice matters even on empty devices. Example: three pods with two
    # half GPUs each fit on three devices only if each two pods share one device.
    if not default or not (residents or (request.is_shared and count > 1)):
        return [default]
    usable = account.whole_devices(later=True)
    unused: list[int] = []
    if request.is_shared:
        share = account.share_milli(request)
        devices = range(account.node.gpu_count)
        usable = [device for device in devices if account.free_milli(device, later=True) >= share]
    else:
        unused = [device for device in usable if device not in residents][:count]
        if len(unused) == count:
            return [tuple(unused)]
        usable = [device for device in usable if device in residents]
    kind = {device: (account.free_milli(device, later=True), residents.get(device, ())) for device in usable}
    alike = {
        device: (free_milli, *sorted(map(kind_of, others))) for device, (free_milli, others) in kind.items()
    }

    def in_the_way(chosen: tuple[int, ...]) -> int:
        return len({other for device in chosen for other in kind[device][1]})

    sets: dict[tuple[object, ...], tuple[int, ...]] = {}
    first = [default] if request.is_shared else []
    for chosen in islice(chain(first, combinations(usable, count - len(unused))), _MAX_COMBINATIONS):
        sets.setdefault((in_the_way(chosen), *sorted(alike[device] for device in chosen)), chosen)
    return [(*unused, *chosen) for chosen in sorted(sets.values(), key=in_the_way)[:_MAX_SETS]]
