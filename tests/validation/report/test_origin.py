"""A consistent record made by hand is refused if it cannot be the record of the run that it names."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from click.testing import CliRunner

from tests.validation.fake_target import FakeTarget
from tests.validation.recorder_double import CLUSTER, RecorderDouble
from tests.validation.replay import GANG, VICTIM, run_command, settings
from tests.validation.report.test_record import keys
from tests.validation.test_not_fooled import NeverBinds
from validation.report import log, manifest, record, renderings, statement
from validation.report.assemble import assemble
from validation.report.verify import verify
from validation.report.write import write
from validation.report_command import NOT_COMPARED, report
from validation.run.session import Settings

Json = dict[str, Any]
Change = Callable[[list[Json]], object]


class OfACluster(FakeTarget):
    """A double that reports itself as an existing cluster."""

    kind = "cluster"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the records of a run that passed, of one that failed, and of a run on a cluster."""
    directory = tmp_path_factory.mktemp("runs")
    for name, target in (("good", FakeTarget), ("bad", NeverBinds)):
        run_command([GANG, VICTIM], settings(directory / name, target, parts=["gangs", "victims"]))
    chosen = Settings(
        target="cluster", out=directory / "cluster", open_target=OfACluster, open_recorder=RecorderDouble,
        parts=["gangs"],
    )  # fmt: skip
    run_command([GANG], chosen)
    return {path.name: path for path in directory.iterdir()}


def build(source: Path, directory: Path, change: Change) -> Path:
    """Return a record of the changed log with valid digests; its pages are those of the source."""
    entries = [json.loads(line) for line in (source / log.NAME).read_text().splitlines()]
    change(entries)
    directory.mkdir()
    (directory / log.NAME).write_bytes(b"".join(rfc8785.dumps(entry) + b"\n" for entry in entries))
    (directory / "report.json").write_bytes(record.encode(assemble(log.read_log(directory))))
    for name in renderings.NAMES:
        shutil.copy(source / name, directory / name)
    (directory / manifest.NAME).write_bytes(manifest.render(directory))
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


def with_an_earlier_version_after_a_list(entries: list[Json]) -> None:
    with_an_earlier_version(entries)
    first = observed(entries)[0]
    listed = {"event": "watch", "kind": "pods", "change": "listed", "resourceVersion": "1"}
    entries.insert(
        entries.index(first) + 1,
        {
            "entry": "observed",
            "event": listed | {"tMs": first["event"]["tMs"]},
            "resourceVersion": "",
            "serverTime": "",
        },
    )


def set_version(version: str) -> Change:
    def change(entries: list[Json]) -> None:
        observed(entries)[-1]["resourceVersion"] = version

    change.__name__ = f"of_version_{version or 'none'}"
    return change


def without_versions(entries: list[Json]) -> None:
    for entry in entries:
        if entry["entry"] == "observed":
            entry |= {"resourceVersion": "", "serverTime": ""}


def without_a_watch(entries: list[Json]) -> None:
    for entry in observed(entries, "watch"):
        entry["event"] |= {"kind": "gpunodes"}


def set_time(moment: str) -> Change:
    def change(entries: list[Json]) -> None:
        observed(entries)[3]["serverTime"] = moment

    change.__name__ = f"changed_at_{moment or 'no time'}"
    return change


def set_start(moment: str) -> Change:
    def change(entries: list[Json]) -> None:
        run = entries[0]["report"]["volatile"]["run"]
        run["started"] = moment.format(day=run["started"][:10], hour=run["started"][11:19])

    change.__name__ = f"started_{moment}"
    return change


def with_the_id_of_another_run(entries: list[Json]) -> None:
    entries[0]["report"]["volatile"]["run"]["id"] = "20200101-000000-lab-beef"


def with_the_id_of_another_target(entries: list[Json]) -> None:
    run = entries[0]["report"]["volatile"]["run"]
    run["id"] = run["id"].replace("-lab-", "-cluster-")


def longer_than_its_clock(entries: list[Json]) -> None:
    entries[-1]["durationMs"] += 5 * 3_600_000


def ended_long_after_it(entries: list[Json]) -> None:
    entries[-1]["ended"] = f"{int(entries[-1]['ended'][:4]) + 1}{entries[-1]['ended'][4:]}"


def without_a_uid_of_a_pod(entries: list[Json]) -> None:
    observed(entries)[0]["event"]["uid"] = ""


def with_two_nodes_of_one_uid(entries: list[Json]) -> None:
    for entry in observed(entries, "node"):
        entry["event"]["uid"] = "the same"


def without_a_certificate(entries: list[Json]) -> None:
    observed(entries, "cluster")[0]["event"]["caSha256"] = ""


def without_a_cluster_uid(entries: list[Json]) -> None:
    observed(entries, "cluster")[0]["event"]["kubeSystemUid"] = ""


def with_a_token_for_a_uid(entries: list[Json]) -> None:
    observed(entries, "cluster")[0]["event"]["kubeSystemUid"] = "sha256:" + "0" * 64


def of_no_cluster(entries: list[Json]) -> None:
    event = observed(entries, "cluster")[0]["event"]
    times = {"tMs": event["tMs"]}
    event.clear()
    event.update({"event": "watch", "kind": "namespaces", "change": "absent", "resourceVersion": ""} | times)
    entry = next(entry for entry in entries if entry.get("event") is event)
    entry |= {"resourceVersion": "", "serverTime": ""}


def without_beginnings(entries: list[Json]) -> None:
    entries[:] = [entry for entry in entries if entry["entry"] != "began"]


def without_scenarios(entries: list[Json]) -> None:
    entries[:] = [entry for entry in entries if entry["entry"] != "scenario"]


def without_an_end(entries: list[Json]) -> None:
    entries.remove(next(entry for entry in entries if entry["entry"] == "ended"))


def of_two_versions(entries: list[Json]) -> None:
    described = next(entry for entry in entries if entry["entry"] == "described")
    other = json.loads(json.dumps(described))
    other["cluster"]["kubernetes"] = "v9"
    entries.insert(entries.index(described), other)


def with_fewer_selected(entries: list[Json]) -> None:
    entries[0]["selected"] = entries[0]["selected"][:3]


def title_of_another_hand(entries: list[Json]) -> None:
    entries[0]["report"]["steps"][0]["title"] = "It is all well"


def of_other_requirements(entries: list[Json]) -> None:
    entries[0]["report"]["steps"][0]["requirements"] = []


def without_defects(entries: list[Json]) -> None:
    entries[0]["report"]["mutants"] = []


def with_other_killers(entries: list[Json]) -> None:
    entries[0]["report"]["mutants"][0]["killers"].reverse()


def without_errata(entries: list[Json]) -> None:
    entries[0]["report"]["errata"] = [] if entries[0]["report"]["errata"] else [ERRATUM]


ERRATUM: Json = dict.fromkeys(("id", "section", "says", "contradicted_by", "asserted", "why"), "x") | {
    "excuses": []
}


def decided_before(entries: list[Json]) -> None:
    entries[0]["report"]["steps"][0]["verdict"] = "PASS"


def title_of_a_scenario(entries: list[Json]) -> None:
    entries[0]["report"]["scenarios"][0]["title"] = "x"


def without_a_check(entries: list[Json]) -> None:
    steps = entries[0]["report"]["steps"]
    gone = next(step["id"] for step in steps if step["kind"] == "invariant")
    entries[0]["report"]["steps"] = [step for step in steps if step["id"] != gone]
    entries[0]["selected"].remove(gone)
    entries[:] = [entry for entry in entries if entry.get("check") != gone]
    for defect in entries[0]["report"]["mutants"]:
        defect["killers"] = [killer for killer in defect["killers"] if killer != gone]


def waived(**changes: str) -> Change:
    def change(entries: list[Json]) -> None:
        report, day = entries[0]["report"], entries[0]["report"]["scope"]["today"]
        waiver = {
            "id": report["steps"][0]["id"],
            "owner": "x",
            "reason": "x",
            "expires": day,
            "fact": "expected",
        }
        report["scope"]["waivers"] = [waiver | {"host": ""} | changes]

    change.__name__ = f"waived_{'_'.join(f'{key}={value}' for key, value in changes.items())}"
    return change


def waived_twice(entries: list[Json]) -> None:
    waived()(entries)
    entries[0]["report"]["scope"]["waivers"] *= 2


def called_redacted(entries: list[Json]) -> None:
    entries[0]["report"]["redacted"] = "cd" * 32


def changed_long_before(entries: list[Json]) -> None:
    observed(entries)[0] |= {"serverTime": "2019-01-01T00:00:00Z"}


def with_a_demand_without_end(entries: list[Json]) -> None:
    step = next(step for step in entries[0]["report"]["steps"] if step.get("oracle"))
    step["oracle"]["demands"][0]["pods"] = 10**9


def of_two_clusters(entries: list[Json]) -> None:
    seen = observed(entries, "cluster")[0]
    other = json.loads(json.dumps(seen))
    other["event"]["kubeSystemUid"] = "another"
    entries.insert(entries.index(seen) + 1, other)


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
    with_an_earlier_version_after_a_list: ("good", "is of version 99, after 100"),
    without_versions: ("good", "has the version ``, which is none"),
    without_a_watch: ("good", "pods or nodes were seen, and never listed"),
    with_the_id_of_another_run: ("good", "is not one of a lab that started at"),
    with_the_id_of_another_target: ("good", "is not one of a lab that started at"),
    longer_than_its_clock: ("good", "by the wall clock: it was set, or the machine slept"),
    ended_long_after_it: ("good", "by the wall clock: it was set, or the machine slept"),
    without_a_uid_of_a_pod: ("good", "has no uid"),
    with_two_nodes_of_one_uid: ("good", "has no uid, or that of another node"),
    without_a_certificate: ("good", "the cluster has no uid, or its API server no certificate"),
    without_a_cluster_uid: ("good", "the cluster has no uid, or its API server no certificate"),
    with_a_token_for_a_uid: ("good", "is a token in a record of names"),
    of_no_cluster: ("good", "pods or nodes were seen, and no cluster"),
    without_beginnings: ("good", "ends, and did not begin"),
    without_scenarios: ("good", "rests on the scenario muster-gang, which did not begin"),
    without_an_end: ("good", "begins before the check before it ends"),
    of_two_versions: ("good", "the cluster has another version of Kubernetes than before"),
    with_fewer_selected: ("good", "was not selected"),
    title_of_another_hand: ("good", "title is not as the file has it"),
    of_other_requirements: ("good", "requirements is not as the file has it"),
    without_defects: ("good", "the defects are not those that the checks were shown to notice"),
    with_other_killers: ("good", "the defects are not those that the checks were shown to notice"),
    without_errata: ("good", "the errata are not those of the scenarios"),
    decided_before: ("good", "it has results before the run"),
    title_of_a_scenario: ("good", "scenario muster-gang: title is not as the file has it"),
    without_a_check: ("good", "the checks are not those of the scenarios"),
    waived(owner=" "): ("good", "has no owner or no reason"),
    waived(fact="e"): ("good", "names no fact of at least 4 characters"),
    waived(expires="9999-12-31"): ("good", "or more than a year after it"),
    waived(expires="2020-01-01"): ("good", "or more than a year after it"),
    waived(expires="2027-02-30"): ("good", "which is no day"),
    waived(host="n1"): ("good", "names no host, or is not about a host"),
    waived(id="muster-gang/nowhere"): ("good", "is for a check that does not exist"),
    waived_twice: ("good", "is waived twice"),
    called_redacted: ("good", "has names in a record that is called redacted"),
    **{
        set_version(version): ("good", f"has the version `{version}`, which is none")
        for version in ("", "0", "abc", "007", "\u0663", "9" * 21)
    },
    set_version("1"): ("good", "is of version"),
    **{
        set_time(moment): ("good", "is no time")
        for moment in ("", "garbage", "2026-11-27T17:29:36", "2026-11-27 17:29:36Z", "2026-13-01T00:00:00Z")
    },
    **{
        set_start(moment): ("good", "is no time")
        for moment in (
            "{day} {hour}Z",
            "{day}T{hour}+00:00",
            "{day}T{hour}.5Z",
            "{day}t{hour}z",
            "2026-W48-5T17:29:32Z",
            "{day}T{hour}",
        )
    },
}


BY_SOURCES = {
    eased, eased_with_another_digest, with_a_small_catalogue, of_its_own, of_a_target_that_the_profile_does_not_have,
    with_a_demand_without_end, title_of_another_hand, of_other_requirements, without_defects, with_other_killers,
    without_errata, title_of_a_scenario, without_a_check,
}  # fmt: skip
"""Changes that only a comparison with the catalogue and the scenarios can detect."""


@pytest.mark.parametrize("change", MADE, ids=lambda change: change.__name__)
def test_a_record_that_was_made_by_hand_is_refused(
    change: Change, runs: dict[str, Path], tmp_path: Path, second_verifier: Path
) -> None:
    source, words = MADE[change]
    made = build(runs[source], tmp_path / "r", change)
    problems = verify(made).problems
    assert any(words in problem for problem in problems), problems
    done = subprocess.run([second_verifier, made], capture_output=True, text=True, check=False)
    by_waivers = change.__name__.startswith("waived") or change is decided_before
    assert done.returncode == 1 or change in BY_SOURCES or by_waivers, done.stdout


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


def test_a_run_of_an_own_scenario_is_signed_by_name(tmp_path: Path) -> None:
    own = tmp_path / "mine" / "my.scenario.yaml"
    own.parent.mkdir()
    own.write_text(GANG.read_text().replace("id: muster-gang", "id: my-gang"))
    run_command([own], settings(tmp_path / "r", FakeTarget))
    private, public = keys(tmp_path, "customer")
    run, made = CliRunner().invoke, str(tmp_path / "r")
    done = run(report, ["verify", made])
    assert (done.exit_code, "did not ship" in done.output) == (NOT_COMPARED, True), done.output
    assert run(report, ["sign", made, "--key", str(private)]).exit_code == 1
    accepted = run(report, ["sign", made, "--key", str(private), "--accept", "scenario:my-gang"])
    assert accepted.exit_code == 0, accepted.output
    assert run(report, ["verify", made, "--key", str(public)]).exit_code == NOT_COMPARED


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


def retitled(*kinds: str, version: str = "") -> Change:
    """Return a change that gives the checks of these kinds the title `All is well` everywhere in the log."""

    def change(entries: list[Json]) -> None:
        report = entries[0]["report"]
        report["tool"]["version"] = version or report["tool"]["version"]
        for step in report["steps"]:
            if step["kind"] in kinds:
                step["title"] = "All is well"

    return change


@pytest.mark.parametrize("version", ["", "99.0.0"])
def test_a_reworded_title_is_named_and_not_shown_and_signed_by_name_only(
    version: str, runs: dict[str, Path], tmp_path: Path, second_verifier: Path
) -> None:
    private, public = keys(tmp_path, "customer")
    made = build(runs["good"], tmp_path / "r", retitled("invariant", version=version))
    run = CliRunner().invoke
    done = run(report, ["verify", str(made)])
    own = "No node ever holds more GPUs than it has."
    words = f"muster-gang/invariant/node-capacity is `All is well`, here `{own}`"
    assert (done.exit_code, words in done.output) == (NOT_COMPARED, True), done.output
    for command, shown in (("render", tmp_path / "pages" / "report.html"), ("show", None)):
        done = run(report, [command, str(made), *(["--out", str(tmp_path / "pages")] if shown else [])])
        text = shown.read_text() if shown else done.output
        assert (done.exit_code, "All is well" in text) == (0, False)
    assert own in (tmp_path / "pages" / "report.html").read_text()
    names = ["titles", *(["version"] if version else [])]
    options = [word for name in names for word in ("--accept", name)]
    assert run(report, ["sign", str(made), "--key", str(private), *options[2:]]).exit_code == 1
    assert run(report, ["sign", str(made), "--key", str(private), *options]).exit_code == 0
    assert statement.accepted(made) == names
    assert run(report, ["verify", str(made), "--key", str(public)]).exit_code == NOT_COMPARED
    second = subprocess.run(
        [second_verifier, "-key", public, made], capture_output=True, text=True, check=False
    )
    assert second.returncode == 0, second.stdout


def with_endless_titles(entries: list[Json]) -> None:
    for step in entries[0]["report"]["steps"]:
        if step["kind"] == "invariant":
            step["title"] = "\x1b[2J" + "x" * 1_000_000


def test_a_note_on_titles_is_short_and_inert(runs: dict[str, Path], tmp_path: Path) -> None:
    made = build(runs["good"], tmp_path / "r", with_endless_titles)
    done = CliRunner().invoke(report, ["verify", str(made)])
    assert (done.exit_code, len(done.output) < 10_000, "\x1b" in done.output) == (NOT_COMPARED, True, False)


@pytest.mark.parametrize("version", ["", "99.0.0"])
def test_a_reworded_title_of_a_step_is_refused_while_its_scenario_is_the_same(
    version: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    made = build(runs["good"], tmp_path / "r", retitled("step", "invariant", version=version))
    problems = verify(made).problems
    assert problems
    assert all("title is not as the file has it" in line and "/invariant/" not in line for line in problems)


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


def of_systems(entries: list[Json]) -> None:
    for entry in observed(entries, "node"):
        entry["event"]["systemUuid"] = f"system-{entry['event']['node']}"


def test_the_record_says_which_cluster_and_a_redacted_one_the_same_without_a_uid(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    made = build(runs["good"], tmp_path / "r", of_systems)
    write(record.read(made), made)
    assert verify(made).problems == []
    identity = record.read(made).identity
    assert identity
    assert (identity.kube_system_uid, identity.ca_sha256) == (CLUSTER.kube_system_uid, CLUSTER.ca_sha256)
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
    assert "uid-" not in (tmp_path / "public" / log.NAME).read_text()

    def of_another_system(entries: list[Json]) -> None:
        of_systems(entries)
        observed(entries, "node")[0]["event"]["systemUuid"] = "another"

    other = record.read(build(runs["good"], tmp_path / "other", of_another_system)).identity
    assert other
    assert other.sha256 != identity.sha256
