"""Adds to the snapshot file's forms the fields of the planner's model that have no short form there.

`forms.COVERED` names the fields of every model class with a short form. The others are added to the form under their
names in camelCase, in their own units and with their own defaults.

So a new field of the model needs no other code. The file, its JSON Schema and the check of unknown keys then have it.
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
    """Return the form with the fields of the classes in `covered` that `covered` does not name.

    They are UNSET by default.

    `replaced` are fields of the form that get another type: name, type and default.
    """
    added: list[Any] = [
        (field.name, file_type(typing.get_type_hints(kind)[field.name]) | msgspec.UnsetType, msgspec.UNSET)
        for kind, names in covered.items()
        for field in uncovered(kind, names)
    ]
    return typing.cast("type[FormType]", _struct(form.__name__, [*added, *replaced], form.__doc__, form))


def uncovered(kind: type, covered: Iterable[str]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class of the model without those in `covered`."""
    return [field for field in dataclasses.fields(kind) if field.name not in set(covered)]


def file_type(hint: Any) -> Any:
    """Return the type in the file for a type of the model. A dataclass becomes a struct with camelCase names."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _struct_of(hint)
    arguments = tuple(file_type(argument) for argument in typing.get_args(hint) if argument is not Ellipsis)
    origin = typing.get_origin(hint)
    if origin is tuple:
        return list[arguments[0]] if Ellipsis in typing.get_args(hint) else tuple[arguments]  # type: ignore[valid-type]
    if origin in {typing.Union, types.UnionType}:
        return typing.Union[arguments]  # noqa: UP007 - made from a value
    return hint


def from_file(value: Any, hint: Any) -> Any:
    """Return a value of the file converted to the model's type `hint`."""
    return msgspec.convert(_model_names(value), hint)


def to_file(value: Any) -> Any:
    """Return a value of the model as plain data for the file. A field whose value is its default is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            camel(field.name): to_file(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != default_of(field)
        }
    if isinstance(value, tuple | list):
        return [to_file(item) for item in value]
    return msgspec.to_builtins(value)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field of the model; MISSING when it has none."""
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


def camel(name: str) -> str:
    """Return the name of a field in a file: `overQuotaWeight` for `over_quota_weight`.

    Example: `camel("over_quota_weight")` returns `'overQuotaWeight'`.
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _struct_of(kind: type) -> type[msgspec.Struct] | str:
    name = f"Model{kind.__name__}"
    if kind in _MADE:
        return name if _MADE[kind] is msgspec.Struct else _MADE[kind]
    # The struct must exist before its fields: a class with a field of its own type refers to it by name.
    _MADE[kind] = msgspec.Struct
    hints = typing.get_type_hints(kind)
    fields = [_field(field, file_type(hints[field.name])) for field in dataclasses.fields(kind)]
    _MADE[kind] = globals()[name] = struct = _struct(name, fields, kind.__doc__)
    return struct


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


def _field(field: dataclasses.Field[Any], hint: Any) -> Any:
    default = default_of(field)
    if default is dataclasses.MISSING:
        return (field.name, hint)
    if dataclasses.is_dataclass(default) or isinstance(default, tuple | list | dict | Mapping):
        return (field.name, hint | msgspec.UnsetType, msgspec.UNSET)
    return (field.name, hint, default)


def _model_names(value: Any) -> Any:
    """Return the value with each struct as a mapping from the model's field names, without unset fields."""
    if isinstance(value, msgspec.Struct):
        return {
            name: _model_names(getattr(value, name))
            for name in value.__struct_fields__
            if getattr(value, name) is not msgspec.UNSET
        }
    if isinstance(value, list | tuple):
        return [_model_names(item) for item in value]
    return value
