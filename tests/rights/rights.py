"""The rights that muster's roles grant, and those that were used by the audit logs of API servers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.manifests.render import documents, render
from orchestrator.roles import ROLES

REASONS: Final = Path(__file__).parent / "unused.yaml"
_KINDS: Final = ("ClusterRole", "Role")
_BY_ROLE: Final = re.compile(r'RBAC: allowed by \w+ "[^"]*" of (?:Cluster)?Role "(?P<role>muster[^"]*)" to ')
_ANYTHING: Final = "*"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A right of one role: a verb on a resource; `pods/status` is a subresource."""

    role: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.role}: {self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why some rights are granted though no request of the tests used them. `*` stands for any value."""

    roles: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    because: str

    def covers(self, right: Right) -> bool:
        """Return whether the reason covers this right."""
        return all(
            _ANYTHING in values or value in values
            for values, value in (
                (self.roles, right.role),
                (self.resources, right.resource),
                (self.verbs, right.verb),
            )
        )


def granted(manifests: Iterable[Mapping[str, Any]] | None = None) -> set[Right]:
    """Return all rights in the operator YAML. A right that several roles of users have is returned for the least role
    alone.
    """
    rights: set[Right] = set()
    for body in documents(render("rights")) if manifests is None else manifests:
        if body["kind"] in _KINDS:
            rights |= {Right(body["metadata"]["name"], *rest) for rest in _expanded(body["rules"])}
    least: set[Right] = set()
    for right in rights:
        lesser = _lesser(right.role)
        if not any(Right(role, right.group, right.resource, right.verb) in rights for role in lesser):
            least.add(right)
    return least


def used(logs: Path) -> set[Right]:
    """Return all rights by which a request was allowed, by the audit logs in a directory."""
    return {
        right
        for path in sorted(logs.glob("*.log"))
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if (right := _right(line)) is not None
    }


def unused(rights: Iterable[Right], uses: set[Right]) -> list[Right]:
    """Return the rights that were used neither through their own role nor through a greater one."""
    known = {(right.role, right.group, right.resource, right.verb) for right in uses}
    return sorted(
        right
        for right in rights
        if not any(
            (role, right.group, right.resource, right.verb) in known
            for role in (right.role, *_greater(right.role))
        )
    )


def reasons(path: Path = REASONS) -> list[Reason]:
    """Return the reasons that a file lists."""
    return [
        Reason(
            tuple(entry["roles"]),
            tuple(entry["resources"]),
            tuple(entry["verbs"]),
            " ".join(entry["because"].split()),
        )
        for entry in yaml.safe_load(path.read_text())
    ]


def _expanded(rules: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


def _lesser(role: str) -> list[str]:
    names = list(ROLES)
    return names[: names.index(role)] if role in names else []


def _greater(role: str) -> list[str]:
    names = list(ROLES)
    return names[names.index(role) + 1 :] if role in names else []


def _right(line: str) -> Right | None:
    if '"RBAC: allowed by' not in line:
        return None
    try:
        event = json.loads(line)
    except ValueError:  # the last line of a killed server is not complete
        return None
    by_role = _BY_ROLE.match(event.get("annotations", {}).get("authorization.k8s.io/reason", ""))
    about = event.get("objectRef")
    if by_role is None or about is None:
        return None
    sub = about.get("subresource")
    resource = f"{about['resource']}/{sub}" if sub else about["resource"]
    return Right(by_role["role"], about.get("apiGroup", ""), resource, event["verb"])
