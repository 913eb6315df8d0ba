"""Decides whether a run does each stage, and why, from the site, the journal and the request alone."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deployment.journal import FAILED, INTERRUPTED, REMOVED, VERIFIED, StageRecord
from deployment.playbook import Stage

RUN: Final = "run"
DONE: Final = "done"
NOT_APPLICABLE: Final = "not applicable"
LEFT_OUT: Final = "left out"

_LISTED: Final = 8
"""Maximum number of omitted hosts that the plan names."""


@dataclass(frozen=True)
class Facts:
    """The facts that decide on a stage.

    `not_applicable` and `whole_site` are reasons to leave out the stage, or empty strings.

    `left_out` maps the hosts of the stage that the run leaves out to the reasons. `works_on` are all hosts of the
    stage. `due` are the hosts on which the stage has not run with its present inputs; None means all hosts.
    """

    stage: Stage
    hosts: tuple[str, ...]
    inputs: Mapping[str, str]
    not_applicable: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    whole_site: str = ""
    works_on: tuple[str, ...] = ()
    due: frozenset[str] | None = None

    @property
    def digest(self) -> str:
        """One digest for all inputs."""
        return digest_of(self.inputs)


@dataclass(frozen=True)
class StagePlan:
    """The decision of the run on a stage, and the reason."""

    stage: Stage
    verb: str
    reason: str
    hosts: tuple[str, ...] = ()
    digest: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    due: frozenset[str] | None = None

    def record(self) -> dict[str, Any]:
        """Return the decision as data for `--json`."""
        return {
            "stage": self.stage.name, "title": self.stage.title, "decision": self.verb, "reason": self.reason,
            "hosts": list(self.hosts), "left_out": dict(self.left_out),
        }  # fmt: skip


def decide(
    facts: Sequence[Facts],
    records: Mapping[str, StageRecord],
    *,
    first: str | None = None,
    last: str | None = None,
    continues: bool = False,
    goal: str = VERIFIED,
) -> list[StagePlan]:
    """Decide on every stage in order. Stages before `first` or after `last` are left out.

    From `first` on, finished stages run again, unless the run continues an earlier one. `goal` is the result of a
    finished stage: VERIFIED, or REMOVED in a removal.
    """
    names = [stage_facts.stage.name for stage_facts in facts]
    begin = names.index(first) if first else 0
    end = names.index(last) if last else len(names) - 1
    decisions = []
    for position, stage_facts in enumerate(facts):
        verb, reason = _verdict(stage_facts, records.get(stage_facts.stage.name), goal)
        if verb not in {NOT_APPLICABLE, LEFT_OUT}:
            if position < begin:
                verb, reason = LEFT_OUT, f"before --from {first}"
            elif position > end:
                verb, reason = LEFT_OUT, f"after --until {last}"
            elif first and verb == DONE and not continues:
                verb, reason = RUN, f"asked for with --from {first}"
        decisions.append(
            StagePlan(
                stage_facts.stage,
                verb,
                reason,
                stage_facts.hosts,
                stage_facts.digest,
                stage_facts.inputs,
                stage_facts.left_out,
                stage_facts.due,
            )
        )
    return decisions


def inputs_of(values: Mapping[str, Any], content: str) -> dict[str, str]:
    """Return the digest of each input of a stage, by name; `content` is the digest of its playbook and role."""
    return {name: _digest(value)[:16] for name, value in values.items()} | {"playbook and role": content[:16]}


def digest_of(inputs: Mapping[str, str]) -> str:
    """Return one digest for all inputs of a stage."""
    return _digest(sorted(inputs.items()))


def _verdict(facts: Facts, record: StageRecord | None, goal: str) -> tuple[str, str]:
    if facts.not_applicable:
        is_installed = (
            record is not None and record.result == VERIFIED and not facts.stage.definition.looks_only
        )
        more = f"; muster keeps the installation of {record.at}" if record and is_installed else ""
        return NOT_APPLICABLE, facts.not_applicable + more
    if facts.whole_site:
        return LEFT_OUT, facts.whole_site
    if facts.left_out and not facts.hosts:
        return LEFT_OUT, listed(facts.left_out)
    if facts.stage.definition.looks_only:
        return RUN, "runs each time, and changes nothing"
    return _by_removal(facts, record) if goal == REMOVED else _by_record(facts, record)


def _by_removal(facts: Facts, record: StageRecord | None) -> tuple[str, str]:
    """Return the decision in a removal. If a stage was removed with the same inputs, it is not removed again.

    Example: after the nodes were reset, no API server answers that could remove the orchestrator a second time.
    """
    if record is not None and record.result == REMOVED and record.digest == facts.digest:
        return DONE, f"removed {record.at}"
    return RUN, "is removed"


def _by_record(facts: Facts, record: StageRecord | None) -> tuple[str, str]:
    """Return the decision by the latest result of the stage."""
    if record is None:
        return RUN, "never run on this site"
    if record.result != VERIFIED:
        words = {FAILED: "failed", INTERRUPTED: "interrupted", REMOVED: "removed"}
        return RUN, f"{words.get(record.result, record.result)} {record.at}"
    if facts.due is None:
        names = [
            name
            for name in {**record.inputs, **facts.inputs}
            if record.inputs.get(name) != facts.inputs.get(name)
        ]
        return RUN, f"changed since {record.at}: {', '.join(sorted(names))}"
    due = [host for host in facts.works_on if host in facts.due]
    now = [host for host in due if host not in facts.left_out]
    if now:
        return RUN, f"verified {record.at}, and not done on {', '.join(now)} yet"
    left = listed({host: facts.left_out[host] for host in due})
    return DONE, f"verified {record.at}" + (f", but for {left}" if left else "")


def listed(left_out: Mapping[str, str]) -> str:
    """Return the omitted hosts as text, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for host, reason in left_out.items():
        reasons.setdefault(reason, []).append(host)
    return "; ".join(
        f"{', '.join(hosts) if len(hosts) <= _LISTED else f'{len(hosts)} hosts'} ({reason})"
        for reason, hosts in reasons.items()
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
