"""The syntax tree of a CEL expression, decoded from the library's serialized form of a parsed expression.

The bytes are a `google.protobuf.Any` with a `cel.expr.ParsedExpr`. Macros are expanded: `all`, `map` and `cel.bind` are
comprehensions. Their accumulator has the name `@result`, which an expression cannot contain.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class UnknownTree(ValueError):
    """The bytes contain a field that this module does not know."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. `text` is the value of a string or of bytes; None for all other kinds."""

    text: str | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a type."""

    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """`operand.name`, or `has(operand.name)`."""

    operand: "Tree"
    name: str
    is_test: bool


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function. The target of a method is the first argument."""

    function: str
    arguments: tuple["Tree", ...]
    is_method: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """A list literal."""

    elements: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A map literal. `message` is the type name if it is a message literal."""

    keys: tuple["Tree", ...]
    values: tuple["Tree", ...]
    message: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A comprehension: `step` is evaluated for each element of `over`, then `result` once."""

    variable: str
    over: "Tree"
    accumulator: str
    start: "Tree"
    condition: "Tree"
    step: "Tree"
    result: "Tree"


Tree = Constant | Name | Field | Call | Listed | Mapped | Loop

_Fields = dict[int, list[bytes | int]]

_ANY_VALUE: Final = 2
_PARSED_EXPRESSION: Final = 2
_CONSTANT, _NAME, _FIELD, _CALL, _LIST, _STRUCT, _LOOP = 3, 4, 5, 6, 7, 8, 9
_CONSTANT_STRING, _CONSTANT_BYTES = 6, 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def decode(serialized: bytes) -> Tree:
    """Return the syntax tree from its serialized form. Raises UnknownTree."""
    parsed = _message(_read(serialized), _ANY_VALUE)
    return _tree(_message(parsed, _PARSED_EXPRESSION))


Use = tuple[str, ...]
"""A property of a device that an expression reads, for example `(driver,)` or `(attributes, gpu.nvidia.com, model)`."""


def uses(tree: Tree) -> frozenset[Use] | None:
    """Return the properties of `device` that the expression reads. None if they cannot be derived from the tree.

    Example: `device.attributes["gpu.nvidia.com"].model` is one property; `device.attributes.all(d, …)` returns None.
    """
    found: set[Use] = set()
    pending: list[Tree] = [tree]
    while pending:
        part = pending.pop()
        use = _use(part)
        if use is not None:
            found.add(use)
        elif part == _DEVICE:
            return None
        else:
            pending += _parts(part)
    return frozenset(found)


_DEVICE: Final = Name("device")


def _use(tree: Tree) -> Use | None:
    if isinstance(tree, Field) and tree.operand == _DEVICE and not tree.is_test:
        return (tree.name,) if tree.name in {"driver", "allowMultipleAllocations"} else None
    match tree:
        case Field(
            operand=Call(function="_[_]", arguments=(Field(operand=operand, name=kind), domain)), name=name
        ):
            pass
        case Call(
            function="_[_]",
            arguments=(
                Call(function="_[_]", arguments=(Field(operand=operand, name=kind), domain)),
                Constant(text=str(name)),
            ),
        ):
            pass
        case _:
            return None
    if operand == _DEVICE and isinstance(domain, Constant) and domain.text is not None:
        return kind, domain.text, name
    return None


def _parts(tree: Tree) -> tuple[Tree, ...]:
    match tree:
        case Field(operand=operand):
            return (operand,)
        case Call(arguments=arguments):
            return arguments
        case Listed(elements=elements):
            return elements
        case Mapped(keys=keys, values=values):
            return (*keys, *values)
        case Loop():
            return tree.over, tree.start, tree.condition, tree.step, tree.result
        case _:
            return ()


def _tree(fields: _Fields) -> Tree:
    for number, build in _KINDS.items():
        if number in fields:
            return build(_message(fields, number))
    raise UnknownTree("an expression without a known kind")


def _constant(fields: _Fields) -> Tree:
    for number in (_CONSTANT_STRING, _CONSTANT_BYTES):
        if number in fields:
            return Constant(_bytes(fields, number).decode("utf-8", "replace"))
    return Constant()


def _field(fields: _Fields) -> Tree:
    return Field(_tree(_message(fields, 1)), _text(fields, 2), bool(fields.get(3)))


def _call(fields: _Fields) -> Tree:
    is_method = 1 in fields
    targets = [_tree(_message(fields, 1))] if is_method else []
    return Call(_text(fields, 2), (*targets, *_trees(fields, 3)), is_method)


def _struct(fields: _Fields) -> Tree:
    keys: list[Tree] = []
    values: list[Tree] = []
    for entry in map(_read, _all_bytes(fields, 2)):
        if 3 in entry:
            keys.append(_tree(_message(entry, 3)))
        values.append(_tree(_message(entry, 4)))
    return Mapped(tuple(keys), tuple(values), _text(fields, 1))


def _loop(fields: _Fields) -> Tree:
    if 8 in fields:
        raise UnknownTree("a comprehension with two variables")
    over, start, condition, step, result = (_tree(_message(fields, number)) for number in (2, 4, 5, 6, 7))
    return Loop(_text(fields, 1), over, _text(fields, 3), start, condition, step, result)


_KINDS: Final = {
    _CONSTANT: _constant,
    _NAME: lambda fields: Name(_text(fields, 1)),
    _FIELD: _field,
    _CALL: _call,
    _LIST: lambda fields: Listed(tuple(_trees(fields, 1))),
    _STRUCT: _struct,
    _LOOP: _loop,
}


def _trees(fields: _Fields, number: int) -> Iterator[Tree]:
    return (_tree(_read(listed)) for listed in _all_bytes(fields, number))


def _all_bytes(fields: _Fields, number: int) -> list[bytes]:
    listed = fields.get(number, [])
    return [value for value in listed if isinstance(value, bytes)]


def _bytes(fields: _Fields, number: int) -> bytes:
    listed = _all_bytes(fields, number)
    return listed[-1] if listed else b""


def _text(fields: _Fields, number: int) -> str:
    return _bytes(fields, number).decode()


def _message(fields: _Fields, number: int) -> _Fields:
    return _read(_bytes(fields, number))


def _read(data: bytes) -> _Fields:
    """Return the fields of a message in protobuf's wire format. Raises UnknownTree."""
    fields: _Fields = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value: bytes | int
        if tag & 7 == _VARINT:
            value, position = _varint(data, position)
        elif tag & 7 == _BYTES:
            size, position = _varint(data, position)
            value, position = data[position : position + size], position + size
        elif tag & 7 in {_FIXED64, _FIXED32}:
            size = 8 if tag & 7 == _FIXED64 else 4
            value, position = data[position : position + size], position + size
        else:
            raise UnknownTree(f"a field of wire type {tag & 7}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
