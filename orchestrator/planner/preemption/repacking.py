"""Room made by packing some nodes anew: everything that may go or move is lifted, then put down again.

The last resort, where taking one set of pieces off one node does not help: moves that make room for other moves. Who
waits is put down first, in any place; where that is one too many, one of those who were there goes to any other place,
and so on until all others can be where they were. It looks at a few nodes only, in a bounded number of steps.
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
from orchestrator.planner.preemption.candidates import Piece
from orchestrator.planner.preemption.homes import Homes, Lifted
from orchestrator.planner.preemption.packing import Packing, parcels_of, spaces_of
from orchestrator.planner.preemption.rescheduling import MovePolicy
from orchestrator.planner.preemption.search import Outcome
from orchestrator.planner.preemption.victim_selection import VictimSelector
from orchestrator.planner.session import Session

_MAX_NODES = 8
_MAX_STEPS = 1_500
_TRIES_OF_STEP = 4
_FEW_MOVES = 4
_FEW_NODES = 12
_STEPS_AMONG_MANY = 150
"""With more nodes than _FEW_NODES there are other ways to make room, and less to gain here."""
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
    """Places for the whole chunk on the ledger, with who is moved and evicted; None, with the ledger as it was."""
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
    """The sets of nodes of which one has to take all of the chunk; None: all nodes.

    Where sub-groups have topologies of their own none is tried.
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
        # What most tries of many nodes cost is to find out that they are out of the question.
        self._tries_of_step = _TRIES_OF_STEP if self._are_few else 1
        self._max_tries = self._tries_of_step * (_MAX_STEPS if self._are_few else _STEPS_AMONG_MANY)
        # Claims choose devices by more than what is left of them, and few steps seldom come to the same state.
        self._is_memorized = self._are_few and not session.snapshot.dynamic.slices
        # The same amounts can be free with other pods on the node, and constraints between pods tell these apart.
        self._is_memorized = self._is_memorized and session.ledger.neighbours is None
        self._failed: dict[object, int] = {}
        self._sets: dict[object, Sequence[tuple[int, tuple[int, ...]]]] = {}

    def run(self) -> Outcome | None:
        checkpoint = self._ledger.checkpoint()
        evicted = [piece for piece in self._pieces() if not piece.is_move and self._lift(piece)]
        if limiting(self._ledger, self._workload, self._requested) is not None:
            self._ledger.rollback(checkpoint)
            return None  # whoever is moved is still there
        lifted = [piece for piece in self._pieces() if piece.is_move and self._lift(piece)]
        items = [Lifted(self._workload, pod, None) for pod in self._chunk]
        items += [Lifted(piece.workload, piece.pods[0], piece) for piece in lifted]
        items.sort(key=lambda item: (-item.pod.request.gpu_milli, item.piece is not None))
        places: list[_Place] = []
        fits = self._put_down_with_fewest_moves(items, places)
        if not fits and self._is_memorized and self._tries > self._max_tries:
            fits = self._pack_anew(items, places)
        # Everything that may go was lifted; who has most to lose is the first to be put back.
        back: set[str] = set()
        spared = {id(piece) for piece in reversed(evicted) if self._put_back(piece, back)} if fits else set()
        self._ledger.rollback(checkpoint)
        self._session.work.spend(self._tries * _WORK_OF_STEP // self._tries_of_step)
        if not fits:
            return None
        moved = [(item, where) for item, where in places if item.piece is not None]
        outcome = self._carry_out([piece for piece in evicted if id(piece) not in spared], moved, places)
        if outcome is None:
            self._ledger.rollback(checkpoint)
        return outcome

    def _choose_nodes(self) -> list[int]:
        """Nodes for the pods of the chunk where most is free or could be lifted, less what cannot."""
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

    def _pieces(self) -> Iterator[Piece]:
        """Pieces that are wholly on the chosen nodes and may go, who has least to lose first.

        What they hold on nodes that take no work, and are never chosen, goes with the rest.
        """
        closed = (account.position for account in self._ledger.nodes if not account.node.schedulable)
        chosen = {*self._positions, *closed}
        pieces = {
            id(piece): piece
            for position in self._positions
            for piece in self._selector.candidates.on(position, moves=True)
            if chosen.issuperset(piece.pods_on) and self._policy.may_go(self._workload, piece)
        }
        yield from sorted(pieces.values(), key=self._policy.order(self._workload))

    def _lift(self, piece: Piece) -> bool:
        """Take the piece off the ledger, if the policy and the budgets let it go."""
        if piece.is_gone(self._ledger.evicted) or (piece.is_harmless and piece.is_move):
            return False
        checkpoint = self._ledger.checkpoint()
        if self._selector.evict(self._workload, self._requested, [piece]) is None:
            self._ledger.rollback(checkpoint)
            return False
        return True

    def _put_down_with_fewest_moves(self, items: Sequence[Lifted], places: list[_Place]) -> bool:
        """Place the chunk's pods so that as few as possible of those that are lifted go anywhere else."""
        lifted = [item for item in items if item.piece is not None]
        chunk = tuple(item for item in items if item.piece is None)
        most = min(len(lifted), self._policy.max_moves)
        self._tries = 0
        self._homes = Homes(lifted, self._ledger)
        self._failed.clear()
        self._sets.clear()
        allowed = sorted({*range(min(most, _FEW_MOVES) + 1), most})
        return any(self._put_down(chunk, places, moves) for moves in allowed)

    def _pack_anew(self, items: Sequence[Lifted], places: list[_Place]) -> bool:
        """Place all of them in any way at all, where the fewest moves could not be found in time."""
        nodes = [self._ledger.nodes[position] for position in self._positions]
        packing = Packing(parcels_of(items, nodes, self._may_be_on), spaces_of(items, nodes))
        spots = packing.find()
        self._session.work.spend(packing.state_count * _WORK_OF_STATE)
        if spots is None:
            return False
        checkpoint = self._ledger.checkpoint()
        moves = 0
        for item, (position, devices) in zip(items, spots, strict=True):
            name = nodes[position].node.name
            where = self._session.placer.keep(item.workload, item.pod, Placement(name, devices))
            is_home = item.piece is not None and (name, devices) == (item.pod.node, tuple(item.pod.devices))
            moves += item.piece is not None and not is_home
            is_open = is_home or self._may_have(item, nodes[position], devices)
            if where is None or moves > self._policy.max_moves or not is_open:
                self._ledger.rollback(checkpoint)
                places.clear()
                return False
            self._ledger.place(item.workload, item.pod, where)
            if not is_home:
                places.append((item, where))
        return True

    def _may_be_on(self, item: Lifted, account: NodeAccount) -> bool:
        is_open = item.piece is not None or self._is_open(account.position)
        return is_open and self._session.placer.accepts(account, item.workload, item.pod)

    def _put_down(self, waiting: tuple[Lifted, ...], places: list[_Place], moves: int) -> bool:
        """Place these pods, and those in whose place they come, so many of them at most; all others where they were.

        Backtracks until the bound on steps.
        """
        if self._homes.count_lost() > moves:
            return False
        state = self._state(waiting, places) if self._is_memorized else None
        if self._failed.get(state, -1) >= moves:
            return False
        if self._put_first_down(waiting, places, moves) if waiting else self._make_way(places, moves):
            return True
        if state is not None and self._tries <= self._max_tries:
            self._failed[state] = moves
        return False

    def _state(self, waiting: tuple[Lifted, ...], places: Sequence[_Place]) -> object:
        """What decides whether a way is found from here with so many moves, whichever way led here."""
        first = self._positions_for(waiting[0], places)[:1] if waiting else ()
        nodes = tuple(self._homes.state(position) for position in self._positions)
        return (*first, *map(self._homes.kind_waiting, waiting)), nodes

    def _put_first_down(self, waiting: tuple[Lifted, ...], places: list[_Place], moves: int) -> bool:
        item, *others = waiting
        for where in self._choices(item, places):
            checkpoint = self._ledger.checkpoint()
            self._ledger.place(item.workload, item.pod, where)
            if self._homes.count_lost() > moves:
                # Most places are out of the question at once, which costs less than to go on from there.
                self._tries += 1
                self._ledger.rollback(checkpoint)
                continue
            self._tries += self._tries_of_step
            if self._tries > self._max_tries:
                self._ledger.rollback(checkpoint)
                return False
            places.append((item, where))
            if self._put_down(tuple(others), places, moves):
                return True
            places.pop()
            self._ledger.rollback(checkpoint)
        return False

    def _make_way(self, places: list[_Place], moves: int) -> bool:
        """Put all others down where they were; whoever of them is one too many goes somewhere else first."""
        crowd = self._homes.crowd()
        if not crowd and (misfit := self._put_down_at_home()) is not None:
            crowd = [misfit]
        if not crowd:
            return True
        stays: list[Lifted] = []
        kinds = {id(item): self._homes.kind_of_place(item) for item in crowd} if moves else {}
        tried: set[tuple[object, ...]] = set()
        for item in crowd if moves else ():
            if self._homes.stays(item):
                continue
            self._homes.remove(item)
            if kinds[id(item)] not in tried and self._put_down((item,), places, moves - 1):
                return True
            # One of the crowd has to go. All ways in which this one does, or one like it, were tried: it is another.
            tried.add(kinds[id(item)])
            self._homes.add(item, stays=True)
            stays.append(item)
        for item in stays:
            self._homes.add(item)
        return False

    def _put_down_at_home(self) -> Lifted | None:
        """Put all who stay down where they were; whoever cannot be there, with the ledger as it was."""
        checkpoint = self._ledger.checkpoint()
        for item in self._homes.items():
            where = self._session.placer.stay(item.workload, item.pod)
            if where is None:
                self._ledger.rollback(checkpoint)
                return item
            self._ledger.place(item.workload, item.pod, where)
        return None

    def _choices(self, item: Lifted, places: Sequence[_Place]) -> Iterator[Placement]:
        """Where the pod could be; for one that has to go, places in which few others were come first."""
        placer = self._session.placer
        home = (item.pod.node, frozenset(item.pod.devices)) if item.piece is not None else None
        choices: list[tuple[int, Placement]] = []
        for position in self._positions_for(item, places):
            if item.piece is None and not self._is_open(position):
                continue
            account = self._ledger.nodes[position]
            default = placer.fits_on(account, item.workload, item.pod)
            if default is None:
                continue
            if self._ledger.claims.concern(account.node, item.pod):
                # claims choose their devices
                if item.pod.node != account.node.name or placer.stay(item.workload, item.pod) is None:
                    choices.append((0, Placement(account.node.name, default, promised=True)))
                continue
            # Among many nodes a step is better spent on another node than on other parts of the same GPUs.
            residents = self._homes.on(position) if self._are_few or not item.pod.request.is_shared else {}
            for in_the_way, devices in self._device_sets(account, item.pod.request, default, residents):
                if (account.node.name, frozenset(devices)) == home:
                    continue
                if devices == default or self._may_have(item, account, devices):
                    choices.append((in_the_way, Placement(account.node.name, devices, promised=True)))
        if item.piece is not None:
            choices.sort(key=itemgetter(0))
        return iter([where for _, where in choices])

    def _device_sets(
        self,
        account: NodeAccount,
        request: Request,
        default: tuple[int, ...],
        residents: Mapping[int, tuple[int, ...]],
    ) -> Sequence[tuple[int, tuple[int, ...]]]:
        """`_device_sets`, each with how many are in the way; worked out once for as much free and the same pods."""
        key = (request, default, bool(residents), self._homes.at(account.position))
        known = self._sets.get(key)
        if known is None:
            known = self._sets[key] = [
                (len({other for device in devices for other in residents.get(device, ())}), devices)
                for devices in _device_sets(account, request, default, residents, self._homes.kind)
            ]
        return known

    def _positions_for(self, item: Lifted, places: Sequence[_Place]) -> Sequence[int]:
        """The nodes to look at; of alike pods of the chunk none goes before the one put down last."""
        if not places or not _are_alike(places[-1][0], item):
            return self._positions
        last = self._ledger.by_name[places[-1][1].node].position
        return self._positions[self._positions.index(last) :]

    def _may_have(self, item: Lifted, account: NodeAccount, devices: tuple[int, ...]) -> bool:
        """Whether other devices than those that the placer would take are open to the pod as well."""
        lets = self._session.reservations.lets
        return lets(account, item.workload, item.pod, devices, later=True) and (
            self._session.placer.keep(item.workload, item.pod, Placement(account.node.name, devices))
            is not None
        )

    def _put_back(self, piece: Piece, back: set[str]) -> bool:
        """Spare a piece that would have been evicted, where it fits as it was; its pods are added to `back`.

        Surplus pods are part of their workload's core as well, which comes back with them.
        """
        pods = [pod for pod in piece.pods if pod.id not in back]
        if limiting(self._ledger, piece.workload, chunk_amounts(pods)) is not None:
            return False
        checkpoint = self._ledger.checkpoint()
        for pod in pods:
            where = self._session.placer.stay(piece.workload, pod)
            if where is None:
                self._ledger.rollback(checkpoint)
                return False
            self._ledger.place(piece.workload, pod, where)
        back.update(pod.id for pod in pods)
        return True

    def _carry_out(
        self,
        evicted: list[Piece],
        moved: list[_Place],
        places: list[_Place],
    ) -> Outcome | None:
        """The outcome on the ledger, checked by the policy as a whole."""
        pieces = [*evicted, *(item.piece for item, _ in moved if item.piece is not None)]
        losses = self._selector.evict(self._workload, self._requested, pieces)
        if losses is None:
            return None
        placed: Placed = []
        for item, where in places:
            if item.piece is None:
                self._ledger.place(item.workload, item.pod, where)
                placed.append((item.pod, where))
        if not self._policy.accepts_places(self._session, self._workload, losses, _by_workload(moved)):
            return None
        moves = [(item.pod, where) for item, where in moved]
        return (losses, placed, []) if self._session.meets_constraints([*placed, *moves]) else None


def _are_alike(first: Lifted, second: Lifted) -> bool:
    """Whether they are pods of the chunk that could change places."""
    return (
        first.piece is None
        and second.piece is None
        and first.pod.request == second.pod.request
        and first.pod.constraints == second.pod.constraints
        and first.pod.max_runtime_seconds == second.pod.max_runtime_seconds
    )


def _by_workload(moved: list[_Place]) -> dict[str, Placed]:
    places: dict[str, Placed] = {}
    for item, where in moved:
        places.setdefault(item.workload.id, []).append((item.pod, where))
    return places


def _device_sets(
    account: NodeAccount,
    request: Request,
    default: tuple[int, ...],
    residents: Mapping[int, tuple[int, ...]],
    kind_of: Callable[[int], tuple[int, bool]],
) -> list[tuple[int, ...]]:
    """Sets of devices that differ in what is left of them or in who would have to move, few of these first.

    Devices on which nobody was are alike, so with enough of them there is one set only.
    """
    count = len(default)
    # Several parts are not all alike even where nobody was: three pods of two halves fit on three devices, two by two.
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
