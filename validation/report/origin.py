"""Checks whether the events of a log can come from the API server of one cluster: versions, times, uids, names."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from validation.judge.events import (
    ClusterSeen,
    Event,
    GpusSeen,
    NodesDrained,
    NodeSeen,
    OutputSeen,
    PodSeen,
    WatchSeen,
)
from validation.report import log
from validation.report.identity import IS_TOKEN, TOKEN
from validation.report.record import Report

CLOCKS_APART: Final = timedelta(days=1)
"""Maximum difference between the clocks of this machine and of the API server."""
SIMULATED: Final = "planner"
"""The kind of target without an API server. Its events have a simulated clock."""
_CLUSTER: Final = "cluster"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_VERSION: Final = re.compile(r"[1-9]\d{0,17}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_OF_OBJECTS: Final = (NodeSeen, ClusterSeen, PodSeen, GpusSeen, OutputSeen)
"""Events that are made from an object of the API server."""
_CHANGES: Final = frozenset({"listed", "lost", "resumed", "relisted", "absent"})
_WATCHED: Final = frozenset({"nodes", "pods"})


def moment(text: str) -> datetime | None:
    """Return the time of a text such as `2026-11-27T17:29:32Z`; None if the text has another form."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class Origin:
    """The objects of the record's target that were seen so far."""

    def __init__(self, report: Report) -> None:
        self._kind = report.target.get("kind", "")
        self._started = report.volatile.run.started
        self._is_redacted = bool(report.redacted)
        self._cluster = ""
        self._has_objects = False
        self._listed: set[str] = set()
        self._lost: set[str] = set()
        self._versions: dict[tuple[type, str], int] = {}
        """The last version of each object, by kind of event and uid."""
        self._nodes: dict[str, str] = {}
        """The name of each node, by uid."""

    def observed(self, entry: log.Observed) -> Iterator[str]:
        """Yield the reasons why the event cannot come from this target."""
        event = entry.event
        is_object = isinstance(event, _OF_OBJECTS) and self._kind != SIMULATED
        if is_object:
            yield from self._version(entry)
        elif entry.resource_version or entry.server_time:
            yield "it has the version of an object, and is of none"
        match event:
            case ClusterSeen():
                yield from self._cluster_seen(event)
            case WatchSeen():
                yield from self._watch_seen(event)
            case NodeSeen() if is_object:
                self._has_objects = True
                if not event.uid or self._nodes.setdefault(event.uid, event.node) != event.node:
                    yield f"node {event.node} has no uid, or that of another node"
            case PodSeen() if is_object:
                self._has_objects = True
                if not event.uid:
                    yield f"pod {event.pod} has no uid"
        yield from self._uids(event)

    def closed(self) -> Iterator[str]:
        """Yield the missing observations that every run on this target has."""
        if self._has_objects and not self._cluster:
            yield "pods or nodes were seen, and no cluster"
        if self._has_objects and not self._listed >= _WATCHED:
            yield "pods or nodes were seen, and never listed"

    def _cluster_seen(self, event: ClusterSeen) -> Iterator[str]:
        if self._kind == SIMULATED:
            yield "a simulation has no cluster"
        if not event.kube_system_uid or not _DIGEST.fullmatch(event.ca_sha256):
            yield "the cluster has no uid, or its API server no certificate"
        if self._cluster and event.kube_system_uid != self._cluster:
            if self._kind == _CLUSTER:
                yield "it is of another cluster than events before it"
            self._versions.clear()
            self._nodes.clear()
        self._cluster = event.kube_system_uid

    def _watch_seen(self, event: WatchSeen) -> Iterator[str]:
        if self._kind == SIMULATED or event.change not in _CHANGES:
            yield f"{event.kind} cannot be {event.change}"
        if event.change in {"listed", "absent"}:
            if self._kind == _CLUSTER and event.kind in self._listed:
                yield f"{event.kind} is listed for the first time twice"
            self._listed.add(event.kind)
            self._lost.discard(event.kind)
        elif event.kind not in self._listed:
            yield f"{event.kind} is {event.change}, and was not listed"
        if event.change == "lost":
            self._lost.add(event.kind)
        if event.change == "resumed" and event.kind not in self._lost:
            yield f"{event.kind} is resumed, and was not lost"
        if event.change == "resumed":
            self._lost.discard(event.kind)

    def _version(self, entry: log.Observed) -> Iterator[str]:
        """Yield the problem if an object returns to an earlier version, or the API server's time does not match the
        run.
        """
        uid = getattr(entry.event, "uid", "")
        if not _VERSION.fullmatch(entry.resource_version):
            yield f"an object has the version `{entry.resource_version}`, which is none"
            return
        version, key = int(entry.resource_version), (type(entry.event), uid)
        if uid and version < self._versions.get(key, 0):
            yield f"{uid} is of version {version}, after {self._versions[key]}"
        self._versions[key] = version
        changed, started = moment(entry.server_time), moment(self._started)
        if changed is None or started is None:
            yield f"{entry.server_time} is no time"
            return
        is_early = isinstance(entry.event, PodSeen | OutputSeen) and changed < started - CLOCKS_APART
        if is_early or changed > started + timedelta(milliseconds=entry.event.t_ms) + CLOCKS_APART:
            yield f"{uid} was changed at {entry.server_time} in a run of {self._started}"

    def _uids(self, event: Event) -> Iterator[str]:
        """Yield the problem if a redacted record has a uid that is not a token, or another record has a token."""
        uids = [uid for uid in uids_of(event) if uid]
        wrong = next((uid for uid in uids if bool(IS_TOKEN.fullmatch(uid)) != self._is_redacted), "")
        if wrong and (self._is_redacted or wrong.startswith(TOKEN)):
            yield f"{wrong} is {'a uid in a redacted record' if self._is_redacted else 'a token in a record of names'}"


def uids_of(event: Event) -> list[str]:
    """Return the uids and UUIDs of the API server that the event has."""
    match event:
        case ClusterSeen():
            return [event.kube_system_uid]
        case NodeSeen():
            return [event.uid, event.system_uuid]
        case PodSeen() | OutputSeen():
            return [event.uid]
        case NodesDrained():
            return list(event.uids)
        case GpusSeen():
            return [uid for gpu in event.gpus for uid in (gpu.uuid, *gpu.users)]
    return []
