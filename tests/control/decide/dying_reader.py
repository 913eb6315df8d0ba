"""The decision loop on an API server, in a process that is killed where it reads an object named `poison…`.

This stands for faults that no exception handler sees: the memory limit of the container, or a fault in a library.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.last_object import LastObject
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.object_guard import ObjectGuard
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.scheduler import SchedulerLoop
from orchestrator.observe import node_reader, project_reader, slice_reader
from orchestrator.observe.volumes import Volumes

if TYPE_CHECKING:
    from collections.abc import Callable

PLACES = ("poison-decoded", "poison-node", "poison-project", "poison-slice", "poison-claim", "poison-bound")


def _die_for(name: str) -> None:
    if name.startswith("poison"):
        os.kill(os.getpid(), signal.SIGKILL)


def _poisoned(owner: Any, name: str) -> None:
    """Replace a function: it then kills the process if its first argument with metadata has a name `poison…`."""
    called: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        _die_for(next(each for each in arguments if hasattr(each, "metadata")).metadata.name)
        return called(*arguments, **options)

    setattr(owner, name, call)


class _Decoder:
    """msgspec's decoder, which kills the process only if a decoded pod contains the name `poison-decoded`."""

    def __init__(self, kind: type[Any]) -> None:
        self._decode = _decoder(kind).decode
        self._kills = kind is Pod

    def decode(self, raw: msgspec.Raw) -> Any:
        if self._kills and b'"poison-decoded"' in bytes(raw):
            os.kill(os.getpid(), signal.SIGKILL)
        return self._decode(raw)


_decoder = msgspec.json.Decoder


def live(url: str, file: str) -> None:
    """Run the decision loop as the leader until the process is killed. `file` gets each object that it reads."""
    for owner, name in (
        (node_reader, "planner_node"),
        (node_reader, "held_on_node"),
        (project_reader, "planner_project"),
        (slice_reader, "read_slice"),
        (Volumes, "note"),
    ):
        _poisoned(owner, name)
    msgspec.json.Decoder = _Decoder  # type: ignore[misc, assignment]
    asyncio.run(_lead(url, Path(file)))


async def _lead(url: str, file: Path) -> None:
    access = Access(
        server=url, namespace="default", context="fake", user="test", ssl=None, token=lambda: None
    )
    async with Transport(access) as transport:
        guard = ObjectGuard(LastObject(file))
        await guard.recall(transport)
        observer = Observer(transport, dra_version="v1", guard=guard)
        async with observer.running():
            await guard.forget_deleted(transport, observer.uids)
            loop = SchedulerLoop(
                transport, observer, on_plan=lambda _reading, _plan: None, is_leader=lambda: True
            )
            await loop.run()
