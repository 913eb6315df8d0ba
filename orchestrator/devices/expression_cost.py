"""The cost of evaluating an expression on any device, estimated from its syntax tree before the evaluation.

The estimate is an upper bound. It follows the sizes of values through the tree: the length of a string or list, and the
weight of a value including its elements. A loop multiplies the cost of its body by the length of the list. Unknown
names and functions are refused, because their cost is unknown.

Example: `[1, 2, 3].all(a, [1, 2, 3].all(b, a + b > 0))` visits some 160 nodes and costs about 26 µs.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.devices.expression_tree import (
    Call,
    Constant,
    Field,
    Listed,
    Loop,
    Mapped,
    Name,
    Tree,
)

MAX_COST_NS: Final = 10_000_000
"""Maximum cost of one evaluation, 10 ms. A comparison of one attribute costs about 20,000 ns."""

MAX_WEIGHT: Final = 100_000
"""Maximum weight of a value, which is about 3 MB."""

_BASE_NS: Final = 20_000
"""Cost of passing the device to the library."""
_NODE_NS: Final = 100
_COPY_NS: Final = 100
"""Cost of copying one element of a list."""
_LOOK_NS: Final = 40
"""Cost of comparing one unit of weight."""
_CHARACTER_NS: Final = 20
_PYTHON_NS: Final = 10_000
"""Cost of calling a function that is written in Python."""
_CHARACTERS: Final = 16
"""Number of characters of a string that weigh as much as one element."""
_NUMBER_LENGTH: Final = 450
"""Number of characters of the longest number as text: 1e308 with a precision of 100."""

_REPETITION: Final = re.compile(r"\{(\d*),?(\d*)\}")
_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
_WIDE_CLASS: Final = re.compile(r"\[|\.|\\[DSWC]")
_MAX_REPETITIONS: Final = 1000
"""Maximum number of repetitions in a pattern of RE2."""
_PATTERN_NS: Final = 400
"""Cost of compiling one character of a pattern; a character class costs _WIDE_NS, a Unicode class _UNICODE_NS more."""
_WIDE_NS: Final = 5_000
_UNICODE_NS: Final = 2_000_000
_STATE_NS: Final = 4
"""Cost of matching one character of a string with one character of a pattern."""


class Refused(ValueError):
    """The expression must not be evaluated; the message is the reason."""


@dataclass(frozen=True, slots=True)
class _Value:
    """Upper bounds of the size of a value that a node of the syntax tree can have.

    `length` is the number of characters or elements. `count` is the number of elements that a loop visits. `weight` is
    the size of the value with all nested elements. `item` is the largest element of a list or map.
    """

    length: int = 1
    count: int = 1
    weight: int = 1
    item: "_Value | None" = None

    @property
    def element(self) -> "_Value":
        """The largest element; the value itself if it has no elements."""
        return self if self.item is None else self.item


_Cost = tuple[_Value, int]
_Scope = Mapping[str, _Value]

_SCALAR: Final = _Value()


def _text(length: int) -> _Value:
    return _Value(length, 1, 1 + length // _CHARACTERS)


def _listed(count: int, item: _Value) -> _Value:
    return _Value(count, count, 1 + count * item.weight, item)


MAX_LIST: Final = 64
"""Maximum number of values of a list attribute."""

_MAX_NAMES: Final = 32
"""Maximum number of attributes and capacities of a device."""
_DEVICE_WEIGHT: Final = 2_000
_QUANTITY: Final = _Value(1, 1, 16, _text(200))


def _device(list_length: int) -> _Value:
    text = _text(64)
    attribute = _Value(max(64, list_length), list_length, 16 + list_length * text.weight, text)
    domain = _Value(64, _MAX_NAMES, _DEVICE_WEIGHT, attribute)
    return _Value(4, 4, _DEVICE_WEIGHT, _Value(64, _MAX_NAMES, _DEVICE_WEIGHT, domain))


_TYPE_NAMES: Final = dict.fromkeys(
    ("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"), _SCALAR
)
_NAMESPACES: Final = frozenset({"optional", "strings"})


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one evaluation: `min_ns` if each attribute has one value, `max_ns` if each is a list of MAX_LIST."""

    min_ns: int
    max_ns: int

    def on(self, list_length: int) -> int:
        """Return an upper bound, in nanoseconds, for a device whose longest list has this length.

        The cost is convex in the length, so the straight line between both costs is an upper bound.
        """
        more = (self.max_ns - self.min_ns) * (min(max(list_length, 1), MAX_LIST) - 1)
        return self.min_ns + more // (MAX_LIST - 1)


def estimate(tree: Tree) -> Cost:
    """Return upper bounds of the cost of an evaluation. Raises Refused."""
    low, high = (_total(*_visit(tree, {**_TYPE_NAMES, "device": _device(count)})) for count in (1, MAX_LIST))
    return Cost(low, high)


def _total(result: _Value, cost: int) -> int:
    return _BASE_NS + cost + _COPY_NS * result.weight


def _visit(tree: Tree, scope: _Scope) -> _Cost:
    match tree:
        case Constant(text=text):
            value, cost = _SCALAR if text is None else _text(len(text)), 0
        case Name(name=name):
            if name not in scope:
                raise Refused(f"undeclared reference to '{name}'")
            value, cost = scope[name], 0
        case Field(operand=operand, name=name):
            value, cost = _visit(operand, scope)
            value = _text(64) if value is scope["device"] and name == "driver" else value.element
        case Call():
            value, cost = _call(tree, scope)
        case Listed(elements=elements):
            values, cost = _visit_all(elements, scope)
            value = _listed(len(values), _largest(values))
            cost += _COPY_NS * len(values)
        case Mapped(keys=keys, values=entries, message=message):
            if message:
                raise Refused(f"a message of type '{message}' is not supported")
            values, cost = _visit_all((*keys, *entries), scope)
            value = _listed(len(values), _largest(values))
            cost += _COPY_NS * value.weight
        case Loop():
            value, cost = _loop(tree, scope)
    if value.weight > MAX_WEIGHT:
        raise Refused("its values may become too large")
    if cost > MAX_COST_NS:
        raise Refused(
            f"its evaluation on one device may take longer than the maximum of {MAX_COST_NS // 1_000_000} ms"
        )
    return value, cost + _NODE_NS


def _visit_all(trees: Sequence[Tree], scope: _Scope) -> tuple[list[_Value], int]:
    visited = [_visit(tree, scope) for tree in trees]
    return [value for value, _ in visited], sum(cost for _, cost in visited)


def _largest(values: Sequence[_Value]) -> _Value:
    """Return a value that is at least as large as each of these values, including its elements."""
    if not values:
        return _SCALAR
    items = [value.item for value in values if value.item is not None]
    if len(values) == 1:
        return values[0]
    item = _largest(list({id(listed): listed for listed in items}.values())) if items else None
    return _Value(
        max(value.length for value in values),
        max(value.count for value in values),
        max(value.weight for value in values),
        item,
    )


def _loop(loop: Loop, scope: _Scope) -> _Cost:
    over, cost = _visit(loop.over, scope)
    start, start_cost = _visit(loop.start, scope)
    count = over.count
    inside = {**scope, loop.variable: over.element, loop.accumulator: start}
    _, condition_cost = _visit(loop.condition, inside)
    step, step_cost = _visit(loop.step, inside)
    grown = start
    if count and (step.item is not None or start.item is not None):
        # `map` and `filter` copy the whole result list to append one element.
        item = _largest([step.element, start.element])
        grown = _listed(start.count + count * max(0, step.count - start.count), item)
        step_cost += _COPY_NS * grown.length
    result, result_cost = _visit(loop.result, {**scope, loop.accumulator: grown})
    return result, cost + start_cost + count * (condition_cost + step_cost + 4 * _NODE_NS) + result_cost


def _call(call: Call, scope: _Scope) -> _Cost:
    function, arguments = call.function, call.arguments
    if call.is_method and isinstance(arguments[0], Name) and arguments[0].name not in scope:
        name = arguments[0].name
        if name not in _NAMESPACES:
            raise Refused(f"undeclared reference to '{name}'")
        function, arguments = f"{name}.{function}", arguments[1:]
    if function not in _FUNCTIONS:
        raise Refused(f"undeclared reference to '{function}'")
    values, cost = _visit_all(arguments, scope)
    if function == "matches":
        return _SCALAR, cost + _matching(arguments, values)
    if not values:
        return _SCALAR, cost
    value, own_cost = _FUNCTIONS[function](values)
    return value, cost + own_cost


def _matching(arguments: Sequence[Tree], values: Sequence[_Value]) -> int:
    pattern = arguments[-1]
    if not isinstance(pattern, Constant) or pattern.text is None:
        raise Refused("the pattern of 'matches' must be a literal string")
    return _pattern_ns(pattern.text) + values[0].length * (_CHARACTER_NS + _STATE_NS * _size_of(pattern.text))


def _repetitions(pattern: str) -> int:
    product = 1
    for found in _REPETITION.findall(pattern):
        for number in found:
            product *= int(number.lstrip("0")[:4] or 1)
            if product >= _MAX_REPETITIONS:
                return _MAX_REPETITIONS
    return product


def _size_of(pattern: str) -> int:
    return len(pattern) * _repetitions(pattern)


def _pattern_ns(pattern: str) -> int:
    """Return the cost, in nanoseconds, of compiling the pattern. The library compiles it in each evaluation."""
    once = (
        _PATTERN_NS * len(pattern)
        + _WIDE_NS * len(_WIDE_CLASS.findall(pattern))
        + _UNICODE_NS * len(_UNICODE_CLASS.findall(pattern))
    )
    return once * _repetitions(pattern)


def _plus(values: Sequence[_Value]) -> _Cost:
    length = sum(value.length for value in values)
    count = sum(value.count for value in values)
    weight = sum(value.weight for value in values)
    items = [value.item for value in values if value.item is not None]
    item = _largest(items) if items else None
    return _Value(length, count, weight, item), length * (_CHARACTER_NS if item is None else _COPY_NS)


def _scalar(values: Sequence[_Value]) -> _Cost:
    """Return the cost of a function that reads all its arguments and returns a number or a bool."""
    return _SCALAR, sum(_LOOK_NS * value.weight + value.length for value in values)


def _compared(values: Sequence[_Value]) -> _Cost:
    """Return the cost of a comparison of two values. The comparison stops at the end of the smaller value."""
    return _SCALAR, _LOOK_NS * min(value.weight for value in values)


def _search(values: Sequence[_Value]) -> _Cost:
    """Return the cost of a search of one string in another: in the worst case, a comparison at each position."""
    return _SCALAR, values[0].length * (_CHARACTER_NS + values[1].length // 4) if len(values) > 1 else 0


def _either(values: Sequence[_Value]) -> _Cost:
    return _largest(values), 0


def _element(values: Sequence[_Value]) -> _Cost:
    return values[0].element, _LOOK_NS


def _same_text(values: Sequence[_Value]) -> _Cost:
    """Return the cost of a function that returns a text of at most the length of its argument."""
    return values[0], _CHARACTER_NS * values[0].length


def _replaced(values: Sequence[_Value]) -> _Cost:
    text, old, new = (*values, _SCALAR, _SCALAR)[:3]
    length = (text.length + 1) * (new.length + 1)
    return _text(length), _CHARACTER_NS * length + _search([text, old])[1]


def _split(values: Sequence[_Value]) -> _Cost:
    text = values[0]
    return _listed(text.length + 1, _text(text.length)), _COPY_NS * (text.length + 1) + _search(values)[1]


def _joined(values: Sequence[_Value]) -> _Cost:
    separator = values[1].length if len(values) > 1 else 0
    length = values[0].count * (values[0].element.length + separator)
    return _text(length), _CHARACTER_NS * length


def _formatted(values: Sequence[_Value]) -> _Cost:
    written = _NUMBER_LENGTH + 2 * _CHARACTERS * values[-1].weight
    length = values[0].length * written
    return _text(length), _CHARACTER_NS * length


def _quoted(values: Sequence[_Value]) -> _Cost:
    length = 10 * values[0].length + 2
    return _text(length), _CHARACTER_NS * length


def _written(values: Sequence[_Value]) -> _Cost:
    length = max(_NUMBER_LENGTH, values[0].length)
    return _text(length), _CHARACTER_NS * length


def _python(values: Sequence[_Value]) -> _Cost:
    """Return the cost of a function for quantities or versions, or of `includes`: these are written in Python."""
    read = sum(value.length * _CHARACTER_NS + value.weight * 2 * _COPY_NS for value in values)
    return _QUANTITY, _PYTHON_NS + read


_FUNCTIONS: Final[Mapping[str, Callable[[Sequence[_Value]], _Cost]]] = {
    "_+_": _plus,
    "_?_:_": _either,
    **dict.fromkeys(("_[_]", "_[?_]", "_?._"), _element),
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"), _compared),
    **dict.fromkeys(("_&&_", "_||_", "!_", "-_", "_-_", "_*_", "_/_", "_%_", "@not_strictly_false"), _scalar),
    **dict.fromkeys(("bool", "double", "int", "size", "type", "uint", "hasValue", "matches", "@in"), _scalar),
    **dict.fromkeys(("dyn", "value", "or", "orValue", "optional.of", "optional.ofNonZeroValue"), _either),
    "optional.none": _either,
    **dict.fromkeys(("contains", "startsWith", "endsWith", "indexOf", "lastIndexOf"), _search),
    **dict.fromkeys(("charAt", "lowerAscii", "upperAscii", "reverse", "substring", "trim"), _same_text),
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "format": _formatted,
    "strings.quote": _quoted,
    **dict.fromkeys(("bytes", "string"), _written),
    **dict.fromkeys(("quantity", "isQuantity", "sign", "asInteger", "isInteger"), _python),
    **dict.fromkeys(("asApproximateFloat", "add", "sub", "compareTo"), _python),
    **dict.fromkeys(("isGreaterThan", "isLessThan", "semver", "isSemver"), _python),
    **dict.fromkeys(("major", "minor", "patch", "includes"), _python),
}
