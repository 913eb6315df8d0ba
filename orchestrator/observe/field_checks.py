"""The API server's checks of values: numbers, times, addresses, labels and selectors. Pure.

No API server checks the files of a simulation. A value that it would refuse must not affect a decision.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from orchestrator.cluster.quantity import parse_time, shortened
from orchestrator.observe.field_rules import Checked, Place

INT32: Final = (1 << 31) - 1
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY: Final = re.compile(rf"((?P<prefix>{_DOMAIN})/)?(?P<name>{_NAME})")
_VALUE: Final = re.compile(rf"({_NAME})?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

Problems = Iterator[tuple[Place, str]]


def between(least: int, most: int = INT32) -> Checked:
    """Return the rule for a whole number from `least` to `most`."""

    def check(value: Any, place: Place) -> Problems:
        if isinstance(value, int) and not isinstance(value, bool) and not least <= value <= most:
            yield place, f"{place[-1]}: {shortened(str(value))} is not between {least} and {most}"

    return Checked(check)


def _text(is_valid: Callable[[str], bool], kind: str) -> Checked:
    """Return the rule for a text that `is_valid` accepts. Problems name the `kind`."""

    def check(value: Any, place: Place) -> Problems:
        if isinstance(value, str) and not is_valid(value):
            yield place, f"{place[-1]}: {shortened(value)} is no {kind}"

    return Checked(check)


def _is_time(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_label_key(text: str) -> bool:
    """Return whether the text is a key of a label: a name, or a domain, a slash and a name.

    Example: `is_label_key("nvidia.com/gpu")` returns `True`.
    """
    match = _KEY.fullmatch(text)
    return match is not None and len(match["prefix"] or "") <= 253 and len(match["name"]) <= 63


def _is_value(text: str) -> bool:
    return len(text) <= 63 and _VALUE.fullmatch(text) is not None


TIME: Final = _text(_is_time, "RFC 3339 timestamp with a time zone")
ADDRESS: Final = _text(_is_address, "IP address")
LABEL_KEY: Final = _text(is_label_key, "key of a label")


def labels(value: Any, place: Place) -> Problems:
    """Check the keys and values of labels."""
    for key, text in value.items() if isinstance(value, dict) else ():
        if not is_label_key(str(key)):
            yield (*place, key), f"{shortened(str(key))} is no key of a label"
        elif not isinstance(text, str):
            yield (*place, key), f"{key}: the value is no text; write it in quotation marks"
        elif not _is_value(text):
            yield (*place, key), f"{key}: {shortened(text)} is no value of a label"


def namespaces(value: Any, place: Place) -> Problems:
    """Check names of namespaces."""
    for index, name in enumerate(value if isinstance(value, list) else ()):
        if isinstance(name, str) and (len(name) > 63 or not _NAMESPACE.fullmatch(name)):
            yield (*place, index), f"{shortened(name)} is no name of a namespace"


def expression(value: Any, place: Place) -> Problems:
    """Check that an expression of a selector has the values that its operator needs.

    The caller has checked that the operator is known.
    """
    operator, values = value.get("operator"), value.get("values")
    count = len(values) if isinstance(values, list) else 0
    key = value.get("key")
    if isinstance(key, str) and key and not is_label_key(key):
        yield (*place, "key"), f"key: {shortened(key)} is no key of a label"
    if operator in ("In", "NotIn") and not count:
        yield place, f"values is missing: {operator} needs at least one"
    elif operator in ("Exists", "DoesNotExist") and count:
        yield (*place, "values"), f"values: {operator} has none"
    elif operator in ("Gt", "Lt") and (
        count != 1 or not isinstance(values[0], str) or not re.fullmatch(r"[0-9]{1,19}", values[0])
    ):
        yield place, f"values: {operator} needs one whole number"
    elif operator in ("In", "NotIn"):
        for index, text in enumerate(values):
            if isinstance(text, str) and not _is_value(text):
                yield (*place, "values", index), f"values: {shortened(text)} is no value of a label"


def toleration(value: Any, place: Place) -> Problems:
    """Check that key, operator, value and effect of a toleration fit together."""
    key, text, exists = value.get("key"), value.get("value"), value.get("operator") == "Exists"
    if not key and not exists:
        yield place, "operator: a toleration without a key needs Exists"
    if exists and text:
        yield (*place, "value"), "value: Exists has none"
    if value.get("tolerationSeconds") is not None and value.get("effect") != "NoExecute":
        yield place, "tolerationSeconds: it goes with the effect NoExecute"
    yield from _of_taints(key, text, place)


def taint(value: Any, place: Place) -> Problems:
    """Check the key and the value of a taint."""
    if not value.get("key"):
        yield (*place, "key"), "key is empty"
    yield from _of_taints(value.get("key"), value.get("value"), place)


def _of_taints(key: Any, text: Any, place: Place) -> Problems:
    if isinstance(key, str) and key and not is_label_key(key):
        yield (*place, "key"), f"key: {shortened(key)} is no key of a taint"
    if isinstance(text, str) and not _is_value(text):
        yield (*place, "value"), f"value: {shortened(text)} is no value of a taint"


def label_keys(value: Any, place: Place) -> Problems:
    """Check `matchLabelKeys` and `mismatchLabelKeys`: they need a selector, and no key may be listed twice."""
    taken: set[object] = set()
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = value.get(field)
        for index, key in enumerate(keys if isinstance(keys, list) else ()):
            where = (*place, field, index)
            if value.get("labelSelector") is None:
                yield where, f"{field}: it goes with a labelSelector"
            elif isinstance(key, str) and not is_label_key(key):
                yield where, f"{field}: {shortened(key)} is no key of a label"
            elif key in taken:
                yield where, f"{field}: {key} is there twice"
            taken.add(key)


def one_of(value: Any, place: Place) -> Problems:
    """Check that at most one field of the object is set."""
    names = [name for name, part in value.items() if part is not None]
    if len(names) > 1:
        yield (*place, names[1]), f"{names[1]}: {names[0]} is there too, and at most one may be"
