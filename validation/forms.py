"""Writes the keys and types of all objects of a record and its log: as a page, and as the second verifier's table."""

import textwrap
from pathlib import Path
from typing import Any, Final

import msgspec
import msgspec.inspect as types

from validation.report.log import Entry
from validation.report.statement import Envelope

ROOT: Final = Path(__file__).parent
PAGE: Final = ROOT.parent / "docs" / "reference" / "record-forms.md"
TABLE: Final = ROOT / "verifier" / "forms.txt"
_COLUMNS: Final = 118
_SCALARS: Final[dict[type[types.Type], str]] = {
    types.StrType: "s", types.EnumType: "s", types.LiteralType: "s", types.BoolType: "b", types.IntType: "i",
    types.FloatType: "f",
}  # fmt: skip


class _Forms:
    """The forms of objects by name, in the order in which the types are visited."""

    def __init__(self) -> None:
        self.keys: dict[str, dict[str, str]] = {}

    def of(self, kind: types.Type) -> str:
        """Return the form of values of this type. Raises TypeError for a type that no record has."""
        if form := _SCALARS.get(type(kind)):
            return form
        if isinstance(kind, types.ListType | types.VarTupleType):
            return f"[]{self.of(kind.item_type)}"
        if isinstance(kind, types.TupleType):
            return f"[]{self.of(kind.item_types[0])}"
        if isinstance(kind, types.DictType):
            return f"{{}}{self.of(kind.value_type)}"
        if isinstance(kind, types.StructType | types.TypedDictType):
            return self._object(kind)
        if isinstance(kind, types.UnionType):
            return self._union(kind)
        raise TypeError(f"{kind} has no form")

    def _union(self, kind: types.UnionType) -> str:
        some = [one for one in kind.types if not isinstance(one, types.NoneType)]
        forms = [self.of(one) for one in some]
        form = forms[0] if len(some) == 1 else forms[0].partition("=")[0].title()
        return form + ("?" if len(some) < len(kind.types) else "")

    def _object(self, kind: types.StructType | types.TypedDictType) -> str:
        tag = f"{kind.tag_field}={kind.tag}" if isinstance(kind, types.StructType) and kind.tag else ""
        name = tag or kind.cls.__name__
        if name not in self.keys:
            keys = self.keys[name] = {}
            if isinstance(kind, types.StructType) and kind.tag:
                keys[str(kind.tag_field)] = "s"
            for field in kind.fields:
                keys[field.encode_name + ("~" if _may_be_absent(kind.cls, field) else "")] = self.of(
                    field.type
                )
        return name


def _may_be_absent(owner: type[Any], field: types.Field) -> bool:
    """Return whether the key of the field can be absent: the field may be unset, or its default is left out."""
    has_default = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
    config = getattr(owner, "__struct_config__", None)
    return not field.required and (not has_default or (config is not None and config.omit_defaults))


def forms() -> dict[str, dict[str, str]]:
    """Return the form of each key of each object, by the name of the object and the name of the key."""
    found = _Forms()
    found.of(types.type_info(Entry))
    found.of(types.type_info(Envelope))
    return found.keys


def table() -> str:
    """Return the table of the second verifier: each object begins a line with its name, before its keys."""
    lines = [
        " ".join([name, *(key if form == "s" else f"{key}:{form}" for key, form in keys.items())])
        for name, keys in forms().items()
    ]
    wrapped = [
        textwrap.fill(line, _COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
    ]
    return "\n".join(wrapped) + "\n"


def page() -> str:
    """Return the page of the forms."""
    lines = [
        f"| `{name}` | {', '.join(f'`{key}: {form}`' for key, form in keys.items())} |"
        for name, keys in forms().items()
    ]
    return _HEAD + "\n".join(lines) + "\n"


_HEAD: Final = """# Forms of a record

`make docs` writes this page. A line of `events.jsonl` is an `Entry`, and its event is an `Event`. In the table, the
name of a kind is the key and the value that distinguish it, such as `entry=observed`. `report.json` is a `Report`, and
`statement.json` is an `Envelope`.

| form | value |
|---|---|
| `s`, `b` | text, `true` or `false` |
| `i` | integer of at most 53 bits, without leading zeros; no `-0`, fraction or exponent |
| `f` | integer, or a fraction such as `0.95` |
| `[]s` | array, here of texts |
| `{}i` | object with any keys, here of integers |
| `i?` | an integer or `null` |
| `key~` | the key may be absent. All other keys must be present, and there are no further keys |

All objects are in canonical form (RFC 8785), with sorted keys, each key once, and without spaces. A line of the log
ends with one line feed.

| object | keys |
|---|---|
"""
