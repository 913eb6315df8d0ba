"""Node profiles: the properties of a simulated node, from a YAML file.

prefix: dgx1                     nodes are named dgx1-1, dgx1-2, ...
capacity: {cpu: "80", ...}       resource -> Kubernetes quantity; cpu, memory and pods are required
labels: {...}                    added to those that every node has
node_info: {osImage: ..., ...}   shown by `kubectl get nodes -o wide`
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from musterlab.errors import ProfileError

PROFILES = Path(__file__).parent / "profiles"
DEFAULT_PROFILE = "dgx1-v100-32g"

_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_QUALIFIED_NAME = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_REQUIRED_RESOURCES = ("cpu", "memory", "pods")
_NODE_INFO = frozenset(
    {"architecture", "containerRuntimeVersion", "kernelVersion", "operatingSystem", "osImage"}
)


@dataclass(frozen=True)
class Profile:
    """One kind of node. `capacity` maps a resource to a Kubernetes quantity, as written in the file."""

    name: str
    prefix: str
    capacity: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    node_info: Mapping[str, str] = field(default_factory=dict)


def builtin_names() -> list[str]:
    """Return the names of the profiles that come with the lab."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def load(name_or_path: str) -> Profile:
    """Read a profile by its name, or from a file if there is a '/' or a '.yaml' in it.

    Raises:
        ProfileError: there is no such profile, or the file does not follow the schema (names file and line).
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path).expanduser()
    else:
        path = PROFILES / f"{name_or_path}.yaml"
        if not path.is_file():
            known = ", ".join(builtin_names())
            raise ProfileError(
                f"no profile {name_or_path!r}: give one of {known}, or the path of a YAML file"
            )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"profile {path} cannot be read: {error}") from error
    return _Reader(path).profile(text)


class _Reader:
    """Reads one file from its YAML nodes, which have line numbers and the text of each scalar."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def profile(self, text: str) -> Profile:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ProfileError(f"{self._path}:{line}: not YAML: {error.problem}") from error
        if root is None:
            raise ProfileError(f"{self._path}:1: the profile is empty; it needs 'prefix' and 'capacity'")
        entries = self._mapping(root, "the profile")
        for key, (key_node, _) in entries.items():
            if key not in {"prefix", "capacity", "labels", "node_info"}:
                raise self._error(
                    key_node, f"unknown key {key!r}; known are prefix, capacity, labels and node_info"
                )
        for key in ("prefix", "capacity"):
            if key not in entries:
                raise self._error(root, f"key {key!r} is missing")
        prefix_node = entries["prefix"][1]
        prefix = self._scalar(prefix_node, "prefix")
        if not _PREFIX.fullmatch(prefix):
            raise self._error(prefix_node, f"prefix {prefix!r} must be a-z, 0-9 and '-', and not end in '-'")
        return Profile(
            name=self._path.stem,
            prefix=prefix,
            capacity=self._capacity(entries["capacity"][1]),
            labels=self._labels(entries["labels"][1]) if "labels" in entries else {},
            node_info=self._node_info(entries["node_info"][1]) if "node_info" in entries else {},
        )

    def _capacity(self, node: yaml.Node) -> dict[str, str]:
        values = {}
        for key, (key_node, value_node) in self._mapping(node, "capacity").items():
            value = self._scalar(value_node, key)
            if not _QUALIFIED_NAME.fullmatch(key):
                raise self._error(key_node, f"{key!r} is not the name of a resource")
            if not _QUANTITY.fullmatch(value):
                raise self._error(value_node, f"{key}: {value!r} is not a quantity such as 8, 500m or 512Gi")
            values[key] = value
        for key in _REQUIRED_RESOURCES:
            if key not in values:
                raise self._error(node, f"capacity lacks {key!r}")
        return values

    def _labels(self, node: yaml.Node) -> dict[str, str]:
        values = {}
        for key, (key_node, value_node) in self._mapping(node, "labels").items():
            value = self._scalar(value_node, key)
            if not _QUALIFIED_NAME.fullmatch(key):
                raise self._error(key_node, f"{key!r} is not a label key")
            if not _LABEL_VALUE.fullmatch(value):
                raise self._error(value_node, f"{key}: {value!r} is not a label value")
            values[key] = value
        return values

    def _node_info(self, node: yaml.Node) -> dict[str, str]:
        values = {}
        for key, (key_node, value_node) in self._mapping(node, "node_info").items():
            if key not in _NODE_INFO:
                known = ", ".join(sorted(_NODE_INFO))
                raise self._error(key_node, f"unknown key {key!r} in node_info; known are {known}")
            values[key] = self._scalar(value_node, key)
        return values

    def _mapping(self, node: yaml.Node, subject: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"{subject} must be a mapping")
        entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node, "a key")
            if key in entries:
                raise self._error(key_node, f"key {key!r} is there twice")
            entries[key] = (key_node, value_node)
        return entries

    def _scalar(self, node: yaml.Node, subject: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, f"{subject} must be a single value")
        return str(node.value)

    def _error(self, node: yaml.Node, message: str) -> ProfileError:
        return ProfileError(f"{self._path}:{node.start_mark.line + 1}: {message}")
