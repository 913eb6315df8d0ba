"""Constraints between the devices of a claim: equal or distinct values of an attribute."""

from orchestrator.devices.model import Attribute, Constraint, Device, Features, Request

AttributeValues = tuple[str, frozenset[int | bool | str]]
"""The kind of an attribute, and its values: one value, or the values of a list."""


def attribute_values(driver: str, device: Device, name: str, features: Features) -> AttributeValues | None:
    """Return the attribute with this full name; None if the device has no such attribute that can be compared.

    Attributes without a domain in the device belong to the driver's domain.
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
    """One constraint of a claim, and the values of the devices that the search has chosen so far."""

    def __init__(self, constraint: Constraint, features: Features) -> None:
        self._constraint = constraint
        self._features = features
        self._chosen: list[AttributeValues] = []

    @property
    def attribute(self) -> str:
        """The full name of the compared attribute."""
        return self._constraint.attribute

    def add(self, request: Request, driver: str, device: Device) -> bool:
        """Add the device and return true. Return false, with no change, if the device violates the constraint."""
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
        """Undo the latest addition of a device for this request."""
        if self._constraint.covers(request):
            self._chosen.pop()


def _overlap(one: AttributeValues, other: AttributeValues) -> bool:
    return one[0] == other[0] and not one[1].isdisjoint(other[1])
