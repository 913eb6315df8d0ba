"""`orchestrator.devices.capacity`: the charged amounts."""

import pytest

from orchestrator.devices.capacity import consumption
from orchestrator.devices.model import Capacity, Device, Request, RequestPolicy
from orchestrator.devices.quantity import NANO, parse_nano

MEMORY = RequestPolicy(
    default_nano=parse_nano("32Gi"),
    min_nano=parse_nano("1Mi"),
    max_nano=parse_nano("32Gi"),
    step_nano=parse_nano("1Mi"),
    has_range=True,
)
SHARES = RequestPolicy(default_nano=NANO, values_nano=(NANO, 2 * NANO, 4 * NANO))


def charged(requested: str | None, policy: RequestPolicy | None, value: str = "32Gi") -> int | None:
    device = Device("gpu-0", capacity={"memory": Capacity(parse_nano(value), policy)})
    capacity = None if requested is None else (("memory", parse_nano(requested)),)
    answer = consumption(Request("gpu", "gpu", "gpu", capacity=capacity), device)
    return None if answer is None else answer["memory"]


@pytest.mark.parametrize(
    ("requested", "policy", "expected"),
    [
        (None, None, "32Gi"),
        ("8Gi", None, "8Gi"),
        (None, MEMORY, "32Gi"),
        ("1", MEMORY, "1Mi"),
        ("1G", MEMORY, "954Mi"),
        ("16Gi", MEMORY, "16Gi"),
        ("3", SHARES, "4"),
        (None, SHARES, "1"),
    ],
)
def test_requests_are_rounded_up_to_the_steps_of_the_driver(
    requested: str | None, policy: RequestPolicy | None, expected: str
) -> None:
    assert charged(requested, policy) == parse_nano(expected)


@pytest.mark.parametrize(("requested", "policy"), [("40Gi", MEMORY), ("5", SHARES)])
def test_amounts_that_the_driver_does_not_allow_cannot_be_had(requested: str, policy: RequestPolicy) -> None:
    assert charged(requested, policy) is None


def test_a_capacity_that_the_device_does_not_have_cannot_be_had() -> None:
    assert consumption(Request("gpu", "gpu", "gpu", capacity=(("cores", NANO),)), Device("gpu-0")) is None
