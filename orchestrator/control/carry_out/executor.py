"""Carries out a plan with concurrent requests, and assumes each outcome until the watch shows it.

The API server may have carried out a request without an answer. Such a request is repeated until there is an answer:
all requests name the pod's uid and are safe to repeat. Until the watch shows the outcome, the pod counts as placed (or
as terminating). So no other pod gets its GPUs while the API server is unreachable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any

from orchestrator.cluster.eviction import evict
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.timeouts import OPERATOR_REQUEST_SECONDS
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.bindings import Bindings, PodBinding
from orchestrator.control.carry_out.claim_grants import ClaimGrants
from orchestrator.control.carry_out.corrections import Corrections
from orchestrator.control.carry_out.memory_limits import MemoryLimits
from orchestrator.control.carry_out.nominations import Nominations
from orchestrator.control.carry_out.requests import Requests, Task
from orchestrator.control.carry_out.reservations import Reservations
from orchestrator.control.carry_out.volume_claims import Claims
from orchestrator.control.operator_config import DEFAULT_CONFIG, OperatorConfig
from orchestrator.names import EVICTION_REASON_ANNOTATION
from orchestrator.observe.device_reader import Miscounted
from orchestrator.observe.grace_periods import grace_seconds
from orchestrator.observe.nominations import bound_annotations, eviction_annotations
from orchestrator.observe.pod_cache import PodCache
from orchestrator.planner.model import Binding, Eviction
from orchestrator.planner.placements import Placement


class Executor:
    """Binds, evicts and nominates in the background. As an async context manager, it cancels running requests at the
    end.

    `pods` assumes the outcome of each request until the watch shows it or the API server refuses it. The callbacks are:

    - `on_refused` after a final refusal, which needs a new decision;
    - `on_evicted` after an eviction;
    - `on_forbidden`, with the API server's message, if a disruption budget forbids an eviction;
    - `on_bound`, with the uid, after an answered binding;
    - `on_failure`, with a kind of failure, after each failed attempt;
    - `on_unready`, with pod, node and reason, if resources of a binding are not ready;
    - `on_denied`, with the pod, the node and the reason of a final refusal by the API server;
    - `on_eviction_denied`, the same for an eviction.

    Before a pod is bound, `claims` prepares its volumes, `grants` allocates its ResourceClaims, and `reservations`
    reserve GPUs of device plugins for its fractions. `limits` adds the limits of GPU memory to the binding. No request
    is sent unless `is_leader()`.
    """

    def __init__(
        self,
        transport: Transport,
        pods: PodCache,
        *,
        is_leader: Callable[[], bool],
        on_refused: Callable[[], None],
        on_evicted: Callable[[Pod, Eviction], None] = lambda _pod, _eviction: None,
        on_forbidden: Callable[[Pod, str], None] = lambda _pod, _why: None,
        on_bound: Callable[[str], None] = lambda _uid: None,
        on_unready: Callable[[Pod, str, str], None] = lambda _pod, _node, _why: None,
        on_denied: Callable[[Pod, str, str], None] = lambda _pod, _node, _why: None,
        on_eviction_denied: Callable[[Pod, str], None] = lambda _pod, _why: None,
        on_failure: Callable[[str], None] = lambda _reason: None,
        claims: Claims | None = None,
        grants: ClaimGrants | None = None,
        limits: MemoryLimits | None = None,
        reservations: Reservations | None = None,
        config: OperatorConfig = DEFAULT_CONFIG,
        request_seconds: float = OPERATOR_REQUEST_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._pods = pods
        self._on_refused = on_refused
        self._on_evicted = on_evicted
        self._on_forbidden = on_forbidden
        self._on_eviction_denied = on_eviction_denied
        self._grants = grants
        self._reservations = reservations
        self._config = config
        self._requests = Requests(
            is_leader=is_leader, request_seconds=request_seconds, sleep=sleep, on_failure=on_failure
        )
        self._nominations = Nominations(transport, pods, self._requests, on_denied)
        self._corrections = Corrections(transport, self._requests)
        self._bindings = Bindings(
            transport,
            pods,
            self._requests,
            is_leader=is_leader,
            on_refused=on_refused,
            on_bound=on_bound,
            on_unready=on_unready,
            on_denied=on_denied,
            claims=claims,
            grants=grants,
            limits=limits,
            reservations=reservations,
        )

    async def __aenter__(self) -> "Executor":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._bindings.cancel()
        await self._requests.close()
        await self._bindings.close()

    def nomination_of(self, pod: Pod) -> Placement | None:
        """Return the nomination of the pod, or of its successor, even if the watch has not shown it yet."""
        return self._nominations.of(pod)

    def is_nominating(self, pod: Pod) -> bool:
        """Return whether this executor wrote the pod's nomination."""
        return self._nominations.is_echo(pod)

    def is_evicting(self, uid: str) -> bool:
        """Return whether the pod's eviction has begun and the watch has not shown it yet."""
        return uid in self._pods.evictions

    @property
    def is_busy(self) -> bool:
        """Whether a request is running or queued."""
        return self._requests.is_busy or self._bindings.is_preparing

    def is_assumed_on(self, uid: str, node: str) -> bool:
        """Return whether this executor is binding the pod to this node, or has bound it and the watch lags behind."""
        placement = self._pods.bindings.get(uid)
        return placement is not None and placement.node == node

    def see(self, change: Change[Any]) -> None:
        """Take a change of the caches."""
        self._nominations.see(change)
        self._bindings.see(change)

    def confirm(self, pods: Mapping[str, Pod]) -> None:
        """Forget the assumptions that the watch shows: bound, terminating and deleted pods, and nominations."""
        self._pods.confirm(pods)
        self._nominations.confirm(pods)
        self._bindings.confirm(pods)

    def begin(
        self,
        evictions: Iterable[Eviction],
        bindings: Iterable[Binding],
        pods: Mapping[str, Pod],
        nominations: Collection[Binding] = (),
        deallocations: Iterable[str] = (),
    ) -> None:
        """Start all requests in the background. If one is refused, `on_refused` requests a new decision.

        `deallocations` are the keys of ResourceClaims whose devices are released.

        `nominations` are all valid nominations; others are removed from the pods. Nominations are written before
        evictions: if the operator ends in between, the next leader reads them and gives the GPUs to the same workload.
        """
        placements = {place.pod: Placement(place.node, place.devices) for place in nominations}
        evicting = [eviction for eviction in evictions if eviction.pod in pods]
        gaining = _gaining(evicting, nominations)
        requests = [
            self._eviction(
                pods[eviction.pod],
                eviction,
                placements.get(eviction.pod),
                gaining.get(eviction.beneficiary, ()),
            )
            for eviction in evicting
        ]
        bound = [self._assume(pods[binding.pod], binding) for binding in bindings if binding.pod in pods]
        urgent = {uid for uids in gaining.values() for uid in uids}
        self._nominations.begin(placements, pods, urgent=urgent, except_for=self._pods.bindings)
        for eviction, request in zip(evicting, requests, strict=True):
            others = gaining.get(eviction.beneficiary, ())
            self._requests.put(request, after=self._nominations.under_way(others))
        for binding in bound:
            self._bindings.start(binding)
        for key in deallocations:
            self._deallocate(key, pods)
        if self._reservations is not None:
            self._reservations.sweep()

    def evict(self, pod: Pod, eviction: Eviction) -> None:
        """Evict one pod in the background, outside of the planner's decisions. Repeated calls have no effect."""
        if not self.is_evicting(pod.metadata.uid):
            self._requests.put(self._eviction(pod, eviction, None))

    def correct(self, pods: Iterable[Miscounted]) -> None:
        """Write the GPUs that the kubelets gave to these pods into their annotations, in the background.

        A pod is corrected only after the watch shows its binding, because a repeated bind request compares the pod's
        annotations with its own.
        """
        self._corrections.begin(entry for entry in pods if entry.pod.metadata.uid not in self._pods.bindings)

    async def idle(self) -> None:
        """Wait until no request is running, except those that wait for volumes."""
        await self._requests.idle()

    def _assume(self, pod: Pod, binding: Binding) -> PodBinding:
        emptied = bound_annotations(pod, self._nominations.of(pod))
        self._pods.forget_nomination(pod.metadata.uid)
        return self._bindings.assume(pod, binding, emptied)

    def _deallocate(self, key: str, pods: Mapping[str, Pod]) -> None:
        def is_waiting(uid: str) -> bool:
            return uid in pods and not pods[uid].spec.node_name and uid not in self._pods.bindings

        call = None if self._grants is None else self._grants.deallocation(key, is_waiting)
        if call is None:
            return
        self._requests.put(
            Task(
                subject=f"take the devices of claim {key} back",
                call=call,
                is_due=lambda: True,
                refused=self._on_refused,
            )
        )

    def _eviction(
        self, pod: Pod, eviction: Eviction, place: Placement | None, gaining: Iterable[str] = ()
    ) -> Task:
        """Return the eviction request. It also writes the successor's nomination, as valid when the request is sent.

        If the API server refused the nomination of one of the pods in `gaining`, the eviction is canceled.
        """
        uid = pod.metadata.uid
        self._pods.evict(uid)
        self._nominations.carry(uid, place)
        written = place

        async def send() -> None:
            nonlocal written
            written = self._nominations.of(pod)
            await evict(
                self._transport,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=uid,
                annotations={EVICTION_REASON_ANNOTATION: eviction.message, **eviction_annotations(written)},
                grace_seconds=grace_seconds(pod, self._config.max_checkpoint_grace_seconds),
            )

        def refused() -> None:
            self._pods.forget_nomination(uid)
            self._pods.forget_eviction(uid)
            self._on_refused()

        def is_due() -> bool:
            if self.is_evicting(uid) and any(map(self._nominations.is_denied, gaining)):
                refused()
            return self.is_evicting(uid)

        return Task(
            subject=f"evict {pod.metadata.namespace}/{pod.metadata.name}: {eviction.message}",
            call=send,
            is_due=is_due,
            refused=refused,
            done=lambda: self._on_evicted(pod, eviction),
            put_off=lambda why: self._on_forbidden(pod, why),
            denied=lambda why: self._on_eviction_denied(pod, why),
            over=lambda: self._nominations.settle(pod, written),
        )


def _gaining(evictions: Collection[Eviction], nominations: Iterable[Binding]) -> dict[str, list[str]]:
    """Return the nominated pods of each preemptor by workload id, except pods that are evicted themselves."""
    beneficiaries = {eviction.beneficiary for eviction in evictions}
    evicted_pods = {eviction.pod for eviction in evictions}
    gaining: dict[str, list[str]] = {}
    for nomination in nominations:
        if nomination.workload in beneficiaries and nomination.pod not in evicted_pods:
            gaining.setdefault(nomination.workload, []).append(nomination.pod)
    return gaining
