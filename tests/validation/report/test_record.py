"""The record of a run is canonical, valid by its schema and sealed by the manifest; judging it again gives its
verdicts.
"""

import base64
import hashlib
import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import rfc8785
import yaml
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.validation.fake_target import FakeTarget
from tests.validation.headlines import REQUIREMENTS, pass_headline
from tests.validation.replay import GANG, VICTIM, run_command, settings
from tests.validation.test_not_fooled import Interrupted, LosesAGang, NeverBinds, NothingThere, waivers
from validation.catalogue.catalogue import PATH
from validation.errors import ReportError
from validation.forms import PAGE, TABLE, page, table
from validation.judge.events import PodSeen
from validation.report import log, manifest, record, statement
from validation.report.assemble import assemble, rejudge
from validation.report.verify import verify
from validation.report.write import write
from validation.report_command import report
from validation.schemas import ROOT, SCHEMAS, schema


class EvictsTheWrongOne(FakeTarget):
    """Evicts every preemptible pod before it schedules."""

    def schedule(self) -> None:
        for key, pods in self.pods.items():
            if key[1] == "r-1-gggg" and pods[0].node and len(self.pods) > 5:
                self.evict(pods[0])
                self.pods[key] = [pods[0]]
        super().schedule()


class HoldsTwice(FakeTarget):
    """Gives the same devices to every pod."""

    def bind(self, pod: PodSeen) -> PodSeen:
        bound = super().bind(pod)
        return self.tell(bound, devices=tuple(range(len(bound.devices))))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bundle") / "r"
    (directory / "install").mkdir(parents=True)
    (directory / "install" / "journal.jsonl").write_text('{"stage": "preflight"}\n')
    code, _ = run_command([GANG, VICTIM], settings(directory, parts=["gangs", "victims"]))
    assert code == 0
    return directory


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def verify_directory(directory: Path, *keys: Path) -> list[str]:
    return verify(directory, *keys).problems


def edited(directory: Path, change: Callable[[dict[str, Any]], None], *, sealed: bool) -> None:
    """Change the record; with `sealed`, update the manifest too, as a person would who knows the format."""
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


def test_the_forms_of_the_page_and_of_the_second_verifier_are_current() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"
    assert TABLE.read_text() == table(), "run `make docs`"


def test_a_record_in_another_form_is_refused(copy: Path) -> None:
    path = copy / "report.json"
    path.write_text(json.dumps(json.loads(path.read_bytes())))
    with pytest.raises(ReportError, match="not in canonical form"):
        record.read(copy)


def test_two_runs_differ_in_volatile_values_alone(bundle: Path, tmp_path: Path) -> None:
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
    assert names == [
        "events.jsonl",
        "install/journal.jsonl",
        "junit.xml",
        "report.html",
        "report.json",
        "report.md",
    ]


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


def test_missing_or_added_files_are_named(copy: Path) -> None:
    (copy / "report.md").unlink()
    (copy / "more.txt").touch()
    assert verify_directory(copy) == ["report.md: is missing", "more.txt: is not of this report"]


def test_a_link_in_a_report_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "report.md").rename(tmp_path / "elsewhere.md")
    (copy / "report.md").symlink_to(tmp_path / "elsewhere.md")
    assert verify_directory(copy) == ["report.md: is no plain file, so its target can change"]


FORMS = {
    "a key twice": (b'"phase":"Running"', b'"phase":"Pending","phase":"Running"'),
    "a key of no event": (b'"phase":"Running"', b'"phase":"Running","phases":""'),
    "a key less": (b',"serverTime":', b',"ServerTime":'),
    "a space": (b'"phase":"Running"', b'"phase": "Running"'),
    "another order": (b'{"entry":"observed",', b'{"entry":"observed"  ,'),
    "a space at the end": (b"}\n", b"} \n"),
    "a carriage return": (b"}\n", b"}\r\n"),
    "minus zero": (b'"priority":50', b'"priority":-0'),
    "a fraction": (b'"priority":50', b'"priority":50.0'),
    "an exponent": (b'"priority":50', b'"priority":5e1'),
    "a number of more than 53 bits": (b'"priority":50', b'"priority":9007199254740993'),
    "an escape": (b'"phase":"Running"', b'"phase":"\\u0052unning"'),
    "half a character": (b'"phase":"Running"', b'"phase":"\\ud800"'),
    "nothing": (b'"phase":"Running"', b'"phase":null'),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_line_of_the_log_in_another_form_is_refused(name: str, copy: Path) -> None:
    old, new = FORMS[name]
    path = copy / log.NAME
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if b'"phase":"Running"' in line and old in line)
    lines[number] = lines[number].replace(old, new)
    path.write_bytes(b"".join(lines))
    edited(copy, lambda _: None, sealed=True)
    problems = verify_directory(copy)
    assert any("is not in canonical form" in line or "is not a log of a run" in line for line in problems)


def keys(directory: Path, name: str) -> tuple[Path, Path]:
    """Return the files of a private key and its public key."""
    private = Ed25519PrivateKey.generate()
    one, other = directory / f"{name}.key", directory / f"{name}.pub"
    one.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    other.write_bytes(
        private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return one, other


def test_supplier_and_customer_sign_and_each_is_verified(copy: Path, tmp_path: Path) -> None:
    supplier, customer, nobody = (keys(tmp_path, name) for name in ("supplier", "customer", "nobody"))
    assert verify_directory(copy, supplier[1]) == ["statement.json: is missing: this report has no signature"]
    for private, _ in (supplier, customer, supplier):
        statement.sign(copy, record.read(copy), private)
    assert len(statement.signers(copy)) == 2
    assert verify_directory(copy, supplier[1]) == verify_directory(copy, customer[1]) == []
    assert verify_directory(copy, nobody[1]) == [f"statement.json: has no signature of {nobody[1]}"]
    assert verify(copy, supplier[1], customer[1]).problems == []
    assert verify(copy, supplier[1], nobody[1]).problems == [
        f"statement.json: has no signature of {nobody[1]}"
    ]


def test_openssl_verifies_the_signature(copy: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "supplier")
    envelope = json.loads(statement.sign(copy, record.read(copy), private).read_bytes())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    (tmp_path / "covered").write_bytes(f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload)
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(public), "-rawin", "-in", "covered"]
    subprocess.run([*command, "-sigfile", "sig"], cwd=tmp_path, check=True, capture_output=True)
    content = json.loads(payload)
    assert content["_type"] == "https://in-toto.io/Statement/v1"
    assert content["subject"][1]["name"] == "report.json"
    digest = hashlib.sha256((copy / "report.json").read_bytes()).hexdigest()
    assert content["subject"][1]["digest"] == {"sha256": digest}
    assert content["predicate"]["headline"] == pass_headline(2, "gangs, victims")


def test_a_statement_is_of_one_report_and_not_a_byte_of_it_changes(copy: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "supplier")
    content = statement.sign(copy, record.read(copy), private).read_bytes()
    result = record.read(copy)
    chance = random.Random(2)  # noqa: S311 - which bytes, not secrets
    for _ in range(200):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (copy / "statement.json").write_bytes(flipped)
        lines = statement.problems(copy, result, public)
        assert {line.partition(":")[0] for line in lines} == {"statement.json"}
    (copy / "statement.json").write_bytes(content)
    write(record.read(copy), copy)
    assert not (copy / "statement.json").exists(), "a report that is written again is not signed"
    (copy / "report.md").write_text("another")
    (copy / manifest.NAME).write_bytes(manifest.render(copy))
    (copy / "statement.json").write_bytes(content)
    assert verify_directory(copy, public) == ["statement.json: was made for another report"]


def test_a_report_that_does_not_verify_is_not_signed(copy: Path, tmp_path: Path) -> None:
    private, _ = keys(tmp_path, "supplier")
    edited(copy, make_pass, sealed=True)
    done = CliRunner().invoke(report, ["sign", str(copy), "--key", str(private)])
    assert done.exit_code == 1
    assert "verdict is recorded as" in done.output
    assert not (copy / "statement.json").exists()
    (tmp_path / "no.key").write_text("x")
    write(record.read(copy), copy)
    with pytest.raises(ReportError, match="no private key in PEM"):
        statement.sign(copy, record.read(copy), tmp_path / "no.key")


def test_the_command_names_its_checks(copy: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "supplier")
    run = CliRunner().invoke
    assert run(report, ["rejudge", str(copy)]).output == pass_headline(2, "gangs, victims") + "\n"
    assert run(report, ["sign", str(copy), "--key", str(private)]).exit_code == 0
    unknown = "NOT CHECKED, give each --key: the signature of"
    assert unknown in run(report, ["verify", str(copy)]).output
    done = run(report, ["verify", str(copy), "--key", str(public)])
    assert (done.exit_code, "--key" in done.output) == (0, False)
    (copy / "report.md").write_text("another")
    done = run(report, ["verify", str(copy)])
    assert (done.exit_code, done.output) == (1, "report.md: was changed after the run\n")


def test_another_program_reads_the_manifest(bundle: Path) -> None:
    for line in (bundle / manifest.NAME).read_text().splitlines():
        if not line.startswith("#"):
            digest, name = line.split("  ")
            assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == digest


def make_pass(content: dict[str, Any]) -> None:
    content["steps"][0]["verdict"] = "FAIL"


def raise_the_headline(content: dict[str, Any]) -> None:
    content["headline"] = pass_headline(REQUIREMENTS, "all")


def turn_a_requirement(content: dict[str, Any]) -> None:
    entry = next(entry for entry in content["requirements"] if entry["id"] == "training.resnet50")
    entry["verdict"], entry["reason"] = "PASS", ""


def accept(content: dict[str, Any]) -> None:
    content["acceptance"] = "PASS"


def tell_of_other_events(content: dict[str, Any]) -> None:
    content["volatile"]["events"]["sha256"] = "0" * 64


@pytest.mark.parametrize(
    "change", [make_pass, raise_the_headline, turn_a_requirement, accept, tell_of_other_events]
)
def test_an_edited_verdict_is_refused_by_verify_and_by_rejudge(
    copy: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    edited(copy, change, sealed=False)
    assert verify_directory(copy) == ["report.json: was changed after the run"]
    assert rejudge(record.read(copy), log.read_log(copy)) != []
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
    result = record.read(tmp_path / "r")
    assert result.verdict == verdict
    assert rejudge(result, log.read_log(tmp_path / "r")) == []
    assert verify_directory(tmp_path / "r") == []


def tell_another_command(content: dict[str, Any]) -> None:
    content["steps"][0]["volatile"]["commands"][0]["line"] = "muster submit nothing"


def tell_of_more(content: dict[str, Any]) -> None:
    content["volatile"]["events"]["events"] += 1


@pytest.mark.parametrize("change", [tell_another_command, tell_of_more])
def test_a_record_that_does_not_follow_from_its_log_is_refused(
    copy: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    edited(copy, change, sealed=True)
    lines = verify_directory(copy)
    assert lines
    assert all(line.startswith("report.json: ") for line in lines)


def test_a_log_without_the_events_that_a_verdict_rests_on_is_refused(copy: Path) -> None:
    path = copy / log.NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"event":"pod"' not in line))
    assert verify_directory(copy) == ["events.jsonl: was changed after the run"]
    edited(copy, lambda _: None, sealed=True)
    problems = verify_directory(copy)
    assert any("muster-gang/wait: verdict is recorded as" in line for line in problems)
    assert any(line.startswith("report.json: volatile is recorded") for line in problems)


def test_a_report_without_its_log_is_refused(copy: Path) -> None:
    (copy / "events.jsonl").unlink()
    assert verify_directory(copy) == ["events.jsonl: is missing"]
    (copy / manifest.NAME).write_bytes(manifest.render(copy))
    (line,) = verify_directory(copy)
    assert line.endswith("events.jsonl: cannot be read: No such file or directory")


def declare_it_not_applicable(content: dict[str, Any]) -> None:
    entry = next(entry for entry in content["requirements"] if entry["id"] == "training.resnet50")
    entry["verdict"], entry["reason"], entry["notApplicable"] = "NOT_APPLICABLE", "why not", "why not"


def need_less(content: dict[str, Any]) -> None:
    step = content["steps"][0]
    step["expected"] = content["steps"][1]["expected"]


def leave_a_check_out(content: dict[str, Any]) -> None:
    entry = next(entry for entry in content["requirements"] if entry["id"] == "gangs.whole")
    entry["checks"] = entry["checks"][:1]


def leave_a_requirement_out(content: dict[str, Any]) -> None:
    content["requirements"] = content["requirements"][1:]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (declare_it_not_applicable, "requirement training.resnet50: is not as the catalogue"),
        (need_less, "check muster-gang/wait: expected is not as the file has it"),
        (leave_a_check_out, "requirement gangs.whole: is not as the catalogue"),
        (leave_a_requirement_out, "the requirements are not those of the catalogue"),
    ],
)
def test_a_record_that_asks_for_less_than_the_documents_is_refused(
    copy: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    first, _, rest = (copy / log.NAME).read_bytes().partition(b"\n")
    opened = json.loads(first)
    change(opened["report"])
    (copy / log.NAME).write_bytes(rfc8785.dumps(opened) + b"\n" + rest)
    write(assemble(log.read_log(copy)), copy)
    assert any(words in line for line in verify_directory(copy))
    done = CliRunner().invoke(report, ["rejudge", str(copy)])
    assert done.exit_code == 1
    assert words in done.output


def test_other_versions_in_this_installation_are_named(copy: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["tool"]["version"] = "99.0.0"
        content["scope"]["catalogueSha256"] = content["scenarios"][0]["sha256"] = "0" * 64

    edited(copy, change, sealed=False)
    first, _, rest = (copy / log.NAME).read_text().partition("\n")
    opened = json.loads(first)
    change(opened["report"])
    (copy / log.NAME).write_text(rfc8785.dumps(opened).decode() + "\n" + rest)

    def name_the_log(content: dict[str, Any]) -> None:
        content["volatile"]["events"]["sha256"] = hashlib.sha256((copy / log.NAME).read_bytes()).hexdigest()

    edited(copy, name_the_log, sealed=True)
    done = CliRunner().invoke(report, ["verify", str(copy)])
    assert done.exit_code == 4, done.output
    assert "the catalogue is another one here" in done.output
    assert "scenario muster-gang is another one here" in done.output


def test_a_failure_that_is_recorded_as_a_pass_is_named(tmp_path: Path) -> None:
    run_command([GANG], settings(tmp_path / "r", NeverBinds, parts=["gangs"]))
    result = record.read(tmp_path / "r")
    assert result.steps[0].verdict == "FAIL"
    lie = msgspec.convert(msgspec.to_builtins(result), record.Report)
    lie.steps[0].verdict, lie.steps[0].reason, lie.steps[0].differences = "PASS", "", []
    lines = rejudge(lie, log.read_log(tmp_path / "r"))
    assert 'check muster-gang/wait: verdict is recorded as "PASS", and follows as "FAIL"' in lines
