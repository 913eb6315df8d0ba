"""The record of a run: canonical, by its schema, sealed by the manifest, and judged again to the same verdicts."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import rfc8785
import yaml

from tests.validation.fake_target import FakeTarget
from tests.validation.replay import GANG, VICTIM, run_command, settings
from tests.validation.test_not_fooled import Interrupted, LosesAGang, NeverBinds, NothingThere, waivers
from validation.catalogue.catalogue import PATH
from validation.errors import ReportError
from validation.judge.events import PodSeen
from validation.report import manifest, record
from validation.report.rejudge import rejudge
from validation.report.write import write
from validation.report_command import verify_directory
from validation.schemas import ROOT, SCHEMAS, schema


class EvictsTheWrongOne(FakeTarget):
    """Evicts everything that is preemptible before it schedules."""

    def schedule(self) -> None:
        for key, pods in self.pods.items():
            if key[1] == "r-1-gggg" and pods[0].node and len(self.pods) > 5:
                self.evict(pods[0])
                self.pods[key] = [pods[0]]
        super().schedule()


class HoldsTwice(FakeTarget):
    """Gives the same devices to everybody."""

    def bind(self, pod: PodSeen) -> PodSeen:
        bound = super().bind(pod)
        return self.tell(bound, devices=tuple(range(len(bound.devices))))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bundle") / "r"
    code, _ = run_command([GANG, VICTIM], settings(directory, parts=["gangs", "victims"]))
    assert code == 0
    (directory / "install").mkdir()
    (directory / "install" / "journal.jsonl").write_text('{"stage": "preflight"}\n')
    write(record.read(directory), directory)
    return directory


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def edited(directory: Path, change: Callable[[dict[str, Any]], None], *, sealed: bool) -> None:
    """Change the record as somebody would who knows the format; `sealed` makes the manifest fit."""
    path = directory / "report.json"
    content = json.loads(path.read_bytes())
    change(content)
    path.write_bytes(rfc8785.dumps(content))
    if sealed:
        (directory / manifest.NAME).write_bytes(manifest.render(directory))


def test_the_record_is_canonical_and_by_its_schema(bundle: Path) -> None:
    content = (bundle / "report.json").read_bytes()
    assert rfc8785.dumps(json.loads(content)) == content
    published = json.loads((ROOT / "report" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.Draft202012Validator(published).validate(json.loads(content))


def test_the_catalogue_is_by_its_schema() -> None:
    published = json.loads((ROOT / "catalogue" / "catalogue.schema.json").read_text())
    jsonschema.Draft202012Validator(published).validate(yaml.safe_load(PATH.read_text()))


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_the_published_schemas_are_current(path: Path) -> None:
    assert path.read_text() == schema(*SCHEMAS[path]), "run `make docs`"


def test_a_record_in_another_form_is_refused(copy: Path) -> None:
    path = copy / "report.json"
    path.write_text(json.dumps(json.loads(path.read_bytes())))
    with pytest.raises(ReportError, match="not in canonical form"):
        record.read(copy)


def test_two_runs_differ_in_what_is_volatile_alone(bundle: Path, tmp_path: Path) -> None:
    run_command([GANG, VICTIM], settings(tmp_path / "r", parts=["gangs", "victims"]))

    def stable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: stable(entry) for key, entry in value.items() if key != "volatile"}
        return [stable(entry) for entry in value] if isinstance(value, list) else value

    one, two = (stable(json.loads((d / "report.json").read_bytes())) for d in (bundle, tmp_path / "r"))
    assert one == two


def test_a_report_as_it_was_written_is_verified(bundle: Path) -> None:
    assert verify_directory(bundle) == []
    names = [line.split("  ")[1] for line in (bundle / manifest.NAME).read_text().splitlines()[:-1]]
    assert names == ["install/journal.jsonl", "junit.xml", "report.html", "report.json", "report.md"]


def test_every_flipped_byte_is_noticed_and_the_file_named(copy: Path) -> None:
    chance = random.Random(1)  # noqa: S311 - which bytes, not secrets
    contents = {
        path.relative_to(copy).as_posix(): path.read_bytes() for path in copy.rglob("*") if path.is_file()
    }
    for _ in range(1000):
        name = chance.choice(sorted(contents))
        content = bytearray(contents[name])
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (copy / name).write_bytes(content)
        lines = manifest.problems(copy)
        assert [line.partition(":")[0] for line in lines] == [name]
        (copy / name).write_bytes(contents[name])
    assert manifest.problems(copy) == []


def test_what_is_missing_or_was_added_is_named(copy: Path) -> None:
    (copy / "report.md").unlink()
    (copy / "more.txt").touch()
    assert verify_directory(copy) == ["report.md: is missing", "more.txt: is not of this report"]


def test_another_program_reads_the_manifest(bundle: Path) -> None:
    for line in (bundle / manifest.NAME).read_text().splitlines():
        if not line.startswith("#"):
            digest, name = line.split("  ")
            assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == digest


def make_pass(content: dict[str, Any]) -> None:
    content["steps"][0]["verdict"] = "FAIL"


def raise_the_headline(content: dict[str, Any]) -> None:
    content["headline"] = "PASS of 80 of 80 requirements: all"


def turn_a_requirement(content: dict[str, Any]) -> None:
    entry = next(entry for entry in content["requirements"] if entry["id"] == "training.resnet50")
    entry["verdict"], entry["reason"] = "PASS", ""


def accept(content: dict[str, Any]) -> None:
    content["acceptance"] = "PASS"


def cut_the_evidence(content: dict[str, Any]) -> None:
    events = content["volatile"]["timeline"]
    content["volatile"]["timeline"] = [event for event in events if event["event"] != "pod"]


@pytest.mark.parametrize(
    "change", [make_pass, raise_the_headline, turn_a_requirement, accept, cut_the_evidence]
)
def test_an_edited_verdict_is_refused_by_verify_and_by_rejudge(
    copy: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    edited(copy, change, sealed=False)
    assert verify_directory(copy) == ["report.json: was changed after the run"]
    assert rejudge(record.read(copy)) != []
    edited(copy, lambda _: None, sealed=True)
    assert all(line.startswith("report.json: ") for line in verify_directory(copy))
    assert verify_directory(copy) != []


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (FakeTarget, "PASS"),
        (NeverBinds, "FAIL"),
        (LosesAGang, "FAIL"),
        (NothingThere, "ERROR"),
        (Interrupted, "INCONCLUSIVE"),
        (HoldsTwice, "FAIL"),
        (EvictsTheWrongOne, "FAIL"),
    ],
)
def test_every_kind_of_run_is_judged_again_to_the_same_verdicts(
    target: type[FakeTarget], verdict: str, tmp_path: Path
) -> None:
    accepted = waivers(tmp_path, "muster-victim/reclaim")
    chosen = settings(tmp_path / "r", target, parts=["gangs", "victims"], waivers=accepted)
    run_command([GANG, VICTIM], chosen)
    report = record.read(tmp_path / "r")
    assert report.verdict == verdict
    assert rejudge(report) == []
    assert verify_directory(tmp_path / "r") == []


def test_a_failure_that_is_recorded_as_a_pass_is_named(tmp_path: Path) -> None:
    run_command([GANG], settings(tmp_path / "r", NeverBinds, parts=["gangs"]))
    report = record.read(tmp_path / "r")
    assert report.steps[0].verdict == "FAIL"
    lie = msgspec.convert(msgspec.to_builtins(report), record.Report)
    lie.steps[0].verdict, lie.steps[0].reason, lie.steps[0].differences = "PASS", "", []
    lines = rejudge(lie)
    assert 'check muster-gang/wait: verdict is recorded as "PASS", and follows as "FAIL"' in lines
