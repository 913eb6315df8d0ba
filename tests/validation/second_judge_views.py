"""The part of the second judge that reads the lists which the orchestrator shows. Imports nothing of muster's."""

import json
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any

Json = dict[str, Any]


def is_shown(name: str, world: Any, output: str) -> bool:
    """Whether the list of this name is that of the state."""
    try:
        rows = json.loads(output)
    except (ValueError, RecursionError):
        return False
    if not isinstance(rows, list) or any(not isinstance(row, dict) for row in rows):
        return False
    return {"jobs": jobs_are, "nodes": nodes_are, "projects": projects_are}[name](world, rows)


def thousandths(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        number = Decimal(value) * 1000
        return number if number == number.to_integral_value() else None
    except (InvalidOperation, ValueError, OverflowError):
        return None


def occupies(pod: Json) -> bool:
    return bool(pod["node"]) and pod["phase"] not in {"Succeeded", "Failed"}


def jobs_are(world: Any, rows: list[Json]) -> bool:
    jobs = {key: pods for key, pods in world.jobs().items() if key[0] in world.quota}
    submitted = {key for key in world.submitted if key[0] in world.quota}
    ours = {*world.quota, *world.gone}
    mine = [row for row in rows if isinstance(row.get("project"), str) and row["project"] in ours]
    shown = Counter((row["project"], str(row.get("name"))) for row in mine)
    if set(shown) != set(jobs) | submitted or any(count > 1 for count in shown.values()):
        return False
    return all(job_is(world, row, jobs.get((row["project"], row["name"]), [])) for row in mine)


def job_is(world: Any, row: Json, pods: list[Json]) -> bool:
    key = (row["project"], row["name"])
    up = [p for p in pods if p["phase"] == "Running" and occupies(p) and not p["terminating"]]
    waits = not any(pod["node"] for pod in pods) and key not in world.deleted
    if pods and len(up) >= pods[0]["minMember"]:
        if row.get("status") != "Running":
            return False
    elif waits and row.get("status") != "Pending":
        return False
    held = [pod for pod in pods if occupies(pod)]
    unfinished = [pod for pod in pods if pod["phase"] not in {"Succeeded", "Failed"}]
    nodes = row.get("nodes")
    instances: Any = row.get("instances")
    where = {
        str(one.get("name")): [str(one.get("node") or ""), str(one.get("gpuDevices") or "")]
        for one in (instances if isinstance(instances, list) else [])
        if isinstance(one, dict)
    }
    seconds = row.get("durationSeconds")
    return (
        thousandths(row.get("gpusAllocated")) == sum(pod["gpuMilli"] for pod in held)
        and thousandths(row.get("gpus")) == sum(pod["gpuMilli"] for pod in unfinished)
        and isinstance(nodes, list)
        and sorted(str(node) for node in nodes) == sorted({pod["node"] for pod in held})
        and (all(pod["preemptible"] for pod in pods) or row.get("type") == "Interactive")
        and isinstance(row.get("user"), str)
        and row["user"] != ""
        and type(seconds) is int
        and seconds >= 0
        and all(
            where.get(pod["pod"]) == [pod["node"], ",".join(str(index) for index in pod["devices"])]
            for pod in pods
        )
    )


def nodes_are(world: Any, rows: list[Json]) -> bool:
    gpus = {name: count for name, count in world.gpus.items() if count}
    shown = [row for row in rows if thousandths(row.get("gpus"))]
    if sorted(str(row.get("name")) for row in shown) != sorted(gpus):
        return False
    return all(
        thousandths(row["gpus"]) == 1000 * gpus[row["name"]]
        and thousandths(row.get("gpusAllocated"))
        == sum(pod["gpuMilli"] for pod in world.holders() if pod["node"] == row["name"])
        for row in shown
    )


def projects_are(world: Any, rows: list[Json]) -> bool:
    by_name = {str(row.get("name")): row for row in rows}
    if len(by_name) != len(rows) or set(world.quota) - set(by_name) or world.gone & set(by_name):
        return False
    for name, quota in world.quota.items():
        spec = by_name[name].get("spec")
        spec = spec if isinstance(spec, dict) else {}
        gpu, affinity = spec.get("gpu"), spec.get("nodeAffinity")
        created = by_name[name].get("created")
        if not isinstance(gpu, dict) or thousandths(gpu.get("quota")) != quota:
            return False
        if not isinstance(created, str) or not created:
            return False
        if not isinstance(affinity, dict) or any(affinity.values()):
            return False
    return True
