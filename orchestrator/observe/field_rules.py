"""Rules for the fields of Kubernetes' types: the scheduler reads, ignores or refuses each field by name. Pure.

A rule for an object names its fields. A field without a rule is not implemented. An unset field (null, empty, 0 or
false) counts as absent. The check of a number applies to 0 too.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from orchestrator.cluster.quantity import shortened, thousandths

Place: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Only:
    """A rule: only these values of the field are implemented."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """The rule for each entry of a list. If `key` is given, no two entries may have the same value of this field."""

    entry: "Rule"
    key: str = ""


@dataclass(frozen=True, slots=True)
class Complete:
    """The rule for an object, its required fields, and a check of the whole object."""

    fields: "Mapping[str, Rule]"
    required: tuple[str, ...] = ()
    whole: Callable[[Any, Place], Iterator[tuple[Place, str]]] | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """A field with its own check, which yields problems in the value with their paths."""

    problems: Callable[[Any, Place], Iterator[tuple[Place, str]]]


@dataclass(frozen=True, slots=True)
class Irrelevant:
    """A field that affects no decision, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that the operator refuses in a cluster, with the reason. In a file it counts as not implemented."""

    reason: str


@dataclass(frozen=True, slots=True)
class Read:
    """A field whose every value is implemented; `observe` reads it."""


Rule: TypeAlias = "Mapping[str, Rule] | Only | Each | Complete | Checked | Irrelevant | Refused | Read"


def problems(value: Any, rule: Rule, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the path and the description of each field or value that is not implemented.

    Values of an unexpected type are not checked here: the decoder refuses them.
    """
    if isinstance(rule, Only):
        if isinstance(value, str) and value not in rule.values:
            yield place, f"{place[-1]}: {shortened(value)} is not implemented: {' or '.join(rule.values)} is"
    elif isinstance(rule, Each):
        seen: set[str] = set()
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield from problems(entry, rule.entry, (*place, index))
            name = entry.get(rule.key) if rule.key and isinstance(entry, dict) else None
            if isinstance(name, str) and name in seen:
                yield (*place, index, rule.key), f"{rule.key}: {shortened(name)} is there twice"
            elif isinstance(name, str):
                seen.add(name)
    elif isinstance(rule, Complete) and isinstance(value, dict):
        yield from ((place, f"{name} is missing") for name in rule.required if value.get(name) in _ABSENT)
        yield from problems(value, rule.fields, place)
        if rule.whole is not None:
            yield from rule.whole(value, place)
    elif isinstance(rule, Checked):
        yield from rule.problems(value, place)
    elif isinstance(rule, Mapping) and isinstance(value, dict):
        yield from _problems_of_fields(value, rule, place)


def _problems_of_fields(
    fields: Mapping[str, Any], rules: Mapping[str, Rule], place: Place
) -> Iterator[tuple[Place, str]]:
    for name, part in fields.items():
        # The number 0 is checked too, because Kubernetes distinguishes 0 from an absent number.
        if name in rules and (part or part == 0):
            yield from problems(part, rules[name], (*place, name))
        elif part:
            yield (*place, name), f"{name} is not implemented"


def is_counted_whole(resource: str) -> bool:
    """Return whether Kubernetes requires whole numbers of the resource: extended resources and hugepages.

    Example: `is_counted_whole("hugepages-2Mi")` returns `True`.
    """
    return "/" in resource or resource.startswith("hugepages-")


def quantities(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Check quantities by resource name: exact, not negative, and whole numbers where `is_counted_whole`."""
    for name, quantity in value.items() if isinstance(value, dict) else ():
        where = (*place, name)
        if not isinstance(quantity, str | int):
            continue
        try:
            amount = thousandths(str(quantity))
        except ValueError as error:
            yield where, f"{name}: {error}"
            continue
        if amount < 0:
            yield where, f"{name}: {shortened(str(quantity))} is negative"
        elif amount % 1000 and is_counted_whole(name):
            yield where, f"{name}: {shortened(str(quantity))} is no whole number of things"


_ABSENT: Final[tuple[Any, ...]] = (None, "", {}, [])
READ: Final = Read()
QUANTITIES: Final = Checked(quantities)
