"""The site file, read and checked before anything runs: by the schema, and for errors that a schema cannot find."""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from deployment import addresses, images, proxy, site_checks, variable_checks
from deployment.site import SECRET_WORDS, SITE_FILE, VAULT_FILE, Place, Site, SiteDocument, site_error
from deployment.stages import STAGES

_PASSWORD_IN_URL: Final = re.compile(r"://[^/\s@:]*:[^/\s@]*@")
_REFERENCE: Final = re.compile(r"\{\{ [a-z][a-z0-9_]* \}\}")
_TEMPLATE: Final = re.compile(r"\{[{%#]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]")
_SPACE: Final = re.compile(r"\n|^\s|\s$")
_LONG: Final = frozenset({"description", "maintenance"})
"""Texts for people, which may have several lines."""
_VAULT_HEADER: Final = "$ANSIBLE_VAULT;"
_WORDS: Final = {
    "object": "keys with values (`key: value`)", "array": "a list", "string": "a text", "integer": "a whole number",
    "boolean": "true or false",
}  # fmt: skip
"""The schema's types in words for error messages."""

_END: Final = r"\Z"
_MAX_CHARACTERS: Final = 60


def load(inventory: Path) -> Site:
    """Read and check `inventory`, a site's directory or its file. Raises SiteError with every problem."""
    path = inventory / SITE_FILE if inventory.is_dir() else inventory
    document = SiteDocument(path)
    site = Site(document, path.parent)
    problems = _schema_problems(site)
    if not problems:
        problems = [*_reference_problems(site), *_vault_problems(site)]
    if problems:
        raise site_error(path, problems)
    return site


@cache
def _validator() -> Draft202012Validator:
    text = (resources.files("deployment") / "data" / "site.schema.json").read_text()
    return Draft202012Validator(json.loads(text, object_hook=_with_exact_end))


def _with_exact_end(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose pattern ends at the end of a text. In Python, `$` also matches before a last newline."""
    pattern = schema.get("pattern")
    return schema | {"pattern": pattern.replace("$", _END)} if isinstance(pattern, str) else schema


def _schema_problems(site: Site) -> list[str]:
    messages: dict[Place, str] = {}
    for error in sorted(
        _validator().iter_errors(site.document.data), key=lambda violation: list(map(str, violation.path))
    ):
        place: Place = tuple(error.absolute_path)
        is_name = "propertyNames" in error.absolute_schema_path and isinstance(error.instance, str)
        name: Place = (error.instance,) if is_name else ()
        for where, message in _describe_error(place, error):
            messages.setdefault((*where, *name), site.problem((*where, *name), message))
    return sorted(
        messages.values(), key=lambda text: int(text.removeprefix(f"{site.document.path}:").split(":")[0])
    )


def _describe_error(place: Place, error: ValidationError) -> Iterator[tuple[Place, str]]:
    """Yield a schema error as messages for people, each with its entry."""
    value: Any = error.instance
    expected: Any = error.validator_value
    where = ".".join(map(str, place)) or "the file"
    schema: dict[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties":
        known = schema.get("properties", {})
        for key in value:
            if key not in known:
                yield (*place, key), f"unknown key `{key}` (known here: {', '.join(sorted(known))})"
    elif error.validator == "dependentRequired":
        missing = [
            other
            for key, others in expected.items()
            if key in value
            for other in others
            if other not in value
        ]
        yield place, f"{where}: `{missing[0]}` is missing"
    elif error.validator == "required":
        missing = [key for key in expected if key not in value]
        yield place, f"{where}: `{missing[0]}` is missing"
    elif error.validator == "type" and schema.get("type") == "string" and not isinstance(value, dict | list):
        yield place, f"{where}: write it in quotes: YAML reads {value} as a number or a truth value"
    elif error.validator == "enum":
        yield place, f"{where}: {value} is none of {', '.join(map(str, expected))}"
    elif place and SECRET_WORDS.search(str(place[-1])):
        yield place, f"{where}: a secret is never written here; write {{env: NAME}} or {{vault: name}}"
    elif error.validator in {"pattern", "minLength"}:
        meaning = f" ({schema['description']})" if "description" in schema else ""
        form = schema.get("pattern", "of a text")
        yield (
            place,
            f"{where}: {value!r} does not have the form {form.replace(_END, '$')}{meaning}",
        )
    elif error.validator == "type":
        yield (
            place,
            f"{where}: should be {_WORDS.get(str(expected), expected)}, not {_describe_value(value, place)}",
        )
    elif error.validator == "const":
        yield place, f"{where}: write {expected}, not {_describe_value(value, place)}"
    else:
        meant = (
            f"this should be: {schema.get('description')}" if error.validator == "anyOf" else error.message
        )
        yield place, f"{where}: {meant}"


def _describe_value(value: Any, place: Place) -> str:
    """Describe a value for an error message.

    If the whole file is one string, do not show it: it may be the wrong file.
    """
    for kind, words in ((dict, "keys with values"), (list, "a list"), (type(None), "nothing")):
        if isinstance(value, kind):
            return words
    if not place:
        return "one text"
    return f"`{value}`" if len(str(value)) <= _MAX_CHARACTERS else f"`{str(value)[:_MAX_CHARACTERS]}…`"


def _reference_problems(site: Site) -> Iterator[str]:
    """Yield the problems between entries, which a schema cannot express."""
    yield from site.lines(site_checks.problems(site))
    yield from site.lines(variable_checks.problems(site))
    yield from site.lines(variable_checks.connection_problems(site))
    yield from site.lines(images.problems(site))
    yield from site.lines(addresses.malformed(site))
    for stage in STAGES:
        yield from site.lines(stage.problems(site))
    yield from site.lines(proxy.problems(site))
    yield from _text_problems(site)
    for place in _plain_secrets(site.data, ()):
        yield site.problem(
            place, f"{'.'.join(map(str, place))}: a secret is never written here; use vault.yml"
        )


def _text_problems(site: Site) -> Iterator[str]:
    """Yield texts with control characters or Ansible templates, and URLs that contain a password.

    All text is data, except a variable of vault.yml.
    """
    for place, text in _texts(site.data, ()):
        if _PASSWORD_IN_URL.search(text) and place[:2] != ("network", "proxy"):
            yield site.problem(
                place,
                f"{'.'.join(map(str, place))}: it has a password in its URL; a site file has no secrets. Give the "
                "login to the program that fetches (git: a credential helper; registries: `docker login`)",
            )
        if _CONTROL.search(text):
            yield site.problem(
                place,
                f"{'.'.join(map(str, place))}: it has a control character or an invisible one: write it again",
            )
        elif place[-1] not in _LONG and place[0] not in {"vars", "not_applicable"} and _SPACE.search(text):
            yield site.problem(
                place,
                f"{'.'.join(map(str, place))}: it has a line end, or a space at an end: write one line without them",
            )
        if "PRIVATE KEY-----" in text:
            yield site.problem(
                place,
                f"{'.'.join(map(str, place))}: a secret is never written here; name the file of the key",
            )
        if text.startswith(_VAULT_HEADER):
            yield site.problem(
                place,
                f"{'.'.join(map(str, place))}: an encrypted value stands in vault.yml: write {{vault: name}}",
            )
        may_refer = place[0] == "vars" or "connection_vars" in place
        if _TEMPLATE.search(text) and not (may_refer and _REFERENCE.fullmatch(text)):
            hint = (
                "write `{{ name }}` and nothing else for a variable of vault.yml"
                if may_refer
                else "write it out"
            )
            yield site.problem(
                place, f"{'.'.join(map(str, place))}: values are data, never templates of Ansible: {hint}"
            )


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, nested in value.items():
            yield (*place, key), key
            yield from _texts(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _texts(nested, (*place, index))


def _vault_problems(site: Site) -> Iterator[str]:
    vault = site.vault
    if vault is not None:
        try:
            if not vault.read_text(errors="replace").startswith(_VAULT_HEADER):
                yield f"{vault}:1: it is not encrypted: run `ansible-vault encrypt {vault}`"
        except OSError as error:
            yield f"{vault}:1: cannot be read: {error.strerror}"
    for place, secret in site.secrets():
        if "vault" in secret and vault is None:
            yield site.problem(
                place, f"there is no {site.directory / VAULT_FILE} to take {secret['vault']} from"
            )


def _plain_secrets(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, dict):
        for key, nested in value.items():
            plain = nested is not None and not isinstance(nested, bool | dict) and "{{" not in str(nested)
            if plain and SECRET_WORDS.search(key):
                yield (*place, key)
            yield from _plain_secrets(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _plain_secrets(nested, (*place, index))
