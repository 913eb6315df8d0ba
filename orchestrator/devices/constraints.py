"""Conditions on the devices of a claim: common attributes, and different ones."""

from orchestrator.devices.model import Attribute, Constraint, Device, Features, Request

AttributeValues = tuple[str, frozenset[int | bool | str]]
"""The kind of an attribute, and its values: one, or those of a list."""


def attribute_values(driver: str, device: Device, name: str, features: Features) -> AttributeValues | None:
    """Return the attribute with that full name, None if the device has none that can be compared.

    The driver's own attributes need no domain in the device.
    """
    attribute = device.attributes.get(name)
    if attribute is None:
        domain, _, own_name = name.partition("/")
        attribute = device.attributes.get(own_name) if domain == driver else None
    return _values(attribute, features) if attribute is not None else None


def _values(attribute: Attribute, features: Features) -> AttributeValues | None:
    if not attribute.values or (attribute.is_list and not features.list_attributes):
        return None
    return attribute.kind, frozenset(attribute.values)


class ConstraintState:
    """One constraint of one claim, and the values of the devices that were chosen so far."""

    def __init__(self, constraint: Constraint, features: Features) -> None:
        self._constraint = constraint
        self._features = features
        self._chosen: list[AttributeValues] = []

    @property
    def attribute(self) -> str:
        """The compared attribute."""
        return self._constraint.attribute

    def add(self, request: Request, driver: str, device: Device) -> bool:
        """Count the device in and return True, or return False if that would violate the constraint."""
        if not self._constraint.covers(request):
            return True
        values = attribute_values(driver, device, self._constraint.attribute, self._features)
        if values is None:
            return False
        if self._constraint.distinct:
            if any(_overlap(values, chosen) for chosen in self._chosen):
                return False
        elif self._chosen:
            common = self._chosen[-1]
            if not _overlap(values, common):
                return False
            values = values[0], values[1] & common[1]
        self._chosen.append(values)
        return True

    def remove(self, request: Request) -> None:
        """Undo the latest addition of a device for that request."""
        if self._constraint.covers(request):
            self._chosen.pop()


def _overlap(one: AttributeValues, other: AttributeValues) -> bool:
    return one[0] == other[0] and not one[1].isdisjoint(other[1])
