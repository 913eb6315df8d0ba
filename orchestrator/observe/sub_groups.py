"""The annotations of pods for topology and for trees of sub-groups. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import shortened
from orchestrator.names import (
    COMPLETION_INDEX_ANNOTATION,
    SUB_GROUP_ANNOTATION,
    SUB_GROUPS_ANNOTATION,
    TOPOLOGY_PREFERRED_ANNOTATION,
    TOPOLOGY_REQUIRED_ANNOTATION,
)
from orchestrator.observe.unreadable import UnreadableRequest
from orchestrator.planner import model

MAX_DEPTH: Final = 16
"""Maximum depth of a tree. The planner recurses through its levels; clusters have three or four levels of topology."""
MAX_SUB_GROUPS: Final = 256
"""Maximum number of sub-groups of a workload. Each is examined whenever one of its pods starts or ends."""
MAX_TREE_CHARACTERS: Final = 1 << 16
MAX_PODS: Final = 1_000_000
"""Maximum number of pods, more than any cluster runs: Kubernetes is designed for 150,000."""


class GroupForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One sub-group in the annotation. A leaf has `size` pods, of which at least `minimum` must run.

    For a group with children, `minimum` counts the children. The default of `minimum` is all pods or all children. The
    default of `size` is `minimum`, or 1.
    """

    name: str
    minimum: int | None = None
    size: int | None = None
    children: tuple["GroupForm", ...] = ()
    topology_required: str | None = None
    topology_preferred: str | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    """The settings that pods of one template share. `leaves` are the names of the leaf groups with their sizes."""

    topology: model.TopologyRule | None = None
    groups: model.SubGroup | None = None
    leaves: tuple[tuple[str, int], ...] = ()


def grouping(annotations: Mapping[str, str], levels: tuple[str, ...]) -> Grouping:
    """Return the settings in the annotations of a pod. Raises UnreadableRequest if they are invalid."""
    return _grouping(
        annotations.get(TOPOLOGY_REQUIRED_ANNOTATION),
        annotations.get(TOPOLOGY_PREFERRED_ANNOTATION),
        annotations.get(SUB_GROUPS_ANNOTATION),
        levels,
    )


def sub_group(pod: Pod, levels: tuple[str, ...]) -> str:
    """Return the pod's leaf group, from its own annotation or its index in an indexed Job; "" without groups."""
    annotations = pod.metadata.annotations
    leaves = grouping(annotations, levels).leaves
    if not leaves:
        return ""
    group_name = annotations.get(SUB_GROUP_ANNOTATION)
    if group_name is not None:
        if group_name not in dict(leaves):
            known = ", ".join(dict(leaves))[:200]
            raise _wrong(SUB_GROUP_ANNOTATION, group_name, f"the sub-groups are {known}")
        return group_name
    index = whole_number(annotations.get(COMPLETION_INDEX_ANNOTATION, ""))
    if index is None:
        raise UnreadableRequest(
            f"it does not say in which sub-group it is: annotate it with {SUB_GROUP_ANNOTATION}, "
            "or make its Job Indexed"
        )
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
    forms = _forms(tree)
    leaves = tuple(leaf for form in forms for leaf in _leaves(form))
    names = [name for name, _ in leaves]
    if not names or len(set(names)) < len(names) or not all(names):
        raise _wrong(SUB_GROUPS_ANNOTATION, tree, "every sub-group needs a name of its own")
    return Grouping(
        topology, model.SubGroup("", children=tuple(_group(form, levels) for form in forms)), leaves
    )


def _forms(tree: str) -> tuple[GroupForm, ...]:
    """Return the sub-groups in the annotation. Raises UnreadableRequest if it is invalid or exceeds the maxima."""
    if len(tree) > MAX_TREE_CHARACTERS:
        raise _wrong(SUB_GROUPS_ANNOTATION, tree, f"it is longer than {MAX_TREE_CHARACTERS} characters")
    # checked before decoding: the decoder recurses for each bracket, up to a RecursionError
    if _nesting(tree) > 2 * MAX_DEPTH:
        raise _wrong(SUB_GROUPS_ANNOTATION, tree, f"sub-groups may be nested {MAX_DEPTH} deep")
    try:
        forms = msgspec.json.decode(tree, type=tuple[GroupForm, ...])
    except msgspec.MsgspecError as error:
        raise _wrong(SUB_GROUPS_ANNOTATION, tree, str(error)) from error
    everything = [group for form in forms for group in _all(form)]
    if len(everything) > MAX_SUB_GROUPS:
        raise _wrong(
            SUB_GROUPS_ANNOTATION, tree, f"it has {len(everything)} sub-groups, {MAX_SUB_GROUPS} are allowed"
        )
    for form in everything:
        for count in (form.minimum, form.size):
            if count is not None and not 0 <= count <= MAX_PODS:
                raise _wrong(SUB_GROUPS_ANNOTATION, form.name, f"a number of pods is from 0 to {MAX_PODS}")
    return forms


def _nesting(text: str) -> int:
    """Return the nesting depth of brackets. Brackets in strings count too, because no valid string has them.

    Example: `_nesting('[{"a": []}]')` returns `3`.
    """
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _all(form: GroupForm) -> Iterator[GroupForm]:
    yield form
    for child in form.children:
        yield from _all(child)


def _group(form: GroupForm, levels: tuple[str, ...]) -> model.SubGroup:
    most = len(form.children) if form.children else form.size
    if form.minimum is not None and (form.minimum < 0 or (most is not None and form.minimum > most)):
        raise _wrong(SUB_GROUPS_ANNOTATION, form.name, f"its minimum of {form.minimum} cannot be reached")
    where = f"{SUB_GROUPS_ANNOTATION} for {form.name}"
    return model.SubGroup(
        form.name,
        form.size if form.minimum is None and not form.children else form.minimum,
        tuple(_group(child, levels) for child in form.children),
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
    """Return the label of a topology level. The text can be the whole label or the part after its last slash."""
    if text is None:
        return None
    for level in levels:
        if text in (level, level.rpartition("/")[2]):
            return level
    known = ", ".join(levels) or "none, the operator is started without --topology-level"
    raise _wrong(where, text, f"the levels of this cluster are {known}")


def _wrong(annotation: str, text: str, why: str) -> UnreadableRequest:
    return UnreadableRequest(f"its annotation {annotation} is {shortened(text)}: {why}")
