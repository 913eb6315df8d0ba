"""orchestrator.planner.preemption.within_quota: a pod within quota at the beginning of a decision stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from orchestrator.planner import plan
from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import Eviction
from orchestrator.planner.placements import Placement
from orchestrator.planner.preemption.within_quota import WithinQuota
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session
from orchestrator.simulation.reader import load

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.planner.model import Snapshot


def world(tmp_path: Path, nodes: list[int], projects: dict[str, Any], *workloads: dict[str, Any]) -> Snapshot:
    path = tmp_path / "file.yaml"
    listed = [{"name": f"n{number}", "gpus": gpus} for number, gpus in enumerate(nodes)]
    path.write_text(yaml.safe_dump({"nodes": listed, "projects": projects, "workloads": list(workloads)}))
    return load(path)


def job(name: str, project: str, gpus: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "project": project, "gpus": gpus, **fields}


def test_a_pod_is_within_quota_although_a_sibling_is_nominated(tmp_path: Path) -> None:
    snapshot = world(
        tmp_path,
        [2, 2],
        {"a": {"quota": 2}, "b": {"quota": 2}},
        job("low", "b", 2, on="n0", priority=40),
        job("high", "b", 2, priority=60),
    )
    session = Session(ClusterState(snapshot))
    within = WithinQuota(session)
    assert within.pods("b", None) == {"b/low/0"}
    high = session.workload("b/high")
    placed = [(high.pods[0], Placement("n1", (0, 1)))]
    session.ledger.place(high, *placed[0])
    session.seats.place(high, placed, SeatState.NOMINATED)
    assert within.pods("b", None) == {"b/low/0", "b/high/0"}


def test_a_pod_comes_within_quota_when_one_within_quota_is_evicted(tmp_path: Path) -> None:
    snapshot = world(
        tmp_path,
        [4],
        {"b": {"quota": 2}},
        job("old", "b", 2, on="n0", created=1),
        job("young", "b", 2, on="n0", created=2),
    )
    session = Session(ClusterState(snapshot))
    within = WithinQuota(session)
    assert within.pods("b", None) == {"b/old/0"}
    old = session.workload("b/old")
    session.ledger.evict(old, old.pods[0])
    session.seats.evict(Eviction("b/old/0", "b/old", "b/young", "priority", ""))
    assert within.pods("b", None) == {"b/young/0"}


def test_a_candidate_is_firm_if_all_quotas_above_it_cover_it(tmp_path: Path) -> None:
    snapshot = world(
        tmp_path,
        [8],
        {"dept": {"quota": 2}, "b": {"quota": 4, "parent": "dept"}, "a": {"quota": 2}},
        job("old", "b", 2, on="n0", created=1),
        job("young", "b", 2, on="n0", created=2),
        job("no-gpu", "b", 0, cpu=1, on="n0", created=0),
    )
    session = Session(ClusterState(snapshot))
    within = WithinQuota(session)
    firm = {
        name
        for name in ("old", "young", "no-gpu")
        if within.is_firm(Victim(session.workload(f"b/{name}"), session.workload(f"b/{name}").pods))
    }
    assert firm == {"old"}


def test_another_project_gets_a_borrowed_pod_and_not_one_within_quota(tmp_path: Path) -> None:
    snapshot = world(
        tmp_path,
        [2, 2],
        {"a": {"quota": 2}, "b": {"quota": 2}},
        job("within", "b", 2, on="n0", created=1),
        job("borrowed", "b", 2, on="n1", created=2),
        job("want", "a", 2),
    )
    assert [eviction.pod for eviction in plan(snapshot).evictions] == ["b/borrowed/0"]
