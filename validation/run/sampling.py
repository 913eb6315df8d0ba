"""Reads the pages of the nodes' agents each second, for the time in which the use of GPUs is judged."""

from typing import Final

import msgspec

from orchestrator.progress import Reporter
from validation.judge.check_verdict import Window
from validation.judge.units import spell
from validation.judge.use.use_check import heard_nodes
from validation.report import record
from validation.targets.recorder import Recorder

SAMPLE_MS: Final = 1000
"""Interval of the samples: an agent updates its page once a second."""
SILENCE_MS: Final = 30_000
"""If no agent has answered for this time, the run stops sampling."""


async def sample_gpus(
    recorder: Recorder, result: record.CheckResult, from_event: int, progress: Reporter
) -> None:
    """Sample the GPUs during the warm-up and the window; store the window of the events in `result`.

    If no agent answers, the sampling ends early. Raises TargetError if the cluster can no longer be watched.
    """
    if isinstance(result.utilization, msgspec.UnsetType):
        return
    start = len(recorder.events)
    began_ms = due_ms = recorder.now_ms()
    started_ms = began_ms + result.utilization.warm_up_ms
    ended_ms = started_ms + result.utilization.window_ms
    try:
        while due_ms <= ended_ms:
            await recorder.sample_gpus()
            if recorder.now_ms() - began_ms > SILENCE_MS and not heard_nodes(recorder.events[start:]):
                return
            due_ms = max(due_ms + SAMPLE_MS, recorder.now_ms())
            rest_ms = max(0, ended_ms - recorder.now_ms())
            progress.update(f"{result.id}: the GPUs are sampled, {spell(rest_ms // 1000)} left")
            while recorder.now_ms() < min(due_ms, ended_ms):
                await recorder.changed(min(due_ms, ended_ms) - recorder.now_ms())
    finally:
        now_ms = max(started_ms, min(ended_ms, recorder.now_ms()))
        result.volatile.window = Window(from_event, start, len(recorder.events), started_ms, now_ms)
