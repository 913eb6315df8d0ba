"""Templates: defaults and required values for flags that the command line does not set.

A template is a ConfigMap labelled `muster.dev/template=true`, in a project's namespace or, for every project, in the
operator's. Its key `values` is YAML: the long names of submit's flags, each with a value, or with
`{required: true, value: ...}`:

    image: nvcr.io/nvidia/pytorch:24.05-py3
    gpu: {required: true}
    environment: [DATA=/data, "HOME=/home/$USER"]

A file on the submitter's machine can be a template too. Messages about it name the file and the line.

These templates apply: the named one, then the project's default, then the cluster's. The command line has precedence
over all, and an earlier template over a later one. Repeatable flags are joined: variables by their name, mounts by
their path.

`$NAME` is a variable of the submitter's environment, `$$` a dollar sign. A number counts as it is written, as on the
command line: YAML itself would read `010` as 8.

Everything here is pure.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import yaml

from orchestrator import names
from orchestrator.bounded_yaml import small_node
from orchestrator.errors import MusterError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator.cluster.objects import ConfigMap

Value = str | int | bool | tuple[str, ...]

NAME_KEY: Final = "name"
DESCRIPTION_KEY: Final = "description"
VALUES_KEY: Final = "values"

_ALTERNATIVES: Final = (
    frozenset({"gpu", "gpu-memory", "mig", "mig-profile"}),
    frozenset({"image-pull-policy", "local-image", "always-pull-image"}),
    frozenset({"command", "args"}),
)
"""Groups of flags that exclude each other: a flag that is set replaces a template's values for its group."""
FOR_COMMAND_LINES: Final = frozenset(
    {"name", "template", "dry-run", "attach", "wait", "wait-timeout", "output"}
)
_WHOLE: Final = frozenset({"command", "args"})
"""Repeatable flags whose order matters: their lists are replaced, never joined."""
_WHOLE_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_TEXT_TAGS: Final = frozenset({"str", "int", "float", "timestamp"})


class NoSuchTemplate(MusterError):
    """Neither the project nor the cluster has a template of the name."""


def no_such_template(name: str, known: Iterable[Template]) -> NoSuchTemplate:
    """Return the error, which lists the known templates."""
    listed = ", ".join(dict.fromkeys(template.name for template in known)) or "none"
    return NoSuchTemplate(f"there is no template {name}; there are: {listed}")


class Kind(Enum):
    """The value of a flag: text, a whole number, nothing (`--flag`, `--flag=false`), or repeated text."""

    TEXT = "text"
    NUMBER = "a whole number"
    SWITCH = "true or false"
    MANY = "a list of texts"


@dataclass(frozen=True, slots=True)
class FlagDefault:
    """A template's setting of one flag. A value of None: no default. `required`: the flag must get a value."""

    value: Value | tuple[Any, ...] | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """One template. `text` is its values in YAML. Only `fields` parses it, so that invalid templates can be listed.

    `file` is the path of a template that is a file of the submitter.
    """

    name: str
    namespace: str
    description: str = ""
    is_default: bool = False
    text: str = ""
    file: str = ""

    def where(self, flag: str = "") -> str:
        """Return the subject of a message about the template: of a file the path, and the line that sets the flag."""
        if not self.file:
            return f"the template {self.name}"
        if not flag:
            return self.file
        line = next((line for key, line, _ in _entries(self.text) or () if key == flag), None)
        return self.file if line is None else f"{self.file}, line {line},"

    @property
    def is_of_cluster(self) -> bool:
        """Whether the template is for every project."""
        return self.namespace == names.TEMPLATES_NAMESPACE

    def fields(self) -> dict[str, FlagDefault]:
        """Return the settings by the long name of the flag, without dashes. Raises UsageError."""
        label = self.where()
        try:
            entries = _entries(self.text)
        except yaml.YAMLError as error:
            raise UsageError(f"{label} is no YAML: {' '.join(str(error).split())}") from error
        except RecursionError as error:
            raise UsageError(f"{label} has entries in entries without an end") from error
        if entries is None:
            raise UsageError(f"{label} cannot be used: its values must be a mapping of flags to values")
        keys = [key for key, _, _ in entries]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise UsageError(f"{label} cannot be used: it sets {twice} twice")
        return {key: _field(self, key, node) for key, _, node in entries}


def template_of(config_map: ConfigMap) -> Template:
    """Return the template in a ConfigMap."""
    metadata = config_map.metadata
    return Template(
        name=metadata.name,
        namespace=metadata.namespace,
        description=config_map.data.get(DESCRIPTION_KEY, ""),
        is_default=metadata.annotations.get(names.DEFAULT_TEMPLATE_ANNOTATION) == "true",
        text=config_map.data.get(VALUES_KEY, ""),
    )


def config_map_of(template: Template) -> dict[str, Any]:
    """Return the ConfigMap of a template."""
    annotations = {names.DEFAULT_TEMPLATE_ANNOTATION: "true"} if template.is_default else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": template.name,
            "namespace": template.namespace,
            "labels": {names.TEMPLATE_LABEL: "true"},
            "annotations": annotations,
        },
        "data": {NAME_KEY: template.name, DESCRIPTION_KEY: template.description, VALUES_KEY: template.text},
    }


def in_order(templates: Iterable[Template], name: str | None) -> list[Template]:
    """Return the named template and the defaults, in order of precedence.

    If the project and the cluster have a template `name`, the project's is used. Raises NoSuchTemplate.
    """
    known = sorted(templates, key=lambda template: (template.is_of_cluster, template.name))
    by_name = [template for template in known if template.name == name][:1]
    if name is not None and not by_name:
        raise no_such_template(name, known)
    return by_name + [template for template in known if template.is_default and template not in by_name]


def fill(
    flag_values: Mapping[str, Value | None],
    templates: Sequence[Template],
    kinds: Mapping[str, Kind],
    environ: Mapping[str, str],
) -> dict[str, Value]:
    """Return the flags that templates set or change, with their new values.

    `flag_values` has the value of every flag (None and () are unset); `kinds` has every flag that a template may name.
    `templates` are in order of precedence. Raises UsageError with template and flag for an unknown flag, an invalid
    value, an unset variable, and missing required values.
    """
    chosen = {flag: value for flag, value in flag_values.items() if value is not None and value != ()}
    by_hand = frozenset(chosen)
    read = [(template, template.fields()) for template in templates]
    for template, fields in read:
        replaced = {flag for group in _ALTERNATIVES if group & chosen.keys() for flag in group}
        for flag, field in fields.items():
            kind = _known(template, flag, kinds)
            if field.value is None:
                continue
            if kind is Kind.MANY and flag not in _WHOLE:
                values = _many(template, flag, field.value, environ)
                chosen[flag] = _joined(flag, values, chosen.get(flag, ()))
            elif flag not in chosen and flag not in replaced:
                chosen[flag] = _typed(template, flag, kind, field.value, environ)
    _require(read, chosen)
    return {
        flag: value for flag, value in chosen.items() if flag not in by_hand or value != flag_values[flag]
    }


def check(template: Template, kinds: Mapping[str, Kind]) -> None:
    """Raise UsageError with the flag if a template names an unknown flag or has an invalid value."""
    for flag, field in template.fields().items():
        _known(template, flag, kinds)
        if field.value is not None:
            _typed(template, flag, kinds[flag], field.value, _Anything())


class _Anything(dict[str, str]):
    """An environment in which every variable is set."""

    def __missing__(self, name: str) -> str:
        return name


def _known(template: Template, flag: str, kinds: Mapping[str, Kind]) -> Kind:
    kind = kinds.get(flag)
    if kind is None:
        more = " for templates: give it on the command line" if flag in FOR_COMMAND_LINES else ""
        raise UsageError(f"{template.where(flag)} sets {flag}, which is no flag of submit{more}")
    return kind


def _entries(text: str) -> list[tuple[str, int, yaml.Node]] | None:
    """Return the flags of a mapping in YAML, each with its line from 1 and its value, or None if it is no mapping.

    Raises YAMLError.
    """
    node = small_node(text)
    if node is None or _tag(node) == "null":
        return []
    if not isinstance(node, yaml.MappingNode) or not all(isinstance(key.value, str) for key, _ in node.value):
        return None
    return [(key.value.replace("_", "-"), key.start_mark.line + 1, value) for key, value in node.value]


def _field(template: Template, key: str, node: yaml.Node) -> FlagDefault:
    if not isinstance(node, yaml.MappingNode):
        return FlagDefault(_value(template, key, node))
    entries = {str(part.value): value for part, value in node.value}
    required = _scalar(entries["required"]) if "required" in entries else False
    if (
        entries.keys() - {"required", "value"}
        or len(entries) < len(node.value)
        or not isinstance(required, bool)
    ):
        raise UsageError(
            f"{template.where(key)} cannot be used: {key} takes a value, or required: true|false and value"
        )
    return FlagDefault(_value(template, key, entries["value"]) if "value" in entries else None, required)


def _value(template: Template, key: str, node: yaml.Node) -> Value | tuple[Any, ...] | None:
    if _tag(node) == "null":
        return None
    listed = node.value if isinstance(node, yaml.SequenceNode) else [node]
    values = [_scalar(item) for item in listed]
    if None in values:
        raise UsageError(
            f"{template.where(key)} cannot be used: {key} takes a text, a number, true or false, or a list of texts"
        )
    return tuple(values) if isinstance(node, yaml.SequenceNode) else values[0]


def _scalar(node: yaml.Node) -> str | int | bool | None:
    """Return a value of a template, or None for one that no flag takes."""
    tag, text = _tag(node), node.value
    if tag == "bool":
        return str(text).lower() in {"true", "yes", "on"}
    if tag not in _TEXT_TAGS:
        return None
    return int(text) if tag == "int" and _WHOLE_NUMBER.fullmatch(text) else str(text)


def _tag(node: yaml.Node) -> str:
    return str(node.tag).removeprefix("tag:yaml.org,2002:")


def _typed(template: Template, flag: str, kind: Kind, value: Any, environ: Mapping[str, str]) -> Value:
    if kind is Kind.MANY:
        return _many(template, flag, value, environ)
    if kind is Kind.TEXT and isinstance(value, str | int) and not isinstance(value, bool):
        return _expanded(template, flag, str(value), environ)
    if kind is Kind.NUMBER and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is Kind.SWITCH and isinstance(value, bool):
        return value
    raise _of_another_kind(template, flag, kind)


def _many(template: Template, flag: str, value: Any, environ: Mapping[str, str]) -> tuple[str, ...]:
    listed = value if isinstance(value, tuple) else (value,)
    if any(isinstance(text, bool) for text in listed):
        raise _of_another_kind(template, flag, Kind.MANY)
    return tuple(_expanded(template, flag, str(text), environ) for text in listed)


def _of_another_kind(template: Template, flag: str, kind: Kind) -> UsageError:
    """Return the error for a value of another kind. It does not show the value, which can be a secret."""
    return UsageError(f"{template.where(flag)} sets {flag} to another kind of value: it takes {kind.value}")


def _expanded(template: Template, flag: str, text: str, environ: Mapping[str, str]) -> str:
    try:
        return string.Template(text).substitute(environ)
    except KeyError as error:
        raise UsageError(
            f"{template.where(flag)} uses ${error.args[0]} in {flag}: set this variable, or give --{flag}"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{template.where(flag)} has a $ in {flag} that names no variable: write $$ for a dollar sign"
        ) from error


def _joined(flag: str, values: Sequence[str], winning: Any) -> tuple[str, ...]:
    """Return one list of `values` and `winning`, which have precedence: a value with a key of `winning` is left out."""
    winning_keys = {_key(flag, value) for value in winning}
    return (*(value for value in values if _key(flag, value) not in winning_keys), *winning)


def _key(flag: str, value: str) -> str:
    if flag == "environment":
        return value.partition("=")[0]
    if flag in ("volume", "pvc"):
        return next((part for part in value.split(":")[1:] if part.startswith("/")), value)
    return value


def _require(read: Iterable[tuple[Template, Mapping[str, FlagDefault]]], chosen: Mapping[str, Any]) -> None:
    for template, fields in read:
        for flag, field in fields.items():
            group = next((group for group in _ALTERNATIVES if flag in group), {flag})
            if field.required and not group & chosen.keys():
                raise UsageError(f"--{flag} is missing: {template.where(flag)} requires it")
