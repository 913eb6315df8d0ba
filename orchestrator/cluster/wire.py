"""What every object of the Kubernetes API has in common, as structs; see `objects`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from orchestrator.cluster.resources import Resource  # noqa: TC001  (msgspec evaluates the annotation)


class Wire(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Base of all parts of objects: camelCase on the wire, snake_case here."""


class OwnerReference(Wire, frozen=True):
    """The object that another belongs to; `controller` marks the one that manages it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(Wire, frozen=True):
    """What every object has. Timestamps are RFC 3339 text as the server sent it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    generation: int = 0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if it has one."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Object(Wire, frozen=True):
    """Base of whole objects. `resource` says where the kind lives in the API."""

    resource: ClassVar[Resource]

    metadata: Metadata = Metadata()


class Condition(Wire, frozen=True):
    """One condition of a pod, node, job or project; `status` is True, False or Unknown."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class LabelSelector(Wire, frozen=True):
    """`match_labels` only; nothing that muster reads needs expressions."""

    match_labels: dict[str, str] = {}
