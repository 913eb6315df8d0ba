"""Random actions on a node with NVIDIA's device plugin, and checks after each of them."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from musterlab.realnodes import images
from orchestrator import names
from orchestrator.agent.errors import KubeletUnreachable
from orchestrator.agent.pod_resources import list_devices
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import LEASES, PODS
from orchestrator.cluster.transport import Transport
from tests.musterlab.parts import Site, part_of

JSON = dict[str, Any]

MAX_PODS: Final = 20
MIN_PODS: Final = 12
"""With fewer pods, none is deleted: the GPUs must be full, so that a deleted pod frees GPUs for pending ones."""
WAITING_VICTIMS: Final = 0.25
"""Portion of the deletions that may delete a pending pod or one that is being bound. The
others delete a pod with GPUs.
"""
ORDINARY: Final = {"part": 40, "whole": 12, "delete": 36}
RESTARTS: Final = ("operator", "agent", "kubelet", "plugin")
_FIRST: Final = ("whole", "part", "settle")
_ENDED: Final = ("Succeeded", "Failed")
_FIELD: Final = f"metadata.annotations['{names.GPU_UUIDS_ANNOTATION}']"
_SETTLE_SECONDS: Final = 90.0


def script(count: int, restarts: Iterable[str], settle: int, seed: int) -> list[str]:
    """Return this many actions, in an order that the seed determines.

    Among them are these restarts of programs, and `settle` waits until the site is at rest. The first two pods get
    whole GPUs and a fraction, because later all GPUs may be in use.
    """
    chance = random.Random(seed)  # noqa: S311 - keeps no secret
    fixed = [*restarts, *["settle"] * settle]
    ordinary = chance.choices(list(ORDINARY), list(ORDINARY.values()), k=count - len(fixed) - len(_FIRST))
    actions = [*ordinary, *fixed]
    chance.shuffle(actions)
    return [*_FIRST, *actions]


@dataclass
class Figures:
    """The counts of a run."""

    actions: Counter[str] = field(default_factory=Counter)
    bound_parts: set[str] = field(default_factory=set)
    bound_whole: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    reservations: set[str] = field(default_factory=set)
    max_shared: int = 0
    looks: int = 0

    def __str__(self) -> str:
        done = ", ".join(f"{count} {name}" for name, count in sorted(self.actions.items()))
        return (
            f"{sum(self.actions.values())} actions ({done}); {self.looks} looks; bound: {len(self.bound_parts)} with "
            f"parts by {len(self.reservations)} reservations, at most {self.max_shared} on one GPU, and "
            f"{len(self.bound_whole)} with whole ones; {len(self.lost)} lost their reservation; {len(self.failed)} "
            f"refused by the kubelet: {dict(Counter(self.failed.values()))}"
        )


class RandomActions:
    """Carries out a script in a project's namespace on a site."""

    def __init__(self, site: Site, namespace: str, seed: int) -> None:
        self._site = site
        self._namespace = namespace
        self._chance = random.Random(seed)  # noqa: S311 - keeps no secret
        self._transport = Transport(load_access(site.lab.kubeconfig))
        self._there: list[str] = []
        self._placed: set[str] = set()
        self._number = 0
        self.figures = Figures()

    async def run(self, actions: Iterable[str]) -> None:
        """Carry out the actions with a check after each, and delete all objects at the end,
        when nothing may be left.
        """
        async with self._transport:
            for action in actions:
                self.figures.actions[action] += 1
                await self._do(action)
                await self._check()
            for name in list(self._there):
                await self._delete(name)
            await self._until_nothing_is_left()

    async def _do(self, action: str) -> None:
        if action in ("part", "whole") and len(self._there) < MAX_PODS:
            await self._submit(is_part=action == "part")
        elif action in ("part", "whole", "delete") and len(self._there) >= MIN_PODS:
            await self._delete(self._victim())
        elif action == "delete":
            await self._submit(is_part=True)
        elif action == "settle":
            await self._settle()
        elif action in ("operator", "agent"):
            self._site.kill(action)
            if action == "operator":
                await self._forget_its_lease()
            self._site.start(action)
        elif action == "kubelet":
            self._site.kill_kubelet()
        elif action == "plugin":
            self._site.gpus.restart_plugin()

    async def _forget_its_lease(self) -> None:
        """Delete the killed operator's lease, so that the next operator need not wait 15 s for its expiry."""
        with suppress(NotFound):
            await self._transport.delete(LEASES.path(names.SYSTEM_NAMESPACE, names.LEASE_NAME))

    async def _submit(self, *, is_part: bool) -> None:
        self._number += 1
        name = f"r{self._number}"
        annotations, limits = {}, {}
        if is_part:
            annotations[names.GPU_FRACTION_ANNOTATION] = self._chance.choice(
                ["0.125", "0.25", "0.5", "0.5", "0.6"]
            )
            annotations[names.GPU_FRACTION_DEVICES_ANNOTATION] = self._chance.choice("1112")
        else:
            limits[names.GPU_RESOURCE] = self._chance.choice("112")
        container = {
            "name": "c",
            "image": images.SHELL,
            "command": ["sleep", "3600"],
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": _FIELD}}}],
            "resources": {"limits": limits},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "restartPolicy": "Never",
                # with 0, the pod is deleted before its containers have ended
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        }
        await self._transport.create(PODS.path(self._namespace), body)
        self._there.append(name)

    def _victim(self) -> str:
        placed = [name for name in self._there if name in self._placed]
        is_any = not placed or self._chance.random() < WAITING_VICTIMS
        return self._chance.choice(self._there if is_any else placed)

    async def _delete(self, name: str) -> None:
        self._there.remove(name)
        try:
            await self._transport.delete(PODS.path(self._namespace, name))
        except NotFound:
            return

    async def _settle(self) -> None:
        """Wait until each pod runs, has a reason for being pending, or has ended."""
        async with asyncio.timeout(_SETTLE_SECONDS):
            while any(map(_is_on_its_way, await self._pods(self._namespace))):  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.2)

    async def _pods(self, namespace: str) -> list[JSON]:
        items: list[JSON] = (await self._transport.get(PODS.path(namespace)))["items"]
        return items

    async def _held(self) -> dict[tuple[str, str], set[str]] | None:
        """Return by namespace and name of pods the UUIDs of their GPUs, from the kubelet; None while it does not
        answer.
        """
        try:
            devices = await list_devices(self._site.socket)
        except KubeletUnreachable:
            return None
        held: dict[tuple[str, str], set[str]] = {}
        for device in devices:
            held.setdefault((device.holder.namespace, device.holder.pod), set()).add(device.device)
        return held

    async def _check(self) -> None:
        """Check that no whole GPU has two owners, and that the fractions of each GPU are at most one."""
        before = {pod["metadata"]["uid"] for pod in await self._pods(self._namespace)}
        reservations = {pod["metadata"]["uid"]: pod for pod in await self._pods(names.SYSTEM_NAMESPACE)}
        held = await self._held()
        pods = [pod for pod in await self._pods(self._namespace) if pod["metadata"]["uid"] in before]
        self.figures.looks += 1
        self._placed = {pod["metadata"]["name"] for pod in pods if _runs(pod)}
        owners = Counter(uuid for uuids in (held or {}).values() for uuid in uuids)
        assert all(count == 1 for count in owners.values()), owners
        promised: Counter[str] = Counter()
        shared: Counter[str] = Counter()
        for pod in pods:
            self._note(pod)
            if not _runs(pod):
                continue
            uuids, part = part_of(pod)
            self._check_reservations(pod, uuids, reservations, held)
            promised.update({uuid: round(part * 1000) for uuid in uuids})
            shared.update(uuids)
        self.figures.max_shared = max(self.figures.max_shared, *shared.values(), 0)
        assert all(milli <= 1000 for milli in promised.values()), promised

    def _note(self, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        if pod["status"]["phase"] == "Failed" and "deletionTimestamp" not in pod["metadata"]:
            self.figures.failed[uid] = pod["status"].get("message", "")
        elif pod["spec"].get("nodeName"):
            is_part = names.GPU_FRACTION_ANNOTATION in pod["metadata"].get("annotations", {})
            (self.figures.bound_parts if is_part else self.figures.bound_whole).add(uid)

    def _check_reservations(
        self,
        pod: JSON,
        uuids: list[str],
        reservations: Mapping[str, JSON],
        held: Mapping[tuple[str, str], set[str]] | None,
    ) -> None:
        """Check that a pod sees exactly the GPUs of its reservations, and that no other pod has them whole."""
        annotations = pod["metadata"].get("annotations", {})
        if names.GPU_FRACTION_ANNOTATION not in annotations:
            return
        uids = annotations[names.GPU_RESERVATIONS_ANNOTATION].split(",")
        assert len(set(uids)) == len(set(uuids)) == len(uids), annotations
        for uid, uuid in zip(uids, uuids, strict=True):
            reservation = reservations.get(uid)
            if reservation is None or not _runs(reservation):
                self.figures.lost.add(pod["metadata"]["uid"])
                continue
            self.figures.reservations.add(uid)
            name = reservation["metadata"]["name"]
            for holder, devices in (held or {}).items():
                if uuid in devices:
                    assert holder == (names.SYSTEM_NAMESPACE, name), (holder, name)

    async def _until_nothing_is_left(self) -> None:
        async with asyncio.timeout(_SETTLE_SECONDS):
            while True:
                labelled = [
                    pod
                    for pod in await self._pods(names.SYSTEM_NAMESPACE)
                    if names.RESERVATION_LABEL in pod["metadata"].get("labels", {})
                ]
                held = await self._held()
                ours = [
                    holder for holder in held or () if holder[0] in (self._namespace, names.SYSTEM_NAMESPACE)
                ]
                if held is not None and not labelled and not ours:
                    return
                await asyncio.sleep(0.2)


def _runs(pod: JSON) -> bool:
    """Return whether the pod is bound, and has neither ended nor is terminating."""
    is_over = pod["status"].get("phase") in _ENDED or "deletionTimestamp" in pod["metadata"]
    return bool(pod["spec"].get("nodeName")) and not is_over


def _is_on_its_way(pod: JSON) -> bool:
    if pod["status"].get("phase") in ("Running", *_ENDED):
        return False
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("PodScheduled") != "False"
