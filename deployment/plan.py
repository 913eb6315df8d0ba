"""Decides what a run does with each stage, and why, from the site, the journal and the request alone."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deployment.journal import FAILED, INTERRUPTED, REMOVED, VERIFIED, StageRecord
from deployment.stages import ALWAYS, Stage

RUN: Final = "run"
DONE: Final = "done"
NOT_APPLICABLE: Final = "not applicable"
LEFT_OUT: Final = "left out"


@dataclass(frozen=True)
class Facts:
    """The facts by which a stage is decided. `not_applicable` is empty, or the reason."""

    stage: Stage
    hosts: tuple[str, ...]
    inputs: Mapping[str, str]
    not_applicable: str = ""

    @property
    def digest(self) -> str:
        """One digest for all inputs."""
        return _digest(sorted(self.inputs.items()))


@dataclass(frozen=True)
class Decision:
    """What the run does with a stage, and why."""

    stage: Stage
    verb: str
    reason: str
    hosts: tuple[str, ...] = ()
    digest: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The decision as data for `--json`."""
        return {
            "stage": self.stage.name, "title": self.stage.title, "decision": self.verb, "reason": self.reason,
            "hosts": list(self.hosts),
        }  # fmt: skip


def decide(
    facts: Sequence[Facts],
    records: Mapping[str, StageRecord],
    *,
    first: str | None = None,
    last: str | None = None,
) -> list[Decision]:
    """Decide on every stage in order: from `first` on also those that are done; none after `last`."""
    names = [stage_facts.stage.name for stage_facts in facts]
    begin = names.index(first) if first else 0
    end = names.index(last) if last else len(names) - 1
    decisions = []
    for position, stage_facts in enumerate(facts):
        verb, reason = _verdict(stage_facts, records.get(stage_facts.stage.name))
        if verb != NOT_APPLICABLE:
            if position < begin:
                verb, reason = LEFT_OUT, f"before --from {first}"
            elif position > end:
                verb, reason = LEFT_OUT, f"after --until {last}"
            elif first and verb == DONE:
                verb, reason = RUN, f"asked for with --from {first}"
        decisions.append(
            Decision(
                stage_facts.stage, verb, reason, stage_facts.hosts, stage_facts.digest, stage_facts.inputs
            )
        )
    return decisions


def inputs_of(values: Mapping[str, Any], content: str) -> dict[str, str]:
    """Return the digest of each input of a stage, by name; `content` is the digest of its playbook and role."""
    return {name: _digest(value)[:16] for name, value in values.items()} | {"playbook and role": content[:16]}


def _verdict(facts: Facts, record: StageRecord | None) -> tuple[str, str]:
    if facts.not_applicable:
        return NOT_APPLICABLE, facts.not_applicable
    if facts.stage.name in ALWAYS:
        return RUN, "runs each time; it only looks"
    if record is None:
        return RUN, "never run on this site"
    if record.result == VERIFIED and record.digest == facts.digest:
        return DONE, f"verified {record.at}"
    if record.result == VERIFIED:
        names = [
            name
            for name in {**record.inputs, **facts.inputs}
            if record.inputs.get(name) != facts.inputs.get(name)
        ]
        return RUN, f"changed since {record.at}: {', '.join(sorted(names))}"
    words = {FAILED: "failed", INTERRUPTED: "interrupted", REMOVED: "removed"}
    return RUN, f"{words.get(record.result, record.result)} {record.at}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
