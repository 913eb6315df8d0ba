"""Manipulations that could make an acceptance test pass on a bad cluster: none does, by the command or by pytest."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.validation.fake_target import (
    FakeTarget,
    HidesEvictions,
    NeverStarts,
    SwapsDevices,
    WitnessedTarget,
)
from tests.validation.headlines import pass_headline
from tests.validation.replay import (
    GANG,
    TR4858,
    VICTIM,
    assert_second_judge_agrees,
    both,
    run_command,
    run_pytest,
    settings,
)
from validation.catalogue.catalogue import PATH, load_catalogue
from validation.judge.events import Event, NodeSeen, OutsidersSeen, PodSeen
from validation.report.record import Command, read
from validation.targets.recorder import Recorder

OWN = """\
apiVersion: muster.dev/v1alpha1
kind: Scenario
metadata: {id: own, title: Own, source: here}
cluster: {profile: dgx1-v100-32g, nodes: 1, gpusPerNode: 8}
projects:
  own-p: {quota: 4}
steps:
- id: first
  title: First
  source: here
  run:
  - muster submit a -g 1 -p own-p
  expect: {}
"""


class NothingThere(FakeTarget):
    """A cluster without nodes and pods: commands succeed, and nothing is ever seen."""

    @asynccontextmanager
    async def recording(self, recorder: Recorder) -> AsyncIterator[None]:
        self.recorder = recorder
        yield

    def tell(self, pod: PodSeen, **changes: object) -> PodSeen:
        return pod

    def schedule(self) -> None:
        return None


class NeverBinds(FakeTarget):
    """Leaves every pod pending."""

    def schedule(self) -> None:
        return None


class OthersHold(FakeTarget):
    """A pod of another team gets GPUs during the first submit, and ends before the next."""

    def present(self) -> Event:
        return OutsidersSeen(0, "n1", 1, 0 if self.disturbed else 8000)

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if " submit " in line:
            assert self.recorder is not None
            event = self.present()
            self.recorder.record(msgspec.structs.replace(event, t_ms=self.recorder.now_ms()))
            self.disturbed = True
        return await super().execute(line, started_ms=started_ms)

    disturbed = False


class NodeAway(OthersHold):
    """A node is not ready during the first submit."""

    def present(self) -> Event:
        return NodeSeen(0, "n1", 8, ready=self.disturbed)


def written(directory: Path, text: str = OWN) -> Path:
    path = directory / "own.scenario.yaml"
    path.write_text(text)
    return path


def waivers(directory: Path, *ids: str, days: int = 30, **fields: str) -> Path:
    expires = (datetime.now(UTC).date() + timedelta(days=days)).isoformat()
    known = {"owner": "a customer", "reason": "known", "expires": expires}
    facts = ("expected", "should") if "fact" not in fields else ("",)
    entries = [{"id": name, **known, "fact": fact, **fields} for name in ids for fact in facts]
    path = directory / "waivers.yaml"
    path.write_text(json.dumps(entries))
    return path


def test_an_honest_cluster_passes_the_part_that_was_run(tmp_path: Path) -> None:
    outcome = both(tmp_path, [TR4858], parts=["fairness"])
    assert (outcome.command, outcome.pytest) == (0, 0), outcome.report.summary
    assert outcome.report.headline == pass_headline(11, "fairness")
    assert outcome.report.acceptance == "INCONCLUSIVE"


def test_1_an_empty_cluster_proves_nothing_and_cannot_be_waived(tmp_path: Path) -> None:
    accepted = waivers(tmp_path, "muster-victim/fill", "muster-victim/reclaim")
    outcome = both(tmp_path, [VICTIM], NothingThere, parts=["victims"], waivers=accepted)
    assert (outcome.command, outcome.pytest) == (1, 1)
    assert outcome.report.verdict == "ERROR"
    assert "less evidence than the check needs: 0 of 2 nodes" in outcome.report.steps[0].reason
    assert not [step.id for step in outcome.report.steps if step.verdict in {"PASS", "WAIVED"}]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (OthersHold, "1 pod outside the projects held 8 GPUs of n1"),
        (NodeAway, "node n1 was not ready"),
    ],
)
def test_no_check_passes_on_a_disturbed_cluster(
    target: type[FakeTarget], reason: str, tmp_path: Path
) -> None:
    outcome = both(tmp_path, [VICTIM], target, parts=["victims"])
    verdicts = {step.id: (step.verdict, step.reason) for step in outcome.report.steps}
    assert verdicts["muster-victim/fill"] == ("INCONCLUSIVE", reason)
    assert verdicts["muster-victim/invariant/node-capacity"] == ("INCONCLUSIVE", reason)
    assert outcome.report.verdict == "INCONCLUSIVE"
    assert_second_judge_agrees(outcome.directory)


def test_2_a_pod_that_unexpectedly_waits_is_a_failure(tmp_path: Path) -> None:
    outcome = both(tmp_path, [written(tmp_path)], NeverBinds)
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (1, 1, "FAIL")
    assert "pending but should not be: a" in outcome.report.steps[0].differences


@pytest.mark.parametrize(
    ("excuses", "verdict"), [("[]", "ERROR"), ("[pending]", "ERROR"), ("[pending, allocated]", "ERROR")]
)
def test_3_an_erratum_excuses_only_its_named_fields(tmp_path: Path, excuses: str, verdict: str) -> None:
    erratum = (
        f"- {{id: E1, section: x, says: x, contradicted_by: x, asserted: x, why: x, excuses: {excuses}}}\n"
    )
    (tmp_path / "errata.yaml").write_text(erratum)
    starving = OWN.replace("expect: {}", "errata: [E1]\n  expect: {pending: [a]}")
    outcome = both(tmp_path, [written(tmp_path, starving)], NeverBinds)
    assert (outcome.command, outcome.pytest, outcome.report.steps[0].verdict) == (1, 1, verdict)
    assert "running workloads: expected 0, are 1" in outcome.report.steps[0].reason


def test_4_inapplicable_and_omitted_checks_are_not_green(tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue.yaml"
    profile = "- id: lab\n  title: A control"
    assert profile in PATH.read_text()
    every = ", ".join(requirement.id for requirement in load_catalogue().requirements)
    nothing = "- id: none\n  title: x\n  targets: [lab]\n  notApplicable:\n"
    nothing += f"  - {{requirements: [{every}], reason: told so}}\n"
    catalogue.write_text(PATH.read_text().replace(profile, nothing + profile))
    outcome = both(tmp_path, [VICTIM], profile="none", catalogue=catalogue)
    assert {step.verdict for step in outcome.report.steps} == {"NOT_APPLICABLE"}
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (1, 1, "INCONCLUSIVE")
    chosen = settings(tmp_path / "k", parts=["victims"])
    assert run_pytest([VICTIM], chosen, "-k", "node-capacity") == 1
    report = read(tmp_path / "k")
    assert report.headline.startswith("INCONCLUSIVE: 0 of the 1 requirements asked for passed")
    assert "4 of 9 checks did not run" not in report.summary
    assert "checks did not run" in next(r.reason for r in report.requirements if r.id == "victims.borrowed")


def test_5_a_run_of_a_part_is_no_acceptance_and_names_the_omitted_parts(tmp_path: Path) -> None:
    outcome = both(tmp_path, [GANG])
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (1, 1, "INCONCLUSIVE")
    verdicts = {entry.id: (entry.verdict, entry.reason) for entry in outcome.report.requirements}
    assert verdicts["gangs.whole"][0] == "PASS"
    assert verdicts["fairness.shares"][0] == "INCONCLUSIVE"
    containers = "simulated nodes run no container"
    assert verdicts["training.resnet50"] == ("NOT_APPLICABLE", f"{containers}; --target cluster proves it")
    assert verdicts["storage.workspace"] == ("NOT_APPLICABLE", f"{containers}; --real-nodes 2 proves it")
    assert verdicts["hosts.nccl"] == ("NOT_APPLICABLE", "the lab has no hardware")
    part = both(tmp_path / "part", [GANG], parts=["gangs"])
    assert (part.command, part.pytest) == (0, 0)
    assert part.report.headline == pass_headline(1, "gangs")


def test_6_the_schedulers_own_claims_are_not_accepted_on_hardware(tmp_path: Path) -> None:
    """Without a kubelet that reports, the claim has no witness; with a kubelet that agrees, it has one."""
    alone = both(tmp_path / "alone", [GANG], profile="current", parts=["gangs", "witnesses"])
    assert (alone.command, alone.pytest, alone.report.verdict) == (1, 1, "INCONCLUSIVE")
    entry = next(entry for entry in alone.report.requirements if entry.id == "witnesses.devices")
    assert (entry.verdict, "checks did not run" in entry.reason) == ("INCONCLUSIVE", True)
    witnessed = both(tmp_path / "witnessed", [GANG], WitnessedTarget, profile="current")
    verdicts = {step.id: step.verdict for step in witnessed.report.steps}
    assert verdicts["muster-gang/invariant/kubelet-agrees"] == "PASS"
    assert verdicts["muster-gang/invariant/processes-on-own-gpus"] == "PASS"


@pytest.mark.parametrize(
    ("liar", "invariant", "witness"),
    [
        (SwapsDevices, "kubelet-agrees", "the kubelet of n1 gave pod "),
        (SwapsDevices, "processes-on-own-gpus", "the driver of n1 has a process of pod "),
        (NeverStarts, "kubelet-agrees", "the kubelet of n1 knows of no GPU of pod "),
        (
            HidesEvictions,
            "nothing-vanishes",
            "vanished: the API server deleted it, and the scheduler recorded no",
        ),
    ],
)
def test_6_an_orchestrator_that_lies_fails_and_the_witness_is_named(
    liar: type[FakeTarget], invariant: str, witness: str, tmp_path: Path
) -> None:
    outcome = both(tmp_path, [VICTIM], liar, profile="current", parts=["victims"])
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (1, 1, "FAIL")
    step = next(step for step in outcome.report.steps if step.id == f"muster-victim/invariant/{invariant}")
    assert step.verdict == "FAIL"
    assert any(witness in line for line in step.reasons), step.reasons
    requirement = {
        "kubelet-agrees": "devices",
        "processes-on-own-gpus": "processes",
        "nothing-vanishes": "evictions",
    }
    verdicts = {entry.id: entry.verdict for entry in outcome.report.requirements}
    assert verdicts[f"witnesses.{requirement[invariant]}"] == "FAIL"


def test_7_a_changed_operator_is_no_acceptance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_OPERATOR_PYTHONPATH", str(tmp_path))
    outcome = both(tmp_path, [VICTIM], parts=["victims"])
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (1, 1, "INCONCLUSIVE")
    assert "the operator was changed by MUSTER_OPERATOR_PYTHONPATH" in outcome.report.summary


def test_7_a_scenario_cannot_declare_that_it_does_not_apply(tmp_path: Path) -> None:
    path = written(tmp_path, OWN.replace("  expect: {}", "  not_applicable: I say so\n  expect: {}"))
    code, _ = run_command([path], settings(tmp_path / "r"))
    assert (code, run_pytest([path], settings(tmp_path / "p"))) == (2, 2)


def test_a_scenario_of_ones_own_under_a_name_of_ours_is_no_acceptance(tmp_path: Path) -> None:
    easy = VICTIM.read_text().replace("id: muster-victim", "id: muster-victim")
    (tmp_path / "mine.scenario.yaml").write_text(easy)
    outcome = both(tmp_path, [tmp_path / "mine.scenario.yaml"], parts=["victims"])
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (1, 1, "INCONCLUSIVE")
    assert "scenario muster-victim is not one that ships with muster" in outcome.report.summary


def test_an_accepted_deviation_is_in_the_headline(tmp_path: Path) -> None:
    accepted = waivers(tmp_path, "muster-gang/start")
    outcome = both(tmp_path, [GANG, VICTIM], LosesAGang, parts=["gangs", "victims"], waivers=accepted)
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (0, 0, "WAIVED")
    assert (
        outcome.report.headline
        == "WAIVED: 1 of the 2 requirements asked for passed, 1 WAIVED (gangs, victims)"
    )
    assert "deviation accepted by a customer until" in outcome.report.steps[2].reason
    without = both(tmp_path / "without", [GANG, VICTIM], LosesAGang, parts=["gangs", "victims"])
    assert (without.command, without.pytest, without.report.verdict) == (1, 1, "FAIL")


class LosesAGang(FakeTarget):
    """Never starts the gang: only the step in which it should start fails."""

    def bind(self, pod: PodSeen) -> PodSeen:
        return pod if pod.workload == "p-1-gang" else super().bind(pod)


@pytest.mark.parametrize(
    ("fields", "days"),
    [
        ({}, -1),
        ({}, 367),
        ({"owner": " "}, 1),
        ({"reason": ""}, 1),
        ({"expires": "soon"}, 1),
        ({"expires": "9999-12-31"}, 1),
        ({"id": "no-such"}, 1),
        ({"fact": "abc"}, 1),
        ({"fact": ""}, 1),
        ({"host": "n1"}, 1),
        ({"id": "hosts/layer/equality"}, 1),
    ],
)
def test_a_waiver_without_a_person_is_refused(tmp_path: Path, fields: dict[str, str], days: int) -> None:
    path = waivers(tmp_path, "muster-gang/start", days=days, **fields)
    code, _ = run_command([GANG], settings(tmp_path / "r", waivers=path))
    assert (code, run_pytest([GANG], settings(tmp_path / "p", waivers=path))) == (2, 2)
    assert not (tmp_path / "r").exists()


class Interrupted(FakeTarget):
    """The user interrupts the run at the first submit."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if " submit " in line:
            raise KeyboardInterrupt
        return await super().execute(line, started_ms=started_ms)


def test_an_interruption_ends_both_alike(tmp_path: Path) -> None:
    outcome = both(tmp_path, [VICTIM], Interrupted, parts=["victims"])
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (130, 130, "INCONCLUSIVE")


def test_nothing_to_run_ends_both_alike(tmp_path: Path) -> None:
    code, _ = run_command([GANG], settings(tmp_path / "r"), "no-such")
    assert (code, run_pytest([GANG], settings(tmp_path / "p"), "-k", "no-such")) == (2, 2)
    code, _ = run_command([GANG], settings(tmp_path / "r", parts=["victims"]))
    assert (code, run_pytest([GANG], settings(tmp_path / "p", parts=["victims"]))) == (2, 2)


def test_stopping_at_the_first_failure_ends_both_alike(tmp_path: Path) -> None:
    outcome = both(tmp_path, [GANG], NeverBinds, ["-x"], parts=["gangs"], fail_fast=True)
    assert (outcome.command, outcome.pytest, outcome.report.verdict) == (1, 1, "FAIL")
    shutil.rmtree(outcome.directory)
