"""Every field of the planner's model that the snapshot file has no short form for, as a field of the file.

A form (see `forms`) says which fields of a class of the model it covers. The others become fields of the form under
their own names in camelCase, in their own units and with their own defaults, so that a field that the planner gains is
in the file, in its JSON Schema and in the check of unknown keys at once.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

FormType = TypeVar("FormType", bound=msgspec.Struct)

Field = tuple[str, Any, Any]
"""Name, type and default."""

_MADE: dict[type, type[msgspec.Struct]] = {}


def completed(
    form: type[FormType], covered: Mapping[type, Iterable[str]], *replaced: Field
) -> type[FormType]:
    """The form with the fields of the classes in `covered` that are not named there, all UNSET by default.

    `replaced` are fields of the form that get another type: name, type and default.
    """
    added: list[Any] = [
        (each.name, file_type(typing.get_type_hints(kind)[each.name]) | msgspec.UnsetType, msgspec.UNSET)
        for kind, names in covered.items()
        for each in uncovered(kind, names)
    ]
    return typing.cast("type[FormType]", _struct(form.__name__, [*added, *replaced], form.__doc__, form))


def uncovered(kind: type, covered: Iterable[str]) -> list[dataclasses.Field[Any]]:
    """The fields of a class of the model that are not named in `covered`."""
    return [each for each in dataclasses.fields(kind) if each.name not in set(covered)]


def file_type(hint: Any) -> Any:
    """The type of a value in the file for a type of the model: a class becomes a mapping of its fields."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _struct_of(hint)
    arguments = tuple(file_type(each) for each in typing.get_args(hint) if each is not Ellipsis)
    origin = typing.get_origin(hint)
    if origin is tuple:
        return list[arguments[0]] if Ellipsis in typing.get_args(hint) else tuple[arguments]  # type: ignore[valid-type]
    if origin in {typing.Union, types.UnionType}:
        return typing.Union[arguments]  # noqa: UP007 - made from a value
    return hint


def from_file(value: Any, hint: Any) -> Any:
    """A value of the file as the model wants it. `hint` is the model's type."""
    return msgspec.convert(_model_names(value), hint)


def to_file(value: Any) -> Any:
    """A value of the model as plain data of the file; what has its default is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            camel(each.name): to_file(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if getattr(value, each.name) != default_of(each)
        }
    if isinstance(value, tuple | list):
        return [to_file(each) for each in value]
    return msgspec.to_builtins(value)


def default_of(each: dataclasses.Field[Any]) -> Any:
    """The default of a field of the model; MISSING when it has none."""
    factory = each.default_factory
    return each.default if factory is dataclasses.MISSING else factory()


def camel(name: str) -> str:
    """`over_quota_weight` as it stands in a file: `overQuotaWeight`."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _struct_of(kind: type) -> type[msgspec.Struct] | str:
    name = f"Model{kind.__name__}"
    if kind in _MADE:
        return name if _MADE[kind] is msgspec.Struct else _MADE[kind]
    _MADE[kind] = msgspec.Struct  # a class that contains itself refers to itself by name
    hints = typing.get_type_hints(kind)
    fields = [_field(each, file_type(hints[each.name])) for each in dataclasses.fields(kind)]
    _MADE[kind] = globals()[name] = made = _struct(name, fields, kind.__doc__)
    return made


def _struct(
    name: str, fields: list[Any], doc: str | None, *bases: type[msgspec.Struct]
) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name,
        fields,
        bases=bases or None,
        namespace={"__doc__": doc},
        module=__name__,
        frozen=True,
        kw_only=True,
        rename="camel",
        forbid_unknown_fields=True,
    )


def _field(each: dataclasses.Field[Any], hint: Any) -> Any:
    default = default_of(each)
    if default is dataclasses.MISSING:
        return (each.name, hint)
    if dataclasses.is_dataclass(default) or isinstance(default, tuple | list | dict | Mapping):
        return (each.name, hint | msgspec.UnsetType, msgspec.UNSET)
    return (each.name, hint, default)


def _model_names(value: Any) -> Any:
    """Structs as mappings with the model's names, without what is not set."""
    if isinstance(value, msgspec.Struct):
        return {
            name: _model_names(getattr(value, name))
            for name in value.__struct_fields__
            if getattr(value, name) is not msgspec.UNSET
        }
    if isinstance(value, list | tuple):
        return [_model_names(each) for each in value]
    return value
