"""The paper's three sections, decisions only: TR-4858 §4.8, §4.9, §4.10."""

import pytest

from tests.planner.builders import Cluster, node, project, workload

SECTION_4_8 = [
    ("a-1-1-jupyter", "team-a", 1000, True),
    ("a-1-g", "team-a", 1000, False),
    ("a-2-gg", "team-a", 2000, False),
    ("b-1-g06", "team-b", 600, True),
    ("b-2-g04", "team-b", 400, True),
    ("b-3-g", "team-b", 1000, False),
    ("b-4-gg", "team-b", 2000, False),
    ("c-1-g05", "team-c", 500, True),
    ("c-2-g03", "team-c", 300, True),
    ("c-3-g02", "team-c", 200, True),
    ("c-4-gg", "team-c", 2000, False),
    ("c-5-g", "team-c", 1000, False),
    ("d-1-gggg", "team-d", 4000, False),
]
SECTION_4_9 = [("d-2-gg", "team-d", 2000, False), ("d-3-gg", "team-d", 2000, False)]
SECTION_4_10 = [
    ("a-3-gg", "team-a", 2000, False),
    ("a-4-gg", "team-a", 2000, False),
    ("b-5-gg", "team-b", 2000, False),
    ("c-6-gg", "team-c", 2000, False),
]


def submit(cluster: Cluster, jobs: list[tuple[str, str, int, bool]], *, one_by_one: bool) -> None:
    for name, team, gpu_milli, interactive in jobs:
        cluster.submit(workload(name, team, gpu_milli, interactive=interactive))
        if one_by_one:
            cluster.settle()
    cluster.settle()


@pytest.fixture
def cluster() -> Cluster:
    quotas = {"team-a": 4000, "team-b": 2000, "team-c": 2000, "team-d": 8000}
    return Cluster([node("dgx1-1"), node("dgx1-2")], [project(name, quota) for name, quota in quotas.items()])


@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_three_sections_end_as_the_paper_says(cluster: Cluster, one_by_one: bool) -> None:
    submit(cluster, SECTION_4_8, one_by_one=one_by_one)
    assert cluster.held() == {"team-a": 4000, "team-b": 4000, "team-c": 4000, "team-d": 4000}
    assert cluster.waiting() == set()
    assert len(cluster.devices_of("b-1-g06") | cluster.devices_of("b-2-g04")) == 1
    assert len(set.union(*(cluster.devices_of(name) for name in ("c-1-g05", "c-2-g03", "c-3-g02")))) == 1

    submit(cluster, SECTION_4_9, one_by_one=one_by_one)
    assert cluster.held() == {"team-a": 4000, "team-b": 2000, "team-c": 2000, "team-d": 8000}
    assert sorted(cluster.evicted) == ["b-4-gg", "c-4-gg"]
    assert cluster.waiting() == {"b-4-gg", "c-4-gg"}

    submit(cluster, SECTION_4_10, one_by_one=one_by_one)
    assert cluster.held() == {"team-a": 4000, "team-b": 2000, "team-c": 2000, "team-d": 8000}
    assert cluster.waiting() == {"b-4-gg", "c-4-gg", "a-3-gg", "a-4-gg", "b-5-gg", "c-6-gg"}

    for name in ("d-1-gggg", "d-2-gg", "d-3-gg"):
        del cluster.workloads[name]
    decision = cluster.settle()
    assert cluster.held() == {"team-a": 8000, "team-b": 4000, "team-c": 4000, "team-d": 0}
    assert cluster.waiting() == {"b-5-gg", "c-6-gg"}
    assert decision.shares_gpu_milli == {"team-a": 8000, "team-b": 4000, "team-c": 4000, "team-d": 0}
    assert len(cluster.evicted) == 2
