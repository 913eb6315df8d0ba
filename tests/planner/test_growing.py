"""The next pod with which a workload with sub-groups grows, and the first pod that it loses."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.planner.gangs import give_up_chunks, start_chunks
from orchestrator.planner.model import PodState, SubGroup, Workload
from tests.planner.builders import workload


def grown(minima: Mapping[str, int], runs: Mapping[str, int], waits: Mapping[str, int]) -> Workload:
    base = workload("w", "a", 1000, pods=1)
    pods = []
    for counts, state in ((runs, PodState.ALLOCATED), (waits, PodState.PENDING)):
        for group, count in counts.items():
            pods += [
                replace(
                    base.pods[0],
                    id=f"{group}-{state.value}-{index}",
                    name=f"{group}-{state.value}-{index}",
                    sub_group=group,
                    state=state,
                )
                for index in range(count)
            ]
    leaves = tuple(SubGroup(name, minimum) for name, minimum in minima.items())
    return replace(base, pods=tuple(pods), groups=SubGroup("w", None, leaves))


@pytest.mark.parametrize(
    ("minima", "runs", "order"),
    [
        ({"x": 1, "y": 2}, {"x": 1, "y": 2}, "xyyx"),
        ({"x": 1, "y": 4}, {"x": 1, "y": 5}, "xyyy"),
        ({"x": 1, "y": 4}, {"x": 2, "y": 4}, "yyyy"),
        ({"x": 3, "y": 3}, {"x": 4, "y": 3}, "yxyx"),
        ({"x": 0, "y": 1}, {"x": 0, "y": 3}, "yyyy"),
        ({"x": 3, "y": 7}, {"x": 4, "y": 9}, "yxyy"),
    ],
    ids=[
        "equal",
        "the small one is behind",
        "the large one is behind",
        "by turns",
        "optional last",
        "thirds",
    ],
)
def test_the_group_with_the_fewest_running_pods_for_its_need_gets_the_next_pod(
    minima: Mapping[str, int], runs: Mapping[str, int], order: str
) -> None:
    work = grown(minima, runs, dict.fromkeys(minima, 4))
    assert "".join(chunk[0].sub_group for chunk in start_chunks(work))[: len(order)] == order


def test_pods_are_given_up_in_the_order_of_growing_the_other_way_round() -> None:
    work = grown({"x": 1, "y": 4, "z": 0}, {"x": 2, "y": 6, "z": 1}, {})
    *surplus, everything = give_up_chunks(work)
    assert [chunk[0].sub_group for chunk in surplus] == ["z", "y", "y", "x"]
    assert len(everything) == 9
