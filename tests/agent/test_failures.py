"""When a GPU must not be used, and when it may be used again."""

import pytest

from orchestrator.agent.failures import PROGRAMS_XIDS, GpuHealth, lasting
from orchestrator.agent.model import XidErrors


def test_a_lost_gpu_has_failed_until_it_has_answered_for_a_minute() -> None:
    health = GpuHealth()
    health.has_answered(0)
    assert health.failure == ""
    health.has_failed("lost")
    assert health.failure == "lost"
    health.has_answered(100)
    health.has_answered(159)
    assert health.failure == "lost"
    health.has_answered(160)
    assert health.failure == ""


def test_a_gpu_that_is_lost_again_and_again_does_not_come_back() -> None:
    health = GpuHealth()
    for now in range(0, 1000, 50):
        health.has_failed("lost")
        health.has_answered(now)
        assert health.failure == "lost"


def test_one_unknown_error_is_no_failure_and_three_in_a_row_are() -> None:
    health = GpuHealth()
    for _ in range(10):
        health.has_failed("no-answer")
        health.has_failed("no-answer")
        health.has_answered(0)
    assert health.failure == ""
    for _ in range(3):
        health.has_failed("no-answer")
    assert health.failure == "no-answer"


@pytest.mark.parametrize("xid", sorted(PROGRAMS_XIDS))
def test_a_fault_of_a_program_is_counted_and_is_no_failure(xid: int) -> None:
    health = GpuHealth()
    health.has_xid(xid, 10.5)
    assert (health.failure, health.xids) == ("", (XidErrors(xid, 1, 10),))


def test_an_xid_of_the_hardware_remains_also_beyond_a_restart_of_the_agent() -> None:
    health = GpuHealth()
    health.has_xid(79, 0)
    health.has_failed("lost")
    assert health.failure == "xid-79"
    for now in range(0, 200, 10):
        health.has_answered(now)
    assert health.failure == "xid-79"
    assert GpuHealth(lasting(health.failure)).failure == "xid-79"
    assert lasting("lost") == ""


def test_rows_that_could_not_be_replaced_are_a_failure_as_long_as_the_gpu_says_so() -> None:
    health = GpuHealth()
    health.has_rows(failed=None)
    assert health.failure == ""
    health.has_rows(failed=True)
    assert health.failure == "row-remap-failed"
    health.has_rows(failed=False)
    assert health.failure == ""


def test_no_driver_makes_more_than_so_many_series_of_xids() -> None:
    health = GpuHealth()
    for xid in range(1000):
        health.has_xid(xid, 2 * xid)
        health.has_xid(xid, 2 * xid + 1)
    assert len(health.xids) == 32
    assert {(errors.count, errors.last_at - 2 * errors.xid) for errors in health.xids} == {(2, 1)}
