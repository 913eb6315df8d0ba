"""Which devices the selectors of a request accept: asked once for each device, however many claims ask the same."""

from collections.abc import Iterable
from typing import Final

from orchestrator.planner.devices.model import Device, Features, Request, ResourceSlice
from orchestrator.planner.devices.pools import Candidate
from orchestrator.planner.devices.selectors import DeviceView, SelectorFailed, Selectors

MAX_OUTCOMES: Final = 256
"""So many expressions are remembered for each device."""


class Matches:
    """Remembers, for each device, what expressions came to; until the slice that has the device is replaced."""

    def __init__(self, features: Features) -> None:
        self._selectors = Selectors(features)
        self._views: dict[Device, DeviceView] = {}
        self._outcomes: dict[Device, dict[str, bool | SelectorFailed]] = {}
        self.evaluated = 0

    def keep(self, slices: Iterable[ResourceSlice]) -> None:
        """Forget the devices that are in none of these."""
        devices = {device for published in slices for device in published.devices}
        self._views = {device: view for device, view in self._views.items() if device in devices}
        self._outcomes = {
            device: outcomes for device, outcomes in self._outcomes.items() if device in devices
        }

    def accepts(self, candidate: Candidate, expressions: Iterable[str]) -> bool:
        """Return whether all expressions are true for the device. Raises SelectorFailed."""
        outcomes = self._outcomes.get(candidate.device)
        if outcomes is None:
            outcomes = self._outcomes[candidate.device] = {}
        for expression in expressions:
            outcome = outcomes.get(expression)
            if outcome is None:
                if len(outcomes) >= MAX_OUTCOMES:
                    outcomes.clear()
                outcome = outcomes[expression] = self._evaluate(candidate, expression)
            if isinstance(outcome, SelectorFailed):
                raise SelectorFailed(*outcome.args)
            if not outcome:
                return False
        return True

    def _evaluate(self, candidate: Candidate, expression: str) -> bool | SelectorFailed:
        self.evaluated += 1
        view = self._views.get(candidate.device)
        if view is None:
            driver = candidate.device_id[0]
            view = self._views[candidate.device] = DeviceView(driver, candidate.device)
        try:
            return self._selectors.matches(expression, view)
        except SelectorFailed as failure:
            return failure


def tolerates_taints(request: Request, device: Device) -> bool:
    """Whether the request accepts the taints of the device; only those that keep claims away count."""
    return all(
        taint.effect not in {"NoSchedule", "NoExecute"}
        or any(
            toleration.effect in {None, "", taint.effect}
            and toleration.key in {None, "", taint.key}
            and (
                toleration.operator == "Exists"
                or (toleration.operator in {None, "", "Equal"} and (toleration.value or "") == taint.value)
            )
            for toleration in request.tolerations
        )
        for taint in device.taints
    )
