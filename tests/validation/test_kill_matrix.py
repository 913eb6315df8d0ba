"""The kill matrix: each shipped check has a defect that it detects, and each of these defects is tried here."""

from pathlib import Path

import pytest

from tests.validation.digests_targets import DIGESTS, with_image
from tests.validation.host_defects import HOST_DEFECTS
from tests.validation.host_doubles import FakeHosts
from tests.validation.host_judgements import NAMES
from tests.validation.mutant_targets import TARGETS, evicts_in
from tests.validation.replay import GANG, TR4858, VICTIM, assert_second_judge_agrees, run_command, settings
from tests.validation.training_targets import NETAPP1, SMALL
from validation.catalogue.kill_matrix import load_mutants
from validation.plan.acceptance import shipped_check_ids
from validation.report.record import Report
from validation.scenario.loaded import SHIPPED
from validation.scenario.loader import chains, find, load

MUTANTS = {mutant.name: mutant for mutant in load_mutants()}
SOMEBODY_ELSE = "evicts-somebody-else"
DRA = SHIPPED / "cluster" / "dra.scenario.yaml"
INSTALLATION = SHIPPED / "cluster" / "installation.scenario.yaml"
INTERACTIVE = SHIPPED / "muster" / "interactive.scenario.yaml"
FILES = {
    "binds-a-gang-in-part": [GANG],
    "evicts-interactive-work": [INTERACTIVE],
    "forgets-the-time": [SHIPPED / "muster" / "time-limit.scenario.yaml"],
    "ignores-node-groups": [SHIPPED / "muster" / "affinity.scenario.yaml"],
    "uses-cordoned-nodes": [SHIPPED / "muster" / "drained.scenario.yaml"],
    "forgets-its-promises": [SHIPPED / "muster" / "restarted.scenario.yaml"],
    "leaves-no-result": [NETAPP1, SMALL, DIGESTS],
    "corrupts-silently": [DIGESTS],
    "corrupts-everywhere": [DIGESTS],
    "corrupts-beside-an-unread-node": [DIGESTS],
    "shows-what-is-not-so": [TR4858],
    "shows-another-container": [TR4858],
    "two-volumes": [TR4858],
    "leaves-a-gpu-idle": [SHIPPED / "tr4858" / "utilization.scenario.yaml"],
    "too-old-for-claims": [DRA],
    "alters-claims": [DRA],
    "no-driver-on-a-node": [DRA],
    "two-gpus-of-a-claim": [DRA],
    "two-default-classes": [INSTALLATION],
    "nobody-leads": [INSTALLATION],
    "hides-the-mount": [TR4858],
    "clones-nothing": [TR4858],
    "takes-no-snapshot": [TR4858],
    "serves-nothing": [TR4858],
    "ignores-other-clients": [SHIPPED / "cluster" / "other-client.scenario.yaml"],
    "forgets-the-default-project": [SHIPPED / "tr4858" / "submission-default-project.scenario.yaml"],
}
"""The scenarios that show each defect. A defect without an entry shows in the scenario VICTIM."""
NEED_AN_IMAGE = {name: with_image for name, files in FILES.items() if DIGESTS in files}
"""The hosts of the site of each defect that shows only with an image that the site names."""
TRANSIENT = ("overbooks-a-node", "holds-a-gpu-twice", "interactive-beyond-quota")


def failed(report: Report | None) -> list[str]:
    assert report is not None
    return [step.id for step in report.steps if step.verdict == "FAIL"]


def test_every_check_that_ships_has_a_defect_that_it_notices() -> None:
    killers = {check for mutant in MUTANTS.values() for check in mutant.killers(shipped_check_ids())}
    assert [check for check in shipped_check_ids() if check not in killers] == []


def test_every_defect_of_the_matrix_is_put_in() -> None:
    assert {*TARGETS, *HOST_DEFECTS, SOMEBODY_ELSE} == set(MUTANTS)
    assert all(mutant.killers(shipped_check_ids()) for mutant in MUTANTS.values())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_named_check_is_the_one_that_fails(name: str, tmp_path: Path) -> None:
    hosts = NEED_AN_IMAGE.get(name)
    chosen = settings(tmp_path / "r", TARGETS[name], profile="current", patience_percent=10, open_hosts=hosts)
    paths = FILES.get(name, [VICTIM])
    code, report = run_command(paths, chosen)
    assert code == 1
    ours = {check.partition("/")[2] for check in MUTANTS[name].killers(shipped_check_ids())}
    of_run = [step.id for step in report.steps if step.id.partition("/")[2] in ours] if report else []
    assert of_run
    assert sorted(set(of_run) & set(failed(report))) == sorted(of_run)
    if name in TRANSIENT:  # no step sees the defect: only an invariant detects it
        assert all("/invariant/" in check for check in failed(report))


@pytest.mark.parametrize("name", sorted(HOST_DEFECTS))
def test_a_defect_of_a_host_is_noticed_with_the_name_of_the_host(name: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "r", profile="current", patience_percent=10, open_hosts=HOST_DEFECTS[name])
    code, report = run_command([SHIPPED / "hosts", VICTIM, SHIPPED / "hosts-after"], chosen)
    assert code == 1
    assert report is not None
    killers = MUTANTS[name].killers(shipped_check_ids())
    reasons = {step.id: step.reason for step in report.steps if step.id in killers}
    assert set(killers) <= set(failed(report))
    assert all("n2" in reason for reason in reasons.values()), reasons
    assert "n2" in report.summary
    assert_second_judge_agrees(tmp_path / "r")


def test_whole_hosts_are_without_a_failure(tmp_path: Path) -> None:
    chosen = settings(
        tmp_path / "r", profile="current", patience_percent=10, open_hosts=lambda: FakeHosts(names=NAMES)
    )
    _, report = run_command([SHIPPED / "hosts", VICTIM, SHIPPED / "hosts-after"], chosen)
    assert failed(report) == []
    assert report is not None
    layers = {step.id: step.verdict for step in report.steps if "/layer/" in step.id}
    without_subject = {"hosts/layer/fabric", "hosts-after/layer/drift"}
    assert {name for name, verdict in layers.items() if verdict != "PASS"} == without_subject


def steps() -> list[tuple[str, int, Path]]:
    """Return each shipped step: its id, its number in its chain of scenarios, and the chain's files."""
    found = []
    for group in chains(load(find())):
        number = 0
        for scenario in group:
            place = scenario.path.parent if len(group) > 1 else scenario.path
            for step in scenario.steps:
                found.append((f"{scenario.id}/{step.id}", number, place))
                number += 1
    return found


@pytest.mark.parametrize(("check", "number", "path"), steps(), ids=[name for name, _, _ in steps()])
def test_each_step_notices_an_unexpected_eviction(
    check: str, number: int, path: Path, tmp_path: Path
) -> None:
    hosts = with_image if path == DIGESTS else None
    chosen = settings(
        tmp_path / "r", evicts_in(number), profile="current", patience_percent=10, open_hosts=hosts
    )
    code, report = run_command([path], chosen, f"{check.partition('/')[0]}")
    assert code == 1
    assert [step for step in failed(report) if "/invariant/" not in step] == [check]
    assert check in MUTANTS[SOMEBODY_ELSE].killers([check])
