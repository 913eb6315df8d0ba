"""The choice of jobs for `list` and `delete`: by status, label, user, node and age. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.views.jobs import WorkloadView
from orchestrator.views.status import STATUSES

_SETS: Final = re.compile(r"\s*([^\s!=(),]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUALS: Final = re.compile(r"\s*([^\s!=(),]+)\s*(==|=|!=)\s*([^\s!=(),]*)\s*")
_EXISTS: Final = re.compile(r"\s*(!?)\s*([^\s!=(),]+)\s*")
_COMMA: Final = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label: its value is in `values`; if `values` is None, the label exists.

    `is_negated` inverts it.
    """

    label: str
    values: frozenset[str] | None
    is_negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the condition. As in Kubernetes, a missing label meets `!=` and `notin`."""
        if self.values is None:
            return (self.label in labels) != self.is_negated
        return (labels.get(self.label) in self.values) != self.is_negated


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Return the conditions of a label selector as kubectl takes it: `a=b,c!=d,e in (x,y),!f`. Raises UsageError."""
    return tuple(_requirement(part, text) for part in _COMMA.split(text))


def _requirement(part: str, text: str) -> Requirement:
    if match := _SETS.fullmatch(part):
        values = frozenset(value.strip() for value in match[3].split(","))
        return Requirement(match[1], values, match[2] == "notin")
    if match := _EQUALS.fullmatch(part):
        return Requirement(match[1], frozenset({match[3]}), match[2] == "!=")
    if match := _EXISTS.fullmatch(part):
        return Requirement(match[2], None, bool(match[1]))
    raise UsageError(
        f"-l/--selector {text!r} is no label selector: write key=value, key!=value, 'key in (a,b)', key or !key, "
        "with commas between them"
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs that meet every condition; an empty condition is met by all.

    `statuses` are in lower case (`parse_statuses`). `since_us`: created at this time or later.
    """

    statuses: frozenset[str] = frozenset()
    requirements: tuple[Requirement, ...] = ()
    users: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    since_us: int = 0

    def of(self, views: Iterable[WorkloadView]) -> list[WorkloadView]:
        """Return the jobs that meet all conditions, in the given order."""
        return [view for view in views if self._takes(view)]

    def _takes(self, view: WorkloadView) -> bool:
        return (
            (not self.statuses or view.status.lower() in self.statuses)
            and (not self.users or view.user in self.users)
            and (not self.nodes or not self.nodes.isdisjoint(view.nodes))
            and view.created_us >= self.since_us
            and all(requirement.holds(view.labels) for requirement in self.requirements)
        )


def parse_statuses(texts: Iterable[str]) -> frozenset[str]:
    """Return the statuses in lower case. Each text has one status, or several separated by commas.

    Raises UsageError for a word that is similar to one of STATUSES. Any other word can be a reason of Kubernetes.
    """
    own = {word.lower(): word for word in STATUSES}
    words = [word for text in texts for word in text.split(",")]
    for word in words:
        alike = get_close_matches(word.lower(), own, n=1, cutoff=0.75)
        if alike and word.lower() not in own:
            raise UsageError(f"--status {word!r} is no status: did you mean {own[alike[0]]}?")
    return frozenset(word.lower() for word in words)


SORT_KEYS: Final = ("name", "status", "age", "node", "project", "user", "gpus", "priority")


def parse_order(key: str) -> Callable[[Iterable[WorkloadView]], list[WorkloadView]]:
    """Return a function that puts jobs in the order of one of SORT_KEYS, the smallest first; `-KEY`: the largest first.

    Jobs that are equal by the key keep their order. `age` is the time since the submission. `gpus` counts memory of
    GPUs as 0. Upper and lower case are equal. Raises UsageError for an unknown key.
    """
    name = key.removeprefix("-").lower()
    if name not in SORT_KEYS:
        raise UsageError(
            f"--sort {key!r}: give one of {', '.join(SORT_KEYS)}; a '-' before it reverses the order"
        )

    def value(view: WorkloadView) -> tuple[int, str]:
        if name == "age":
            return -view.created_us, ""
        if name == "gpus":
            return view.gpu_milli, ""
        return 0, view.priority_class if name == "priority" else str(getattr(view, name))

    return partial(sorted, key=value, reverse=key.startswith("-"))
