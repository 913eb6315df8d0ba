"""Checks of every value in a snapshot file, by walking its form: amounts, expressions on labels, and names of objects.

The form checks types. A number that is negative or too large, or a name without an object, would change a decision
silently.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from orchestrator.observe.field_checks import INT32, expression, labels, taint, toleration
from orchestrator.simulation import forms
from orchestrator.simulation.extra_fields import camel

Place = tuple[str | int, ...]
Problem = tuple[Place, str]

_INT64: Final = (1 << 63) - 1
_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "priority": (-INT32 - 1, INT32),
    "weight": (-100, 100),  # the weight of a preference; negative for an anti-affinity
    "stale_grace_seconds": (-INT32 - 1, INT32),  # a negative grace period never ends
    "min_member": (1, INT32),
    "max_skew": (1, INT32),
    "min_domains": (1, INT32),
    "port": (1, 65535),
}
"""Minimum and maximum of whole numbers by field name. The minimum of every other field is 0."""
_READ_ELSEWHERE: Final = frozenset({"cpu", "memory", "requests", "allocatable", "gpus", "template", "status"})
"""Fields that the reader checks: quantities and Kubernetes' types. It also checks the pods of nodes and workloads."""
_CHECKS: Final[Mapping[frozenset[str], Callable[[Any, Place], Iterator[Problem]]]] = {
    frozenset({"key", "operator", "values"}): expression,
    frozenset({"key", "operator", "value", "effect"}): toleration,
    frozenset({"key", "value", "effect"}): taint,
}
"""The check of an object with exactly these fields."""


def problems(form: forms.SnapshotForm) -> Iterator[Problem]:
    """Yield the path and the description of each value that is not possible."""
    yield from _values(form, "", ())
    if form.workloads and all(workload.id is None for workload in form.workloads):
        # Only files written by hand are checked for unknown names. A file from a cluster has ids, and may
        # name objects that no longer exist.
        yield from _unknown_names(form)


def _values(value: Any, name: str, place: Place) -> Iterator[Problem]:
    if isinstance(value, msgspec.Struct):
        yield from _fields(value, place)
    elif isinstance(value, dict):
        if name in {"labels", "node_selector"}:
            yield from labels(value, place)
        for key, part in value.items():
            yield from _values(part, name, (*place, key))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _values(part, name, (*place, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        least, most = _BOUNDS.get(name, (0, _INT64))
        if not least <= value <= most:
            yield place, f"{camel(name)}: {_short(value)} is not between {least} and {most}"


def _fields(value: msgspec.Struct, place: Place) -> Iterator[Problem]:
    names = value.__struct_fields__
    check = _CHECKS.get(frozenset(names))
    if check is not None:
        yield from check(msgspec.to_builtins(value), place)
    for name in names:
        part = getattr(value, name)
        is_number_of_pods = name == "pods" and "name" in names and isinstance(part, int)
        if part is not UNSET and name not in _READ_ELSEWHERE and not is_number_of_pods:
            yield from _values(part, name, (*place, camel(name)))


def _short(value: int) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:20]}..."


def _unknown_names(form: Any) -> Iterator[Problem]:
    nodes = {node.name for node in form.nodes}
    workloads = {f"{workload.project}/{workload.name}" for workload in form.workloads}
    rejections = () if form.rejections is UNSET else form.rejections
    for index, rejection in enumerate(rejections):
        place: Place = ("rejections", index)
        if rejection.node not in nodes:
            yield (*place, "node"), f"there is no node `{rejection.node}`"
        if rejection.workload not in workloads:
            yield (*place, "workload"), f"there is no workload `{rejection.workload}`: write PROJECT/NAME"
    for index, name in enumerate(() if form.left_over is UNSET else form.left_over):
        if name not in workloads:
            yield ("leftOver", index), f"there is no workload `{name}`: write PROJECT/NAME"
