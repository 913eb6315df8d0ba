"""The figures of processes equal those of the system."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from musterbench.processes import processor_ms


def test_the_processor_time_of_a_process_is_told_finer_than_in_ticks() -> None:
    before = time.process_time_ns() / 1_000_000
    own = processor_ms(os.getpid())
    assert before <= own <= time.process_time_ns() / 1_000_000
    steps = {processor_ms(os.getpid()) - own for _ in range(100)}
    assert len(steps) == 100
    assert min(step for step in steps if step) < 1


def test_another_process_has_a_clock_of_its_own_until_it_has_ended() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(b"runs\n")
        other.stdin.flush()
        other.stdout.readline()  # by now the other process has used the processor
        assert 0 < processor_ms(other.pid) < 1000
        other.kill()
    with pytest.raises(OSError, match="Invalid argument"):
        processor_ms(other.pid)
