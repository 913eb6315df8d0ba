"""A double of the recorder: it has a simulated clock, and gives objects versions, times and uids as an API server does.

tests/validation/test_command.py uses the versions and times of a real API server.
"""

from datetime import UTC, datetime, timedelta

import msgspec

from validation.judge.events import ClusterSeen, Event, GpusSeen, NodeSeen, OutputSeen, PodSeen, WatchSeen
from validation.targets.planner import SimulatedRecorder

CLUSTER = ClusterSeen(0, "9f0c6d1e-3f0b-4a55-9d5e-2f6f7d3c1a10", "ab" * 32)


class RecorderDouble(SimulatedRecorder):
    def __init__(self) -> None:
        super().__init__()
        self.began = datetime.now(UTC).replace(microsecond=0)
        self.version = 0
        self.is_watching = False

    def wall_clock(self) -> str:
        return f"{self.began + timedelta(milliseconds=self.clock_ms):%Y-%m-%dT%H:%M:%SZ}"

    def record(self, event: Event, resource_version: str = "", server_time: str = "") -> None:
        if isinstance(event, PodSeen | NodeSeen) and not self.is_watching:
            self.is_watching = True
            for kind in ("nodes", "pods"):
                self.record(WatchSeen(self.now_ms(), kind, "listed", "1"))
            self.record(msgspec.structs.replace(CLUSTER, t_ms=self.now_ms()))
        if isinstance(event, NodeSeen) and not event.uid:
            event = msgspec.structs.replace(event, uid=f"uid-{event.node}")
        if isinstance(event, NodeSeen | PodSeen | ClusterSeen | GpusSeen | OutputSeen):
            self.version += 1
            resource_version, server_time = str(self.version), self.wall_clock()
        super().record(event, resource_version, server_time)
