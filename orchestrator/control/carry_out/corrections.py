"""Corrects the annotation of a pod's GPUs if the device plugin has chosen other GPUs than the binding.

So the annotation has the GPUs that the kubelet gave to the pod.
"""

from collections.abc import Iterable

from orchestrator.cluster.nomination import annotate
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.requests import Requests, Task
from orchestrator.names import GPU_DEVICES_ANNOTATION
from orchestrator.observe.device_reader import Miscounted
from orchestrator.observe.request import devices_text


class Corrections:
    """Writes each correction once. After a refused write, the next decision starts it again if it is still needed."""

    def __init__(self, transport: Transport, requests: Requests) -> None:
        self._transport = transport
        self._requests = requests
        self._begun: dict[str, str] = {}
        """The written value by pod uid, until the watch shows it."""

    def begin(self, pods: Iterable[Miscounted]) -> None:
        """Start the missing writes. `pods` must be all pods whose annotations differ from their GPUs."""
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
