"""Selectors of devices: expressions in CEL with the types that Kubernetes adds, quantities and versions.

The library has no custom types. So during an evaluation, a quantity is the map `{"quantity": "billionths"}` and a
version is `{"semver": "1.2.3"}`; equal quantities are equal maps. `expression_cost` bounds an evaluation: an expression
above the bound is not evaluated. The library also stops after 10,000 iterations, and evaluates regular expressions in
linear time.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cel_expr_python import cel
from cel_expr_python.ext.ext_bindings import ExtBindings
from cel_expr_python.ext.ext_optional import ExtOptional
from cel_expr_python.ext.ext_strings import ExtStrings

from orchestrator.devices.expression_cost import Cost, estimate
from orchestrator.devices.expression_tree import Use, decode, uses
from orchestrator.devices.model import Attribute, Device, Features
from orchestrator.devices.quantity import NANO, NotAQuantity, parse_nano
from orchestrator.devices.version import NotAVersion, VersionKey, normalized, version_key

MAX_LENGTH: Final = 10 * 1024
"""Maximum number of characters of an expression; Kubernetes has the same maximum in bytes."""

MAX_MESSAGE: Final = 300
"""Maximum number of characters of an error of the library."""

_MAX_ATTRIBUTE_VALUES: Final = 64
_QUANTITY: Final = "quantity"
_SEMVER: Final = "semver"
_INT64: Final = 1 << 63
_LITERAL: Final = re.compile(r"""(["'])([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)\1""")

_TEXT: Final = cel.Type.STRING
_BOOL: Final = cel.Type.BOOL
_INT: Final = cel.Type.INT
_VALUE: Final = cel.Type.Map(cel.Type.STRING, cel.Type.STRING)
"""The type of quantities and versions."""

_PLAIN: Final = frozenset({"int", "bool", "string"})
_NO_DOMAINS: Final[frozenset[str]] = frozenset()

Value = Mapping[str, str]
Content = tuple[object, ...]
"""The values of the device's properties that an expression reads."""


class SelectorFailed(ValueError):
    """The expression cannot be compiled, or fails on the device."""


class _Compiled(Protocol):
    def eval(self, activation: object) -> Any:
        """Return the value of the expression."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. `domains` are the string literals in it that can be domains of attributes.

    `uses` are the properties of a device that the expression reads, sorted; None if unknown.
    """

    compiled: _Compiled
    domains: frozenset[str]
    cost: Cost
    uses: tuple[Use, ...] | None


class DeviceView:
    """A device as expressions see it.

    `max_list_length` is the number of values in the longest list attribute, `value_count` the number of all values.
    """

    __slots__ = ("_device", "_driver", "_plain", "max_list_length", "value_count")

    def __init__(self, driver: str, device: Device) -> None:
        self._driver = driver
        self._device = device
        self._plain: dict[str, object] | None = None
        lengths = [len(attribute.values) for attribute in device.attributes.values()]
        self.max_list_length = max(lengths, default=1)
        self.value_count = len(device.capacity) + sum(lengths)

    def values(self, features: Features, domains: frozenset[str]) -> dict[str, object]:
        """Return the variable `device` for an evaluation.

        A domain in `domains` for which the device has no values becomes an empty map.
        """
        if domains:
            return self._built(features, domains)
        if self._plain is None:
            self._plain = self._built(features, domains)
        return self._plain

    def _built(self, features: Features, domains: frozenset[str]) -> dict[str, object]:
        device = self._device
        attributes: dict[str, dict[str, object]] = {domain: {} for domain in domains}
        for name, attribute in device.attributes.items():
            domain, own_name = self._split(name)
            attributes.setdefault(domain, {})[own_name] = _attribute_value(name, attribute, features)
        capacity: dict[str, dict[str, object]] = {domain: {} for domain in domains}
        for name, amount in device.capacity.items():
            domain, own_name = self._split(name)
            capacity.setdefault(domain, {})[own_name] = _quantity(amount.value_nano)
        values: dict[str, object] = {
            "driver": self._driver,
            "attributes": attributes,
            "capacity": capacity,
        }
        if features.consumable_capacity:
            values["allowMultipleAllocations"] = device.shareable
        return values

    def _split(self, name: str) -> tuple[str, str]:
        domain, slash, own_name = name.partition("/")
        return (domain, own_name) if slash else (self._driver, name)


class Selectors:
    """Compiles expressions and evaluates them on devices, without a cache."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._environment: Any = cel.NewEnv(
            variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
            extensions=[ExtStrings(), ExtBindings(), ExtOptional()],
            functions=_functions(features),
        )

    def compile(self, expression: str) -> Program:
        """Return the compiled expression. Raises SelectorFailed, also if its evaluation could cost too much."""
        if len(expression) > MAX_LENGTH:
            raise SelectorFailed(f"CEL compile error: longer than {MAX_LENGTH} characters")
        try:
            # The API server has checked the types. The type checker of the library takes exponential time for
            # `cel.bind(a, {1: 1}, cel.bind(b, {a: a}, cel.bind(c, {b: b}, …`.
            compiled = self._environment.compile(expression, disable_check=True)
            tree = decode(compiled.serialize())
            cost, parts = estimate(tree), uses(tree)
        except (RuntimeError, ValueError) as error:
            raise SelectorFailed(_one_line("CEL compile error", error)) from None
        domains = frozenset(match[2] for match in _LITERAL.finditer(expression))
        return Program(compiled, domains, cost, None if parts is None else tuple(sorted(parts)))

    def content(self, program: Program, view: DeviceView) -> Content | None:
        """Return the values that the program reads: equal content gives equal outcomes. None if they are unknown."""
        if program.uses is None:
            return None
        try:
            values = view.values(self._features, _NO_DOMAINS)
        except SelectorFailed:
            return None
        return tuple([_part(values, use) for use in program.uses])

    def evaluate(self, program: Program, view: DeviceView) -> bool:
        """Return whether the expression is true for the device. Raises SelectorFailed."""
        value = self._value(program, view, _NO_DOMAINS)
        result = value.plain_value()
        if result is True or result is False:
            return result
        if program.domains and value.type() == cel.Type.ERROR:
            # In Kubernetes, a domain without values reads as an empty map, although the operator `in` does
            # not find it.
            value = self._value(program, view, program.domains)
            result = value.plain_value()
        if isinstance(result, bool):
            return result
        kind = value.type()
        if kind in (cel.Type.ERROR, cel.Type.UNKNOWN):
            raise SelectorFailed(_one_line("CEL runtime error", result))
        raise SelectorFailed(f"CEL result of type {kind.name()} is not a bool")

    def _value(self, program: Program, view: DeviceView, domains: frozenset[str]) -> Any:
        # The library frees the values of an evaluation together with its activation, so each evaluation needs
        # a new one.
        activation = self._environment.Activation({"device": view.values(self._features, domains)})
        try:
            return program.compiled.eval(activation)
        except (RuntimeError, ValueError, OverflowError, MemoryError) as error:
            raise SelectorFailed(_one_line("CEL runtime error", error)) from None


def _part(values: Mapping[str, Any], use: Use) -> object:
    if len(use) == 1:
        return values.get(use[0])
    kind, domain, name = use
    inside = values.get(kind, {}).get(domain)
    return inside is not None and _hashable(inside.get(name))


def _hashable(value: object) -> object:
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return type(value), value


def _one_line(kind: str, error: object) -> str:
    return f"{kind}: {' '.join(str(error)[:MAX_MESSAGE].split())}"


def _attribute_value(name: str, attribute: Attribute, features: Features) -> object:
    if attribute.kind in _PLAIN and not attribute.is_list:
        return attribute.values[0]
    if not attribute.kind or (attribute.is_list and not features.list_attributes):
        raise SelectorFailed(f"CEL runtime error: attribute {name}: unsupported attribute value")
    values: list[object] = list(attribute.values)
    if attribute.kind == "version":
        values = [_version(str(text)) for text in attribute.values]
    return values if attribute.is_list else values[0]


def _quantity(nano: int) -> Value:
    return {_QUANTITY: str(nano)}


def _version(text: str) -> Value:
    """Return the version as a CEL value, without build metadata, so that equal versions are equal values."""
    try:
        version_key(text)
    except NotAVersion as error:
        raise SelectorFailed(f"CEL runtime error: {error}") from error
    return {_SEMVER: text.partition("+")[0]}


def _nano(value: Any) -> int:
    """Return the billionths of a CEL value. Raises TypeError if it is not a quantity."""
    if not isinstance(value, Mapping) or set(value) != {_QUANTITY}:
        raise TypeError("no such overload")
    return int(_plain(value[_QUANTITY]))


def _plain(value: Any) -> Any:
    return value.plain_value() if hasattr(value, "plain_value") else value


def _key(value: Any) -> VersionKey:
    """Return the sort key of a CEL value. Raises TypeError if it is not a version."""
    if not isinstance(value, Mapping) or set(value) != {_SEMVER}:
        raise TypeError("no such overload")
    return version_key(_plain(value[_SEMVER]))


def _compare(one: Any, other: Any) -> int:
    if isinstance(one, Mapping) and set(one) == {_SEMVER}:
        version, other_version = _key(one), _key(other)
        return (version > other_version) - (version < other_version)
    nano, other_nano = _nano(one), _nano(other)
    return (nano > other_nano) - (nano < other_nano)


def _is_valid(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (NotAQuantity, NotAVersion):
        return False
    return True


def _as_integer(value: Any) -> int:
    nano = _nano(value)
    if not _is_integer(nano):
        raise ValueError("cannot convert value to integer")
    return nano // NANO


def _is_integer(nano: int) -> bool:
    return not nano % NANO and -_INT64 <= nano // NANO < _INT64


def _sign(value: Any) -> int:
    nano = _nano(value)
    return (nano > 0) - (nano < 0)


def _includes(target: Any, value: Any) -> bool:
    target, value = _plain(target), _plain(value)
    if not isinstance(target, list):
        return _equal(target, value)
    if len(target) > _MAX_ATTRIBUTE_VALUES:
        raise ValueError(f"'includes' cannot be applied to lists longer than {_MAX_ATTRIBUTE_VALUES} values")
    return any(_equal(_plain(item), value) for item in target)


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _functions(features: Features) -> list[Any]:
    """Return the functions that Kubernetes adds to CEL for quantities, versions and lists of values."""
    kinds: list[tuple[str, tuple[Any, ...], bool, Any, Callable[..., object]]] = [
        ("quantity", (_TEXT,), False, _VALUE, lambda text: _quantity(parse_nano(text))),
        ("isQuantity", (_TEXT,), False, _BOOL, lambda text: _is_valid(parse_nano, text)),
        ("sign", (_VALUE,), False, _INT, _sign),
        ("asInteger", (_VALUE,), True, _INT, _as_integer),
        ("isInteger", (_VALUE,), True, _BOOL, lambda value: _is_integer(_nano(value))),
        ("asApproximateFloat", (_VALUE,), True, cel.Type.DOUBLE, lambda value: _nano(value) / NANO),
        ("add", (_VALUE, _VALUE), True, _VALUE, lambda one, other: _quantity(_nano(one) + _nano(other))),
        ("add", (_VALUE, _INT), True, _VALUE, lambda one, number: _quantity(_nano(one) + number * NANO)),
        ("sub", (_VALUE, _VALUE), True, _VALUE, lambda one, other: _quantity(_nano(one) - _nano(other))),
        ("sub", (_VALUE, _INT), True, _VALUE, lambda one, number: _quantity(_nano(one) - number * NANO)),
        ("semver", (_TEXT,), False, _VALUE, _version),
        ("semver", (_TEXT, _BOOL), False, _VALUE, lambda text, loose: _version(_maybe_loose(text, loose))),
        ("isSemver", (_TEXT,), False, _BOOL, lambda text: _is_valid(version_key, text)),
        ("isSemver", (_TEXT, _BOOL), False, _BOOL, _is_semver),
        ("major", (_VALUE,), True, _INT, lambda value: _key(value)[0]),
        ("minor", (_VALUE,), True, _INT, lambda value: _key(value)[1]),
        ("patch", (_VALUE,), True, _INT, lambda value: _key(value)[2]),
        ("compareTo", (_VALUE, _VALUE), True, _INT, _compare),
        ("isGreaterThan", (_VALUE, _VALUE), True, _BOOL, lambda one, other: _compare(one, other) > 0),
        ("isLessThan", (_VALUE, _VALUE), True, _BOOL, lambda one, other: _compare(one, other) < 0),
    ]
    if features.list_attributes:
        scalars = (_TEXT, _INT, _BOOL, _VALUE)
        kinds += [
            ("includes", (target, value), True, _BOOL, _includes)
            for target in (cel.Type.LIST, *scalars)
            for value in scalars
        ]
    overloads: dict[str, list[Any]] = {}
    for name, parameters, is_member, result, implementation in kinds:
        same_name = overloads.setdefault(name, [])
        identifier = f"{name}_{len(same_name)}"
        same_name.append(cel.Overload(identifier, result, list(parameters), is_member, implementation))
    return [cel.FunctionDecl(name, same_name) for name, same_name in overloads.items()]


def _maybe_loose(text: str, loose: bool) -> str:
    return normalized(text) if loose else text


def _is_semver(text: str, loose: bool) -> bool:
    return _is_valid(lambda version: version_key(_maybe_loose(version, loose)), text)
