"""What annotations on pods say about which of them belong together: topology, and trees of sub-groups. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from orchestrator.cluster.objects import Pod
from orchestrator.names import (
    COMPLETION_INDEX_ANNOTATION,
    SUB_GROUP_ANNOTATION,
    SUB_GROUPS_ANNOTATION,
    TOPOLOGY_PREFERRED_ANNOTATION,
    TOPOLOGY_REQUIRED_ANNOTATION,
)
from orchestrator.planner import model
from orchestrator.workloads.request import UnreadableRequest


class GroupForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One sub-group in the annotation: a leaf has `size` pods, of which `minimum` must run for the gang to run.

    `minimum` counts children of a group that has them. Default of `minimum`: all of them; of `size`: the minimum, or
    one.
    """

    name: str
    minimum: int | None = None
    size: int | None = None
    children: tuple["GroupForm", ...] = ()
    topology_required: str | None = None
    topology_preferred: str | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    """What pods of one template have in common; `leaves` are the names of the sub-groups with their sizes."""

    topology: model.TopologyRule | None = None
    groups: model.SubGroup | None = None
    leaves: tuple[tuple[str, int], ...] = ()


def grouping(annotations: Mapping[str, str], levels: tuple[str, ...]) -> Grouping:
    """What the annotations of a pod ask for. Raises UnreadableRequest when it cannot be meant."""
    return _grouping(
        annotations.get(TOPOLOGY_REQUIRED_ANNOTATION),
        annotations.get(TOPOLOGY_PREFERRED_ANNOTATION),
        annotations.get(SUB_GROUPS_ANNOTATION),
        levels,
    )


def sub_group(pod: Pod, levels: tuple[str, ...]) -> str:
    """The leaf that the pod belongs to: by its own annotation, or by its index in an indexed Job."""
    annotations = pod.metadata.annotations
    leaves = grouping(annotations, levels).leaves
    if not leaves:
        return ""
    named = annotations.get(SUB_GROUP_ANNOTATION)
    if named is not None:
        if named not in dict(leaves):
            raise _wrong(SUB_GROUP_ANNOTATION, named, f"the sub-groups are {', '.join(dict(leaves))}")
        return named
    text = annotations.get(COMPLETION_INDEX_ANNOTATION, "")
    if not text.isdecimal():
        raise UnreadableRequest(
            f"it does not say in which sub-group it is: annotate it with {SUB_GROUP_ANNOTATION}, "
            "or make its Job Indexed"
        )
    index = int(text)
    for name, size in leaves:
        if index < size:
            return name
        index -= size
    return leaves[-1][0]


@lru_cache(maxsize=4096)
def _grouping(
    required: str | None, preferred: str | None, tree: str | None, levels: tuple[str, ...]
) -> Grouping:
    topology = _topology(
        (TOPOLOGY_REQUIRED_ANNOTATION, required), (TOPOLOGY_PREFERRED_ANNOTATION, preferred), levels
    )
    if tree is None:
        return Grouping(topology)
    try:
        forms = msgspec.json.decode(tree, type=tuple[GroupForm, ...])
    except msgspec.MsgspecError as error:
        raise _wrong(SUB_GROUPS_ANNOTATION, tree, str(error)) from error
    leaves = tuple(each for form in forms for each in _leaves(form))
    names = [name for name, _ in leaves]
    if not names or len(set(names)) < len(names) or not all(names):
        raise _wrong(SUB_GROUPS_ANNOTATION, tree, "every sub-group needs a name of its own")
    return Grouping(
        topology, model.SubGroup("", children=tuple(_group(each, levels) for each in forms)), leaves
    )


def _group(form: GroupForm, levels: tuple[str, ...]) -> model.SubGroup:
    most = len(form.children) if form.children else form.size
    if form.minimum is not None and (form.minimum < 0 or (most is not None and form.minimum > most)):
        raise _wrong(SUB_GROUPS_ANNOTATION, form.name, f"its minimum of {form.minimum} cannot be reached")
    where = f"{SUB_GROUPS_ANNOTATION} for {form.name}"
    return model.SubGroup(
        form.name,
        form.size if form.minimum is None and not form.children else form.minimum,
        tuple(_group(each, levels) for each in form.children),
        _topology((where, form.topology_required), (where, form.topology_preferred), levels),
    )


def _leaves(form: GroupForm) -> Iterator[tuple[str, int]]:
    if not form.children:
        yield form.name, (form.size or form.minimum or 1)
    for child in form.children:
        yield from _leaves(child)


def _topology(
    required: tuple[str, str | None], preferred: tuple[str, str | None], levels: tuple[str, ...]
) -> model.TopologyRule | None:
    if required[1] is None and preferred[1] is None:
        return None
    return model.TopologyRule(levels, _level(*required, levels), _level(*preferred, levels))


def _level(where: str, text: str | None, levels: tuple[str, ...]) -> str | None:
    """The label of a level, which may be named by what stands behind the last slash of it."""
    if text is None:
        return None
    for level in levels:
        if text in (level, level.rpartition("/")[2]):
            return level
    known = ", ".join(levels) or "none, the operator is started without --topology-level"
    raise _wrong(where, text, f"the levels of this cluster are {known}")


def _wrong(annotation: str, text: str, why: str) -> UnreadableRequest:
    return UnreadableRequest(f"its annotation {annotation} is {text!r}: {why}")
