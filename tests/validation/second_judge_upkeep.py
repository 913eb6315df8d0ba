"""The part of the second judge for drained nodes and a killed operator. It imports nothing of muster."""

from typing import Any

Json = dict[str, Any]
Job = tuple[str, str]


def on_node(pod: Json) -> bool:
    return bool(pod["node"] and pod["change"] != "deleted" and pod["phase"] not in {"Succeeded", "Failed"})


def replay_upkeep(name: str, events: list[Json], since: int, end: int) -> tuple[list[int], int]:
    """Return the times of violations, and the number of subjects."""
    judged = cordoned(events) if name == "cordoned-node" else promises(events)
    violations = [moment for moment, good in judged if not good]
    subjects = [moment for moment, good in judged if moment >= since]
    return violations, len(subjects) if name == "cordoned-node" else promised_since(events, since)


def cordoned(events: list[Json]) -> list[tuple[int, bool]]:
    """Return the times at which pods were bound while a node was cordoned, and whether the pod is on another node."""
    closed: set[str] = set()
    placed: dict[str, tuple[int, bool]] = {}
    for event in events:
        if event["event"] == "node":
            closed = closed - {event["node"]} | ({event["node"]} if event.get("cordoned") else set())
        elif event["event"] == "nodesOpened":
            closed -= set(event["nodes"])
        elif event["event"] == "pod" and on_node(event) and event["uid"] not in placed:
            placed[event["uid"]] = (event["tMs"] if closed else -1, event["node"] not in closed)
    return [(moment, good) for moment, good in placed.values() if moment >= 0]


def waiting(pods: dict[str, Json]) -> dict[str, str]:
    """Return the nominated node of each pod without a node, by uid."""
    promises = {uid: pod.get("nominatedNode", "") for uid, pod in pods.items() if not pod["node"]}
    return {uid: node for uid, node in promises.items() if node}


def promised_since(events: list[Json], since: int) -> int:
    pods: dict[str, Json] = {}
    count = 0
    for event in events:
        follow(pods, event)
        if event["event"] == "operatorKilled" and event["tMs"] >= since:
            count += len(waiting(pods))
    return count


def follow(pods: dict[str, Json], event: Json) -> None:
    if event["event"] == "pod" and event["change"] == "deleted":
        pods.pop(event["uid"], None)
    elif event["event"] == "pod":
        pods[event["uid"]] = event


def promises(events: list[Json]) -> list[tuple[int, bool]]:
    """Return when each nomination of a killed operator ended and whether rightly, and when a job was evicted again."""
    pods: dict[str, Json] = {}
    deleted: set[Job] = set()
    victims: list[tuple[str, Job]] = []
    owed: dict[str, str] = {}
    evicted_before: set[Job] = set()
    held: set[str] = set()
    announced: set[str] = set()
    judged: list[tuple[int, bool]] = []
    for event in events:
        follow(pods, event)
        if event["event"] == "command":
            jobs = {(event["project"], name) for name in event["workloads"]}
            deleted = deleted - jobs if event["action"] == "submit" else deleted | jobs
            victims, owed, evicted_before = [], {}, set()
        elif event["event"] == "operatorKilled":
            owed, evicted_before = waiting(pods), {job for _, job in victims}
            held = {uid for uid, pod in pods.items() if on_node(pod) and pod["gpuMilli"]}
        elif event["event"] == "pod":
            job, uid, now = (event["project"], event["workload"]), event["uid"], event["tMs"]
            if event["eviction"] and uid not in announced:
                announced.add(uid)
                victims.append((uid, job))
                judged += [(now, False)] if job in evicted_before and uid not in held else []
            if uid in owed and on_node(event):
                judged.append((now, owed.pop(uid) == event["node"]))
            elif uid in owed and event["change"] == "deleted" and job not in deleted:
                owed.pop(uid)
                judged.append((now, False))
    return judged
