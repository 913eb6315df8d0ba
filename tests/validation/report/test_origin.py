"""A record that follows from itself, made by hand: it is refused where it cannot be of the run that it names."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.validation.fake_target import FakeTarget
from tests.validation.replay import GANG, VICTIM, run_command, settings
from tests.validation.report.test_record import keys
from tests.validation.test_not_fooled import NeverBinds
from validation.report import log, record, statement
from validation.report.assemble import assemble
from validation.report.verify import verify
from validation.report.write import write
from validation.report_command import NOT_COMPARED, report
from validation.run.session import Settings
from validation.targets.planner import SimulatedRecorder

Json = dict[str, Any]
Change = Callable[[list[Json]], object]


class OfACluster(FakeTarget):
    """Says that it is an existing cluster."""

    kind = "cluster"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Records of a good run and of one that failed, and of a cluster."""
    directory = tmp_path_factory.mktemp("runs")
    for name, target in (("good", FakeTarget), ("bad", NeverBinds)):
        run_command([GANG, VICTIM], settings(directory / name, target, parts=["gangs", "victims"]))
    chosen = Settings(
        target="cluster", out=directory / "cluster", open_target=OfACluster, open_recorder=SimulatedRecorder,
        parts=["gangs"],
    )  # fmt: skip
    run_command([GANG], chosen)
    return {path.name: path for path in directory.iterdir()}


def build(source: Path, directory: Path, change: Change) -> Path:
    """A record of the changed log with every digest right."""
    entries = [json.loads(line) for line in (source / log.NAME).read_text().splitlines()]
    change(entries)
    directory.mkdir()
    (directory / log.NAME).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    write(assemble(log.read_log(directory)), directory)
    return directory


def observed(entries: list[Json], kind: str = "pod") -> list[Json]:
    return [entry for entry in entries if entry["entry"] == "observed" and entry["event"]["event"] == kind]


def eased(entries: list[Json]) -> None:
    step = next(step for step in entries[0]["report"]["steps"] if step["id"] == "muster-gang/wait")
    step["expected"] |= {
        "allocatedMilli": dict.fromkeys(step["expected"]["allocatedMilli"], 0),
        "totalMilli": 0,
    }
    step["expected"] |= {"running": 0}


def eased_with_another_digest(entries: list[Json]) -> None:
    eased(entries)
    for scenario in entries[0]["report"]["scenarios"]:
        scenario["sha256"] = "ab" * 32


def eased_and_called_redacted(entries: list[Json]) -> None:
    eased(entries)
    entries[0]["report"]["redacted"] = "cd" * 32


def with_a_small_catalogue(entries: list[Json]) -> None:
    whole = entries[0]["report"]
    whole["scope"]["catalogueSha256"] = "ef" * 32
    whole["requirements"] = [one for one in whole["requirements"] if one["id"].startswith("gangs.")]


def of_its_own(entries: list[Json]) -> None:
    eased_with_another_digest(entries)
    for scenario in entries[0]["report"]["scenarios"]:
        scenario["shipped"] = False


def of_another_target(entries: list[Json]) -> None:
    for entry in entries:
        if entry["entry"] == "described":
            entry["target"] = {"kind": "cluster"}


def of_a_target_that_the_profile_does_not_have(entries: list[Json]) -> None:
    of_another_target(entries)
    entries[0]["report"]["target"] = {"kind": "cluster"}


def of_other_nodes(entries: list[Json]) -> None:
    for entry in entries:
        if entry["entry"] == "described":
            entry["cluster"]["nodes"] = [{"name": "customer-1", "gpus": 16, "product": "H100"}]


def back_in_time(entries: list[Json]) -> None:
    observed(entries)[-1]["event"]["tMs"] = 0


def of_another_day(entries: list[Json]) -> None:
    entries[0]["report"]["scope"]["today"] = "2020-01-01"


def ended_before_it_began(entries: list[Json]) -> None:
    entries[-1]["ended"] = "2020-01-01T00:00:00Z"


def with_an_event_after_the_end(entries: list[Json]) -> None:
    entries.append(entries[5])


def begun_twice(entries: list[Json]) -> None:
    entries.insert(3, entries[0])


def with_a_check_that_ends_twice(entries: list[Json]) -> None:
    entries.insert(-1, next(entry for entry in reversed(entries) if entry["entry"] == "ended"))


def that_rests_on_events_to_come(entries: list[Json]) -> None:
    window = next(entry["window"] for entry in entries if entry["entry"] == "ended" and entry["window"])
    window["untilEvent"] = 10_000


def with_an_earlier_version(entries: list[Json]) -> None:
    uid = observed(entries)[0]["event"]["uid"]
    for number, entry in enumerate(one for one in observed(entries) if one["event"]["uid"] == uid):
        entry["resourceVersion"] = str(100 - number)


def changed_long_before(entries: list[Json]) -> None:
    observed(entries)[0] |= {"resourceVersion": "7", "serverTime": "2019-01-01T00:00:00Z"}


def with_a_demand_without_end(entries: list[Json]) -> None:
    step = next(step for step in entries[0]["report"]["steps"] if step.get("oracle"))
    step["oracle"]["demands"][0]["pods"] = 10**9


def of_two_clusters(entries: list[Json]) -> None:
    for number in (1, 2):
        seen = {"event": "cluster", "tMs": 0, "kubeSystemUid": f"uid-{number}"}
        entries.insert(1, {"entry": "observed", "event": seen})


MADE: dict[Change, tuple[str, str]] = {
    eased: ("bad", "muster-gang/wait: expected is not as the file has it"),
    eased_with_another_digest: ("bad", "scenario muster-gang is not that of the version of muster"),
    eased_and_called_redacted: ("bad", "muster-gang/wait: expected is not as the file has it"),
    with_a_small_catalogue: ("bad", "the catalogue is not that of the version of muster"),
    of_its_own: ("bad", "scenario muster-gang: did not ship, and the deviations do not say so"),
    of_another_target: ("good", "the target is a cluster, and a lab was asked for"),
    of_a_target_that_the_profile_does_not_have: ("good", "the profile lab is not for the target cluster"),
    of_other_nodes: ("good", "the nodes that are described are not those of the events"),
    back_in_time: ("good", "its time is 0 ms, after"),
    of_another_day: ("good", "today is 2020-01-01 in a run that started at"),
    ended_before_it_began: ("good", "the run ends at 2020-01-01T00:00:00Z"),
    with_an_event_after_the_end: ("good", "is after the end of the run"),
    begun_twice: ("good", "the run begins again"),
    with_a_check_that_ends_twice: ("good", "ends twice"),
    that_rests_on_events_to_come: ("good", "rests on events that were not seen until then"),
    with_an_earlier_version: ("good", "is of version 99, after 100"),
    changed_long_before: ("good", "was changed at 2019-01-01T00:00:00Z in a run of"),
    of_two_clusters: ("cluster", "it is of another cluster than events before it"),
}


@pytest.mark.parametrize("change", MADE, ids=lambda change: change.__name__)
def test_a_record_that_was_made_by_hand_is_refused(
    change: Change, runs: dict[str, Path], tmp_path: Path
) -> None:
    source, words = MADE[change]
    problems = verify(build(runs[source], tmp_path / "r", change)).problems
    assert any(words in problem for problem in problems), problems


def test_a_demand_that_takes_for_ever_is_refused_unjudged(runs: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs["good"], tmp_path / "r"))
    entries = [json.loads(line) for line in (copy / log.NAME).read_text().splitlines()]
    with_a_demand_without_end(entries)
    (copy / log.NAME).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    done = CliRunner().invoke(report, ["rejudge", str(copy)])
    assert (done.exit_code, "has more pods than can be" in done.output) == (1, True)


@pytest.mark.parametrize("name", ["good", "bad", "cluster"])
def test_a_record_as_it_was_written_is_compared_whole(name: str, runs: dict[str, Path]) -> None:
    result = verify(runs[name])
    assert (result.problems, result.notes, result.is_compared) == ([], {}, True)


def of_another_version(entries: list[Json]) -> None:
    entries[0]["report"]["tool"]["version"] = "99.0.0"
    entries[0]["report"]["scope"]["catalogueSha256"] = "ef" * 32


def test_a_record_of_another_version_is_not_compared_and_signed_by_name_only(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    private, public = keys(tmp_path, "customer")
    made = build(runs["good"], tmp_path / "r", of_another_version)
    run = CliRunner().invoke
    done = run(report, ["verify", str(made)])
    assert done.exit_code == NOT_COMPARED
    assert done.output.splitlines()[-1].startswith(f"{made}: NOT COMPARED: ")
    assert "version: muster 99.0.0 made the record" in done.output
    for accepted, words in (([], "add --accept version"), (["version"], "add --accept catalogue")):
        options = [word for name in accepted for word in ("--accept", name)]
        done = run(report, ["sign", str(made), "--key", str(private), *options])
        assert (done.exit_code, words in done.output) == (1, True), done.output
        assert not (made / "statement.json").exists()
    options = ["--accept", "version", "--accept", "catalogue"]
    assert run(report, ["sign", str(made), "--key", str(private), *options, "--accept", "x"]).exit_code == 1
    assert run(report, ["sign", str(made), "--key", str(private), *options]).exit_code == 0
    assert statement.accepted(made) == ["catalogue", "version"]
    done = run(report, ["verify", str(made), "--key", str(public)])
    assert done.exit_code == NOT_COMPARED
    assert "signed with the notes catalogue, version accepted" in done.output


def test_a_redacted_record_is_compared_with_the_scenarios_but_for_names(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = CliRunner().invoke
    assert run(report, ["redact", str(runs["good"]), "--out", str(tmp_path / "public")]).exit_code == 0
    assert verify(tmp_path / "public").is_compared

    def swapped(entries: list[Json]) -> None:
        for scenario in entries[0]["report"]["scenarios"]:
            names = sorted(scenario["quotasMilli"])
            scenario["quotasMilli"] = dict(
                zip(names, [1000 * n for n in range(1, len(names) + 1)], strict=True)
            )

    problems = verify(build(tmp_path / "public", tmp_path / "r", swapped)).problems
    assert any("quotas_milli is not as the file has it" in problem for problem in problems)


def identified(entries: list[Json]) -> None:
    seen = {"event": "cluster", "tMs": 0, "kubeSystemUid": "9f0c", "caSha256": "ab" * 32}
    entries.insert(1, {"entry": "observed", "event": seen})
    for entry in entries:
        if entry["entry"] == "ended" and entry["window"]:
            entry["window"] |= {
                key: entry["window"][key] + 1 for key in ("fromEvent", "startEvent", "untilEvent")
            }
    for entry in observed(entries, "node"):
        entry["event"] |= {
            "uid": f"uid-{entry['event']['node']}",
            "systemUuid": f"system-{entry['event']['node']}",
        }


def test_the_record_says_which_cluster_and_a_redacted_one_the_same_without_a_uid(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    made = build(runs["good"], tmp_path / "r", identified)
    assert verify(made).problems == []
    identity = record.read(made).identity
    assert identity
    assert (identity.kube_system_uid, identity.ca_sha256) == ("9f0c", "ab" * 32)
    assert [(node.node, node.uid, node.system_uuid) for node in identity.nodes] == [
        ("n1", "uid-n1", "system-n1"),
        ("n2", "uid-n2", "system-n2"),
    ]
    private, _ = keys(tmp_path, "customer")
    statement.sign(made, record.read(made), private)
    assert CliRunner().invoke(report, ["redact", str(made), "--out", str(tmp_path / "public")]).exit_code == 0
    redacted = record.read(tmp_path / "public").identity
    assert redacted
    assert redacted.sha256 == identity.sha256
    assert "uid-n1" not in (tmp_path / "public" / log.NAME).read_text()

    def of_another_system(entries: list[Json]) -> None:
        identified(entries)
        observed(entries, "node")[0]["event"]["systemUuid"] = "another"

    other = record.read(build(runs["good"], tmp_path / "other", of_another_system)).identity
    assert other
    assert other.sha256 != identity.sha256
