"""The commands of `muster report` besides verify: show, render, diff and redact."""

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.validation.fake_target import FakeTarget
from tests.validation.headlines import pass_headline
from tests.validation.replay import GANG, TR4858, VICTIM, run_command, settings
from tests.validation.report.test_record import HoldsTwice
from tests.validation.test_not_fooled import waivers
from validation.judge.verdict import Verdict
from validation.report import log, record
from validation.report.conclusion import conclusion
from validation.report.manifest import digest
from validation.report.redact import BY_NAME, BY_WORD
from validation.report_command import report


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(report, [str(one) for one in arguments])


def validated(directory: Path, target: type[FakeTarget] = FakeTarget, accepted: Path | None = None) -> Path:
    run_command([GANG, VICTIM], settings(directory, target, parts=["gangs", "victims"], waivers=accepted))
    return directory


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return validated(tmp_path_factory.mktemp("good") / "r")


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return validated(tmp_path_factory.mktemp("bad") / "r", HoldsTwice)


def test_two_runs_of_one_tree_do_not_differ(good: Path, tmp_path: Path) -> None:
    done = run("diff", good, validated(tmp_path / "r"))
    assert (done.exit_code, done.output) == (0, "")


def test_differences_are_named_by_their_path_with_both_values(good: Path, bad: Path) -> None:
    done = run("diff", good, bad)
    assert done.exit_code == 1
    assert 'verdict: "PASS" and "FAIL"' in done.output.splitlines()
    assert any(
        line.startswith("steps.[muster-gang/invariant/gpu-capacity].verdict: ")
        for line in done.output.splitlines()
    )
    assert "volatile" not in done.output


def test_the_terminal_has_the_answer_and_its_obstacles(good: Path, bad: Path) -> None:
    assert run("show", good).output.startswith(pass_headline(2, "gangs, victims") + "\n")
    words = run("show", bad).output
    assert "  FAIL  muster-gang/invariant/gpu-capacity: " in words
    assert "is held 2 times" in words


def test_the_last_lines_count_the_proven_requirements_and_name_three_commands(good: Path, bad: Path) -> None:
    passed = conclusion(record.read(good), good)
    assert passed[1] == "proven:      2 requirements (gangs 1, victims 1)"
    assert passed[2].startswith("not proven:  ")
    assert "failed" not in " ".join(passed)
    assert [line.partition("  #")[0].strip() for line in passed[-3:]] == [
        f"muster report show {good}",
        f"muster report verify {good}",
        "muster validate --real-nodes 2",
    ]
    report = record.read(good)
    report.scope.profile = "lab-real"
    assert conclusion(report, good)[-1].split("  #")[0].strip() == f"muster report sign {good} --key KEY"
    report.scope.profile = "planner"
    assert conclusion(report, good)[-1].split("  #")[0].strip() == "muster lab up"
    next(each for each in report.requirements if each.verdict == Verdict.PASS).in_part = False
    assert conclusion(report, good)[1].endswith("(gangs 1, victims 1); 1 of them in the chosen parts")
    failed = conclusion(record.read(bad), bad)
    assert any(line.startswith("failed:      ") for line in failed)
    assert failed[-1].split("#")[0].strip() == "muster validate --fail-fast"


def test_one_scenario_that_passes_names_the_way_to_a_verdict(good: Path, tmp_path: Path) -> None:
    run_command([GANG], settings(tmp_path / "r", FakeTarget))
    lines = conclusion(record.read(tmp_path / "r"), tmp_path / "r")
    (hint,) = [line.strip() for line in lines if "INCONCLUSIVE" in line]
    assert hint == (
        "the verdict is INCONCLUSIVE until these pass too: leave out --scenario and --scenarios; or ask for less: add "
        "--part gangs"
    )
    assert not any("INCONCLUSIVE" in line for line in conclusion(record.read(good), good))


def test_the_terminal_obeys_no_words_of_the_cluster(bad: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bad, tmp_path / "copy"))
    result = record.read(copy)
    result.headline = "\x1b[2J gone"
    (copy / "report.json").write_bytes(record.encode(result))
    assert "\x1b" not in run("show", copy).output


def test_all_renderings_follow_from_the_record_alone(good: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(good / "report.json", alone)
    assert run("render", alone, "--out", tmp_path / "new").exit_code == 0
    names = {"report.html", "report.md", "junit.xml"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
    for name in names:
        assert (tmp_path / "new" / name).read_bytes() == (good / name).read_bytes()


def test_a_run_that_was_cut_is_rendered_too(good: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    lines = (good / "events.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "events.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    assert run("render", cut, "--out", tmp_path / "new").exit_code == 0
    assert "its log has no end" in (tmp_path / "new" / "report.html").read_text()
    assert "ERROR" in run("show", cut).output.splitlines()[0]


def test_a_redacted_report_has_other_names_and_the_same_verdicts(tmp_path: Path) -> None:
    accepted = waivers(tmp_path, "muster-victim/reclaim")
    whole = validated(tmp_path / "r", HoldsTwice, accepted)
    done = run("redact", whole, "--out", tmp_path / "redacted")
    assert done.exit_code == 0, done.output
    before, after = record.read(whole), record.read(tmp_path / "redacted")
    assert [step.verdict for step in before.steps] == [step.verdict for step in after.steps]
    assert (before.headline, before.verdict) == (after.headline, after.verdict)
    words = "".join(p.read_text() for p in (tmp_path / "redacted").iterdir())
    projects = {name for scenario in before.scenarios for name in scenario.quotas_milli}
    assert projects
    for name in [*projects, "a customer"]:
        assert f'"{name}"' not in words, name
        assert f"muster-{name}" not in words, name
    assert "project-1" in words
    verified = run("verify", tmp_path / "redacted")
    assert verified.exit_code == 0, verified.output
    assert f"made from the report whose manifest.sha256 has the sha256 {digest(whole)}" in verified.output
    assert run("redact", whole, "--out", tmp_path / "redacted").exit_code == 1, "it is there already"


def test_a_redacted_report_has_no_more_of_lists_than_is_judged(tmp_path: Path) -> None:
    run_command([TR4858], settings(tmp_path / "r"), "tr4858-4.8")
    assert "somewhere/secret" in (tmp_path / "r" / "events.jsonl").read_text()
    assert run("redact", tmp_path / "r", "--out", tmp_path / "public").exit_code == 0
    log = (tmp_path / "public" / "events.jsonl").read_text()
    assert "somewhere/secret" not in log
    assert r"\"somebody\"" in log
    assert r"\"ada\"" not in log
    before, after = (record.read(tmp_path / name) for name in ("r", "public"))
    assert [step.verdict for step in after.steps] == [step.verdict for step in before.steps]
    assert any(step.kind == "view" and step.verdict == "PASS" for step in after.steps)


class ShowsMembers(FakeTarget):
    """Shows members of a project, and projects that are not of the run."""

    def show(self, last_word: str) -> list[dict[str, Any]]:
        rows = super().show(last_word)
        if last_word == "projects":
            rows[0]["spec"]["members"] = [{"kind": "User", "name": "secret-person"}]
            rows.append({"name": "secret-project"})
        return rows


def test_a_redacted_list_names_no_person_and_its_keys_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.scenario.yaml"
    text = re.sub(r" *errata:.*\n", "", (TR4858 / "section-4.8.scenario.yaml").read_text())
    # a name like a key of the lists, and a name like a number in them
    text = text.replace("team-a", "name").replace("team-b:", '"2":').replace("-p team-b", "-p 2")
    path.write_text(text)
    run_command([path], settings(tmp_path / "r", ShowsMembers))
    assert run("redact", tmp_path / "r", "--out", tmp_path / "public").exit_code == 0
    assert "secret" not in (tmp_path / "public" / "events.jsonl").read_text()
    before, after = (record.read(tmp_path / name) for name in ("r", "public"))
    assert [step.verdict for step in after.steps] == [step.verdict for step in before.steps]
    assert {step.verdict for step in after.steps if step.kind == "view"} == {"PASS"}


def maps(kind: Any, name: str, seen: frozenset[type]) -> set[str]:
    """Return the names of all fields, below a type of the log, whose keys are free names."""
    if isinstance(kind, msgspec.inspect.DictType):
        return {name} | maps(kind.value_type, name, seen)
    if isinstance(kind, msgspec.inspect.StructType):
        below = [] if kind.cls in seen else [(field.type, field.encode_name) for field in kind.fields]
        return set[str]().union(*(maps(one, key, seen | {kind.cls}) for one, key in below))
    parts = [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    parts += [kind.item_type] if hasattr(kind, "item_type") else []
    return set[str]().union(*(maps(one, name, seen) for one in parts))


def test_each_key_of_the_log_that_can_be_a_name_is_replaced() -> None:
    """A field whose keys are names of projects, hosts or people must be in `BY_NAME`; other
    fields are listed as known.
    """
    found = maps(msgspec.inspect.type_info(log.Entry), "", frozenset())
    assert found == BY_NAME | BY_WORD


def test_a_redaction_that_would_change_a_verdict_is_refused(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validation.report.redact.BY_NAME", BY_NAME - {"allocatedMilli"})
    done = run("redact", good, "--out", tmp_path / "public")
    assert done.exit_code == 1
    assert "with other names check muster-gang/wait would be ERROR, and is PASS" in str(done.exception)
    assert not any((tmp_path / "public").iterdir())


def test_a_report_that_does_not_verify_is_not_redacted(good: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(good, tmp_path / "copy"))
    (copy / "report.md").write_text("another")
    done = run("redact", copy, "--out", tmp_path / "redacted")
    assert (done.exit_code, done.output) == (1, "report.md: was changed after the run\n")
    assert not (tmp_path / "redacted").exists()
