"""The names in a tree for Ansible: included playbooks and roles, variables with defaults, and names that roles use."""

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from tests.upstream.names import keys, texts
from tests.upstream.repository import KUBESPRAY

Facts = dict[str, Any]


def defaults(*trees: Facts) -> dict[str, list[Any]]:
    """Return each variable that has a default in a role or an example, with all its default values, even if commented
    out.
    """
    values: dict[str, list[Any]] = {}
    for tree in trees:
        sets = [
            variables for role in tree["roles"].values() for variables in role.get("variables", {}).values()
        ]
        sets += [each["set"] for each in tree["group_vars"].values()]
        for variables in sets:
            for name, value in variables.items():
                values.setdefault(name, []).append(value)
        for each in tree["group_vars"].values():
            for name in each["commented"]:
                values.setdefault(name, [])
    return values


def named_in_roles(tree: Facts, kind: str) -> set[str]:
    """Return the packages, units or paths (kind `files`) that roles of a tree name."""
    named: set[str] = set()
    for role in tree["roles"].values():
        named |= set(role.get({"files": "paths"}.get(kind, kind), []))
        if kind == "files":
            named |= {f"/etc/systemd/system/{unit}" for unit in role.get("units", [])}
        if kind == "packages":
            for variables in role.get("variables", {}).values():
                listed = [value for name, value in variables.items() if "package" in name or "pkg" in name]
                named |= {*keys(listed), *texts(listed)}
    return named


class Walk:
    """Follows everything that a playbook of DeepOps includes by a plain name.

    `missing` has each role or playbook that exists nowhere, with the place that names it.
    """

    def __init__(self, deepops: Facts, kubespray: Facts) -> None:
        self._playbooks = {**deepops["playbooks"], **_below(kubespray["playbooks"])}
        self._files = {*deepops["paths"]["files"], *_below(dict.fromkeys(kubespray["paths"]["files"]))}
        self._roles = {**kubespray["roles"], **deepops["roles"]}
        self.roles: set[str] = set()
        self.missing: list[tuple[str, str]] = []

    def playbook(self, path: str) -> None:
        """Follow a playbook, named by its path in DeepOps."""
        if path not in self._playbooks:
            if path not in self._files:
                self.missing.append((path, "playbook"))
            return
        for play in self._playbooks[path]["plays"]:
            if "import_playbook" in play:
                self.playbook(
                    posixpath.normpath(posixpath.join(posixpath.dirname(path), play["import_playbook"]))
                )
            for role in (*(each["role"] for each in play.get("roles", [])), *play.get("included_roles", [])):
                self.role(role, path)

    def role(self, name: str, source: str) -> None:
        """Follow a role that `source` includes."""
        if "{{" in name or name in self.roles:
            return
        self.roles.add(name)
        # Ansible also looks in the folders above the role that includes this one
        places = [posixpath.join(str(above), name) for above in PurePosixPath(source).parents]
        place = next((each for each in (name, *places) if each in self._roles), None)
        if place is None:
            self.missing.append((name, source))
            return
        role = self._roles[place]
        for each in (*role.get("dependencies", []), *role.get("included_roles", [])):
            self.role(each, place)


def _below(paths: dict[str, Any]) -> dict[str, Any]:
    return {f"{KUBESPRAY}/{path}": value for path, value in paths.items()}


def roles_of(playbook: Facts) -> Iterator[str]:
    """Yield the roles that a playbook names directly."""
    for play in playbook["plays"]:
        yield from (each["role"] for each in play.get("roles", []))
        yield from play.get("included_roles", [])


def is_shape(value: Any) -> bool:
    """Return whether a value of the facts is an expression or a placeholder for a longer value, so that its type is
    unknown.
    """
    if isinstance(value, dict):
        return any(str(key).startswith("$") for key in value)
    return isinstance(value, str) and "{{" in value
