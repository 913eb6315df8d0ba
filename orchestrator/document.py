"""Reads YAML into plain data, and keeps the line of every node for errors."""

import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import yaml

from orchestrator.bounded_yaml import TooLarge, small_node
from orchestrator.errors import MusterError, UsageError

Path_ = tuple[str | int, ...]
_Kind = TypeVar("_Kind")
_AT = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_STANDARD = "tag:yaml.org,2002:"
_MERGE = f"{_STANDARD}merge"
_TAGS = frozenset(
    _STANDARD + kind for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value")
)
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class Document:
    """A parsed YAML file. Raises `error_type` for invalid YAML, keys that are not strings, and duplicate keys."""

    error_type: ClassVar[type[MusterError]] = UsageError
    """The class of errors in the file. A subclass for another kind of file can set its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Path_, int] = {}
        try:
            self.text = path.read_text(encoding="utf-8")
            node = small_node(self.text)
        except OSError as error:
            raise self.error_type(f"{path}: cannot be read: {error.strerror}") from error
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise self.error_type(f"{path}:{line}: {error.problem}") from error
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise self.error_type(f"{path}:{line}: byte {error.start} is no text in UTF-8") from error
        except yaml.reader.ReaderError as error:
            line = self.text.count("\n", 0, error.position) + 1
            raise self.error_type(f"{path}:{line}: {error.reason}") from error
        except TooLarge as error:
            raise self.error_type(f"{path}:{error.line}: {error}") from error
        except RecursionError as error:
            raise self._too_deep() from error
        if node is None:
            raise self.error_type(f"{path}:1: the file is empty")
        try:
            self.data = self._plain(node, ())
        except RecursionError as error:
            raise self._too_deep() from error

    def _too_deep(self) -> MusterError:
        return self.error_type(
            f"{self.path}:1: there are entries in entries without an end: does an alias (*) hold itself?"
        )

    def line(self, place: Path_) -> int:
        """Return the line of the node at `place`, or of the nearest node around it; lines count from 1."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def error(self, place: Path_, message: str) -> MusterError:
        """Return an error that names file and line."""
        return self.error_type(f"{self.path}:{self.line(place)}: {message}")

    def at(self, place: Path_) -> Any:
        """Return the plain data at a path.

        A number with a decimal point becomes its text, as in quantities of Kubernetes.
        """
        value = self.data
        for part in place:
            value = value[part]
        return _with_texts(value)

    def convert(self, kind: type[_Kind], place: Path_ = ()) -> _Kind:
        """Return the document, or the part of it at a path, as `kind`.

        Raises `error_type` that names file, line and entry.
        """
        try:
            return msgspec.convert(self.at(place) if place else self.data, kind)
        except msgspec.ValidationError as error:
            message = str(error)
            at = _AT.search(message)
            place = (*place, *_place(at[1])) if at else place
            if at:
                message = message[: at.start()]
            unknown = _UNKNOWN.search(message)
            if unknown:
                place, message = (*place, unknown[1]), f"unknown key `{unknown[1]}`"
            where = ".".join(str(part) for part in place)
            raise self.error(place, f"{message} (at {where})" if where else message) from error

    def _plain(self, node: yaml.Node, place: Path_) -> Any:
        self.lines[place] = node.start_mark.line + 1
        if node.tag not in _TAGS:
            raise self.error(place, f"the tag {_tag(node)} is not supported: remove it")
        if isinstance(node, yaml.MappingNode):
            plain: dict[str, Any] = {}
            for key, value in node.value:
                name = self._key(key)
                if name in plain:
                    raise self.error_type(
                        f"{self.path}:{key.start_mark.line + 1}: key `{name}` is there twice"
                    )
                plain[name] = self._plain(value, (*place, name))
                self.lines[*place, name] = key.start_mark.line + 1
            return plain
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, (*place, index)) for index, item in enumerate(node.value)]
        return _scalar(node)

    def _key(self, key: yaml.Node) -> str:
        problem = ""
        if not isinstance(key, yaml.ScalarNode):
            problem = "a key is a text, not a list or keys with values"
        elif key.tag == _MERGE:
            problem = (
                "a merge (<<) is not supported: write the entries, or an alias (*) for all entries of a key"
            )
        elif key.tag not in _TAGS:
            problem = f"the tag {_tag(key)} is not supported: remove it"
        if problem:
            raise self.error_type(f"{self.path}:{key.start_mark.line + 1}: {problem}")
        return str(key.value)


def _tag(node: yaml.Node) -> str:
    """Return a tag as people write it."""
    return node.tag.replace(_STANDARD, "!!") if node.tag.startswith(_STANDARD) else node.tag


def _scalar(node: yaml.Node) -> Any:
    kind = node.tag.rpartition(":")[2]
    try:
        if kind == "int":
            return int(node.value, 0)
        if kind == "float":
            return Decimal(node.value)
    except (ValueError, InvalidOperation):
        return node.value  # a string; the schema refuses it if a number is required
    if kind == "bool":
        return _TRUTHS.get(node.value.lower(), node.value)
    return None if kind == "null" else node.value


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_texts(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_texts(part) for part in value]
    return str(value) if isinstance(value, Decimal) else value


def _place(path: str) -> Path_:
    parts: list[str | int] = []
    for match in _PART.finditer(path):
        if match[1] is not None:
            parts.append(match[1])
        elif match[2] != "...":
            parts.append(int(match[2]))
        else:
            break
    return tuple(parts)
