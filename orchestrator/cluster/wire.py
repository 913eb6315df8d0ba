"""Common fields of every object of the Kubernetes API, as structs; see `objects`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from orchestrator.cluster.resources import Resource  # noqa: TC001  (msgspec evaluates the annotation)

if TYPE_CHECKING:
    from collections.abc import Sequence

    Timestamp = str
else:
    Timestamp = str | None
"""RFC 3339 text as the server sent it, "" where there is none.

A timestamp can be absent or null. So a struct with one calls `without_null` when it is created.
"""


def without_null(struct: Wire, field: str) -> None:
    """Replace a timestamp that came as null by the empty text, its declared default."""
    if getattr(struct, field) is None:
        msgspec.structs.force_setattr(struct, field, "")


class Wire(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Base of all parts of objects: camelCase on the wire, snake_case here."""


class OwnerReference(Wire, frozen=True):
    """An owner of an object; `controller` marks the owner that manages the object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(Wire, frozen=True):
    """The metadata of an object. Timestamps are RFC 3339 text of the server."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: Timestamp = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    generation: int = 0

    def __post_init__(self) -> None:
        without_null(self, "creation_timestamp")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if it has one."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Object(Wire, frozen=True):
    """Base of whole objects. `resource` is the kind's place in the API."""

    resource: ClassVar[Resource]

    metadata: Metadata = Metadata()


class Condition(Wire, frozen=True):
    """One condition of a pod, node, job or project; `status` is True, False or Unknown."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: Timestamp = ""

    def __post_init__(self) -> None:
        without_null(self, "last_transition_time")


class LabelSelectorRequirement(Wire, frozen=True):
    """One expression of a label selector: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Wire, frozen=True):
    """A selector. All its parts must match; an empty selector matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


def has_condition(conditions: Sequence[Condition], kind: str, status: str = "True") -> Condition | None:
    """Return the condition of that type if it has that status."""
    return next(
        (condition for condition in conditions if condition.type == kind and condition.status == status), None
    )
