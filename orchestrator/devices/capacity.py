"""The amounts of a device's capacities that a request consumes, by the request policies of the driver."""

from collections.abc import Mapping

from orchestrator.devices.model import Capacity, Device, Request, RequestPolicy
from orchestrator.devices.quantity import NANO, whole


def consumption(request: Request, device: Device) -> Mapping[str, int] | None:
    """Return the amounts (billionths) that the request consumes by capacity; None if the device cannot serve it."""
    requested = dict(request.capacity or ())
    if any(name not in device.capacity for name in requested):
        return None
    amounts: dict[str, int] = {}
    for name, capacity in device.capacity.items():
        nano = _charged(requested.get(name), capacity)
        if capacity.policy is not None and _violates(nano, capacity.policy):
            return None
        amounts[name] = nano
    return amounts


def _charged(requested_nano: int | None, capacity: Capacity) -> int:
    """Return the requested amount, rounded up by the policy."""
    policy = capacity.policy
    if policy is None:
        return capacity.value_nano if requested_nano is None else requested_nano
    if requested_nano is None:
        return capacity.value_nano if policy.default_nano is None else policy.default_nano
    if policy.min_nano is not None:
        return _in_range(requested_nano, policy.min_nano, policy.step_nano or 0)
    return next((nano for nano in policy.values_nano if requested_nano <= nano), requested_nano)


def _in_range(requested_nano: int, min_nano: int, step_nano: int) -> int:
    """Return the least allowed amount that is enough: the minimum plus whole steps. Steps are rounded up to whole
    numbers, as in Kubernetes.
    """
    if requested_nano < min_nano:
        return min_nano
    if not step_nano:
        return requested_nano
    low, step = whole(min_nano), whole(step_nano)
    return (low + step * -(-(whole(requested_nano) - low) // step)) * NANO


def _violates(nano: int, policy: RequestPolicy) -> bool:
    if nano == policy.default_nano:
        return False
    if policy.has_range:
        if policy.max_nano is not None and nano > policy.max_nano:
            return True
        low, step = whole(policy.min_nano or 0), whole(policy.step_nano or 0)
        return step > 0 and (whole(nano) - low) % step != 0
    return bool(policy.values_nano) and nano not in policy.values_nano
