"""The part of the second judge for limits of projects in time and in nodes. It imports nothing of muster."""

from typing import Any

Json = dict[str, Any]


class Sessions:
    """Interactive pods of projects with a time limit: when each was bound, ran and ended."""

    def __init__(self) -> None:
        self.limit: dict[str, int] = {}
        self.bound: dict[str, int] = {}
        self.ran: dict[str, int] = {}
        self.left: dict[str, int] = {}

    def take(self, event: Json, projects: dict[str, Json]) -> None:
        if event["event"] != "pod" or event["preemptible"] or event["priority"] < 100:
            return
        uid, now = event["uid"], event["tMs"]
        limit = projects.get(event["project"], {}).get("interactiveLimitMs", 0)
        on_node = (
            event["node"] and event["change"] != "deleted" and event["phase"] not in {"Succeeded", "Failed"}
        )
        if uid not in self.limit and on_node and limit:
            self.limit[uid], self.bound[uid] = limit, now
        if uid not in self.limit:
            return
        if event["phase"] == "Running":
            self.ran.setdefault(uid, now)
        if event["terminating"] or not on_node:
            self.left.setdefault(uid, now)

    def was_due(self, uid: str, now: int) -> bool:
        """Return whether the pod ran at least its time, less one second, until it ended, or until `now` if it still
        runs.
        """
        return uid in self.limit and self.left.get(uid, now) - self.bound[uid] >= self.limit[uid] - 1000

    def late(self, end: int) -> list[int]:
        """Return the end times of the pods that ran more than 20 s beyond their limit."""
        until = {uid: self.left.get(uid, end) for uid in self.ran}
        return [moment for uid, moment in until.items() if moment - self.ran[uid] > self.limit[uid] + 20_000]


def may_be_on(pod: Json, projects: dict[str, Json]) -> list[str]:
    """Return the node groups on which a pod may run; empty means all."""
    interactive = not pod["preemptible"] and pod["priority"] >= 100
    project = projects.get(pod["project"], {})
    groups: list[str] = project.get("interactiveNodeTypes" if interactive else "trainNodeTypes", [])
    return groups


def replay_limits(name: str, events: list[Json], since: int, end: int) -> tuple[list[int], int]:
    """Return the times of violations, and the number of subjects."""
    projects: dict[str, Json] = {}
    groups: dict[str, str] = {}
    sessions = Sessions()
    placed: dict[str, tuple[int, bool]] = {}
    for event in events:
        if event["event"] == "project":
            projects[event["project"]] = event
        elif event["event"] == "projectDeleted":
            projects.pop(event["project"], None)
        elif event["event"] == "node":
            groups[event["node"]] = event.get("nodeType", "")
        elif event["event"] == "pod":
            sessions.take(event, projects)
            on_node = event["node"] and event["change"] != "deleted"
            if on_node and event["phase"] not in {"Succeeded", "Failed"} and event["uid"] not in placed:
                may = may_be_on(event, projects)
                placed[event["uid"]] = (event["tMs"] if may else -1, groups.get(event["node"], "") in may)
    if name == "node-affinity":
        limited = [(moment, good) for moment, good in placed.values() if moment >= 0]
        return [moment for moment, good in limited if not good], sum(moment >= since for moment, _ in limited)
    had = [uid for uid in sessions.limit if sessions.was_due(uid, end)]
    return sessions.late(end), sum(sessions.left.get(uid, end) >= since for uid in had)
