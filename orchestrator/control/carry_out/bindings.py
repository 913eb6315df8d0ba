"""Binds each pod after its volumes, ResourceClaims and GPU fractions are ready on the node.

    assume ──> claims allocated ──> shown on the watch ──┐
                                                         ├──> bound
           ──> volumes, devices, reservations ready ─────┘

If the pod is not bound, the resources that were held for it are released at the end.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.cluster.binding import bind
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.claim_grants import ClaimGrants
from orchestrator.control.carry_out.memory_limits import MemoryLimits
from orchestrator.control.carry_out.requests import Requests, Task, keep
from orchestrator.control.carry_out.reservations import Reservations
from orchestrator.control.carry_out.volume_claims import ClaimNotReady, Claims
from orchestrator.observe.gpu_shares import share_annotations
from orchestrator.observe.pod_cache import PodCache, binding_annotations
from orchestrator.observe.request import devices_text
from orchestrator.observe.volumes import claims_of
from orchestrator.planner import model
from orchestrator.planner.placements import Placement

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PodBinding:
    """The binding of one pod, and the resources that are held for the pod until the binding ends.

    `granted` are the keys of the pod's ResourceClaims whose allocation is assumed. `problem` is the reason why the pod
    cannot be bound. The binding waits for `volumes`, `conditions` and `reservations` if they are set.
    """

    pod: Pod
    binding: model.Binding
    annotations: dict[str, str]
    volumes: Claims | None = None
    grants: ClaimGrants | None = None
    conditions: ClaimGrants | None = None
    reservations: Reservations | None = None
    problem: ClaimNotReady | None = None
    granted: tuple[str, ...] = ()
    is_bound: bool = False

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.pod.metadata.uid

    @property
    def path(self) -> str:
        """The namespace and the name of the pod."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


class Bindings:
    """Binds through `requests`, and assumes each binding in `pods` until the watch shows it.

    `claims` prepares volumes, `grants` allocates ResourceClaims, `limits` limits the GPU memory of fractions, and
    `reservations` hold GPUs of device plugins for GPU fractions. If one of these is not ready, `on_unready` receives
    the pod, the node and the reason. The other callbacks are those of `Executor`.
    """

    def __init__(
        self,
        transport: Transport,
        pods: PodCache,
        requests: Requests,
        *,
        is_leader: Callable[[], bool],
        on_refused: Callable[[], None],
        on_bound: Callable[[str], None],
        on_unready: Callable[[Pod, str, str], None],
        on_denied: Callable[[Pod, str, str], None],
        claims: Claims | None,
        grants: ClaimGrants | None,
        limits: MemoryLimits | None,
        reservations: Reservations | None,
    ) -> None:
        self._transport = transport
        self._pods = pods
        self._requests = requests
        self._is_leader = is_leader
        self._on_refused = on_refused
        self._on_bound = on_bound
        self._on_unready = on_unready
        self._on_denied = on_denied
        self._claims = claims
        self._grants = grants
        self._limits = limits
        self._reservations = reservations
        self._preparing: set[asyncio.Task[None]] = set()

    async def cancel(self) -> None:
        """Cancel all bindings that wait for their resources."""
        running = list(self._preparing)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def close(self) -> None:
        """Cancel the requests for reservations."""
        if self._reservations is not None:
            await self._reservations.close()

    @property
    def is_preparing(self) -> bool:
        """Whether a binding waits for its resources or releases them."""
        return bool(self._preparing)

    def see(self, change: Change[Any]) -> None:
        """Pass a change of the caches on to the grants and the reservations."""
        if self._grants is not None:
            self._grants.see(change)
        if self._reservations is not None:
            self._reservations.see(change)

    def confirm(self, pods: Mapping[str, Pod]) -> None:
        """Forget the allocations that the watch shows, and correct assumed bindings whose devices changed."""
        if self._grants is not None:
            self._grants.confirm(pods)
        if self._reservations is None:
            return
        being_bound = {uid: (pods[uid], placement) for uid, placement in self._pods.bindings.items()}
        for uid, placement in self._reservations.confirm(being_bound).items():
            if placement != self._pods.bindings[uid]:
                self._pods.bind(uid, placement)

    def assume(self, pod: Pod, binding: model.Binding, annotations: Mapping[str, str]) -> PodBinding:
        """Assume the binding, and hold the pod's resources until the binding that `start` sends has ended.

        `annotations` are written in addition to those that every binding writes.
        """
        self._pods.bind(pod.metadata.uid, Placement(binding.node, binding.devices))
        one = PodBinding(pod, binding, {**annotations, **binding_annotations(pod, binding.devices)})
        try:
            one.annotations |= self._limits_of(pod, binding)
            if self._reservations is not None and self._reservations.begin(pod, binding):
                one.reservations = self._reservations
        except ClaimNotReady as error:
            one.problem = error
        if pod.spec.volumes and claims_of(pod):
            one.volumes = self._claims
        if self._grants is not None and self._grants.concern(pod, binding):
            one.grants = self._grants
            one.granted = self._grants.begin(pod, binding)
            one.conditions = self._grants if self._grants.has_conditions(pod, binding) else None
        return one

    def start(self, one: PodBinding) -> None:
        """Send the requests of a binding when its resources are ready."""
        task = self._task(one)
        first = task if one.grants is None else self._granting(one, one.grants, task)
        if any((one.problem, one.volumes, one.conditions, one.reservations)):
            keep(self._preparing, self._prepare(one, first))
        else:
            self._requests.put(first)

    def _task(self, one: PodBinding) -> Task:
        devices = devices_text(one.binding.devices)
        return Task(
            subject=f"bind {one.path} to {one.binding.node} devices [{devices}]",
            call=lambda: self._send(one),
            is_due=lambda: self._is_wanted(one),
            refused=lambda: self._refused(one),
            done=lambda: self._on_bound(one.uid),
            put_off=lambda why: self._on_unready(one.pod, one.binding.node, why),
            denied=lambda why: self._on_denied(one.pod, one.binding.node, why),
            over=lambda: self._over(one),
        )

    async def _send(self, one: PodBinding) -> None:
        if one.grants is not None:
            await one.grants.give_way(one.pod, one.binding)
        await bind(
            self._transport,
            namespace=one.pod.metadata.namespace,
            name=one.pod.metadata.name,
            uid=one.uid,
            node=one.binding.node,
            annotations=one.annotations,
        )
        one.is_bound = True

    def _is_wanted(self, one: PodBinding) -> bool:
        return one.uid in self._pods.bindings

    def _refused(self, one: PodBinding) -> None:
        self._pods.forget_binding(one.uid)
        self._on_refused()
        self._over(one)

    def _over(self, one: PodBinding) -> None:
        """Release the resources that are held for the pod. Further calls have no effect."""
        keys, one.granted = one.granted, ()
        if one.grants is not None and keys:
            keep(self._preparing, one.grants.end(keys, is_bound=one.is_bound))
        if one.reservations is not None and not one.is_bound:
            one.reservations.end(one.uid)

    def _granting(self, one: PodBinding, grants: ClaimGrants, bind_task: Task) -> Task:
        """Return the request that allocates the pod's ResourceClaims. After the watch shows the allocation, the bind
        request is sent.

        The wait is not part of a request, because a request must not take longer than the lease allows.
        """
        is_written = False

        async def bind_later() -> None:
            await grants.wait_until_shown(one.pod, one.binding)
            self._requests.put(bind_task)

        def written() -> None:
            nonlocal is_written
            is_written = True
            keep(self._preparing, bind_later())

        return replace(
            bind_task,
            subject=f"allocate the claims of {one.path} on {one.binding.node}",
            call=lambda: grants.write(one.pod, one.binding),
            done=written,
            over=lambda: None if is_written else bind_task.over(),
        )

    async def _prepare(self, one: PodBinding, task: Task) -> None:
        """Send the task when the pod's resources are ready. If they do not become ready, put the pod off."""
        try:
            await self._wait_for(one)
            if one.reservations is not None:
                one.annotations |= await self._reserve(one, one.reservations)
        except ClaimNotReady as error:
            logger.info("%s: not begun: %s", task.subject, error)
            task.refused()
            task.put_off(str(error))
        else:
            self._requests.put(task)

    async def _wait_for(self, one: PodBinding) -> None:
        """Wait until volumes and the devices of ResourceClaims are ready. Raises ClaimNotReady."""
        if one.problem is not None:
            raise one.problem
        if one.volumes is not None:
            await one.volumes.ready(one.pod, one.binding.node, lambda: self._is_wanted(one))
        if one.conditions is not None:
            await one.conditions.wait_for_conditions(
                one.pod, one.binding, lambda: self._is_wanted(one) and self._is_leader()
            )
            if not self._is_leader():
                raise ClaimNotReady("another replica decides by now")

    async def _reserve(self, one: PodBinding, reservations: Reservations) -> dict[str, str]:
        """Wait for the reservations of the pod's GPUs, and return the annotations for them.

        If the kubelet gave the reservations other GPUs than the decision chose, the binding gets these GPUs.
        """
        node = one.binding.node
        shares = await reservations.ready(one.pod, node, lambda: self._is_wanted(one))
        if not shares:
            return {}
        devices = tuple(sorted(share.index for share in shares))
        if self._is_wanted(one):
            self._pods.bind(one.uid, Placement(node, devices))
        limits = self._limits_of(one.pod, replace(one.binding, devices=devices))
        return share_annotations(shares) | limits

    def _limits_of(self, pod: Pod, binding: model.Binding) -> dict[str, str]:
        """Return the annotations with the pod's limits of GPU memory. Raises MemoryUnknown."""
        return {} if self._limits is None else self._limits.annotations(pod, binding)
