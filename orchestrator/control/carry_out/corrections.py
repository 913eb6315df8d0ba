"""Corrects the GPUs on a pod's annotation if the device plugin chose other GPUs than muster at the binding.

Readers of a pod, a person or an acceptance test, then see the kubelet's report.
"""

from collections.abc import Iterable

from orchestrator.cluster.nomination import annotate
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.requests import Requests, Task
from orchestrator.names import GPU_DEVICES_ANNOTATION
from orchestrator.observe.device_reader import Miscounted
from orchestrator.observe.request import devices_text


class Corrections:
    """Each pod is written once; a refused write is started again with the next decision, if it is still needed."""

    def __init__(self, transport: Transport, requests: Requests) -> None:
        self._transport = transport
        self._requests = requests
        self._begun: dict[str, str] = {}
        """By pod uid, the written value, until the watch shows it."""

    def begin(self, pods: Iterable[Miscounted]) -> None:
        """Take all pods whose annotations name other GPUs than they have, and start missing writes."""
        due = {entry.pod.metadata.uid: (entry, devices_text(entry.given)) for entry in pods}
        self._begun = {uid: text for uid, text in self._begun.items() if uid in due and due[uid][1] == text}
        for uid, (entry, text) in due.items():
            if uid not in self._begun:
                self._begun[uid] = text
                self._requests.put(self._task(entry, text))

    def _task(self, entry: Miscounted, text: str) -> Task:
        metadata = entry.pod.metadata

        async def write() -> None:
            await annotate(
                self._transport,
                namespace=metadata.namespace,
                name=metadata.name,
                uid=metadata.uid,
                annotations={GPU_DEVICES_ANNOTATION: text},
            )

        return Task(
            subject=f"write devices [{text}] on {metadata.namespace}/{metadata.name}, as its kubelet gave them",
            call=write,
            is_due=lambda: self._begun.get(metadata.uid) == text,
            refused=lambda: self._forget(metadata.uid),
            urgent=False,
        )

    def _forget(self, uid: str) -> None:
        self._begun.pop(uid, None)
