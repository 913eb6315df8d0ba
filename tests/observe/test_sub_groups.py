"""Table of annotations for sub-groups of a gang; an invalid value is refused with the name of its annotation."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.cluster.objects import Pod
from orchestrator.observe.request import UnreadableRequest
from orchestrator.observe.sub_groups import grouping, sub_group
from orchestrator.planner.model import SubGroup, TopologyRule

LEVELS = ("topology.kubernetes.io/zone", "example.com/rack")
ZONE, RACK = LEVELS
TREE = '[{"name": "leader"}, {"name": "workers", "minimum": 2, "size": 3, "topologyRequired": "rack"}]'


def annotated(**annotations: str) -> dict[str, str]:
    return {f"muster.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}


def pod(**annotations: str) -> Pod:
    index = annotations.pop("index", None)
    extra = {} if index is None else {"batch.kubernetes.io/job-completion-index": index}
    return msgspec.convert({"metadata": {"name": "p", "annotations": annotated(**annotations) | extra}}, Pod)


@pytest.mark.parametrize(
    ("annotations", "rule"),
    [
        ({}, None),
        ({"topology_required": "rack"}, TopologyRule(LEVELS, required=RACK)),
        ({"topology_required": RACK}, TopologyRule(LEVELS, required=RACK)),
        (
            {"topology_required": "zone", "topology_preferred": "rack"},
            TopologyRule(LEVELS, required=ZONE, preferred=RACK),
        ),
        ({"topology_preferred": "zone"}, TopologyRule(LEVELS, preferred=ZONE)),
    ],
)
def test_levels_are_named_by_their_label_or_its_last_part(
    annotations: dict[str, str], rule: TopologyRule | None
) -> None:
    assert grouping(annotated(**annotations), LEVELS).topology == rule


def test_a_tree_of_sub_groups_has_minimums_and_topologies() -> None:
    found = grouping(annotated(sub_groups=TREE), LEVELS)
    assert found.groups == SubGroup(
        "",
        children=(SubGroup("leader"), SubGroup("workers", 2, topology=TopologyRule(LEVELS, required=RACK))),
    )
    nested = '[{"name": "a", "minimum": 1, "children": [{"name": "b", "size": 2}, {"name": "c"}]}]'
    assert grouping(annotated(sub_groups=nested), ()).groups == SubGroup(
        "", children=(SubGroup("a", 1, (SubGroup("b", 2), SubGroup("c"))),)
    )


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({}, ""),
        ({"sub_groups": TREE, "sub_group": "workers"}, "workers"),
        ({"sub_groups": TREE, "index": "0"}, "leader"),
        ({"sub_groups": TREE, "index": "1"}, "workers"),
        ({"sub_groups": TREE, "index": "3"}, "workers"),
        ({"sub_groups": TREE, "index": "9"}, "workers"),
    ],
)
def test_a_pod_is_in_a_sub_group_by_name_or_by_its_index(annotations: dict[str, str], name: str) -> None:
    assert sub_group(pod(**annotations), LEVELS) == name


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"topology_required": "row"}, f"the levels of this cluster are {ZONE}, {RACK}"),
        ({"sub_groups": "workers=3"}, "muster.dev/sub-groups"),
        ({"sub_groups": '[{"name": "a", "min": 1}]'}, "unknown field"),
        ({"sub_groups": "[]"}, "a name of its own"),
        ({"sub_groups": '[{"name": "a"}, {"name": "a"}]'}, "a name of its own"),
        ({"sub_groups": '[{"name": "a", "size": 1, "minimum": 2}]'}, "cannot be reached"),
        ({"sub_groups": '[{"name": "a", "topologyRequired": "row"}]'}, "for a is 'row'"),
        ({"sub_groups": TREE, "sub_group": "boss"}, "the sub-groups are leader, workers"),
        ({"sub_groups": TREE}, "does not say in which sub-group"),
    ],
)
def test_impossible_sub_groups_are_refused(annotations: dict[str, str], words: str) -> None:
    with pytest.raises(UnreadableRequest) as caught:
        sub_group(pod(**annotations), LEVELS)
    assert words in str(caught.value)


def test_without_levels_the_answer_names_the_option() -> None:
    with pytest.raises(UnreadableRequest, match="--topology-level"):
        grouping(annotated(topology_required="rack"), ())
