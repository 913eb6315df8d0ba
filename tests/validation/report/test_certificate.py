"""The first page of a report: each of its facts is in the signed predicate, and follows from the log."""

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rfc8785
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchestrator.signing_keys import read_private_key
from tests.validation.report.honest_records import beside_an_earlier_record
from tests.validation.report.records import three_steps
from tests.validation.report.test_doctored import accepted_by_the_second
from tests.validation.report.test_origin import build
from tests.validation.report.test_record import keys
from validation.judge.verdict import Verdict, gravest
from validation.judge.waivers import Waiver
from validation.report import html, log, record, statement
from validation.report.assemble import assemble
from validation.report.certificate import predicate
from validation.report.record import GpuIdentity, Identity, NodeIdentity, Report, RequirementResult
from validation.report.rejudge import disagreements
from validation.report.verify import verify

Json = dict[str, Any]
TEMPLATE = Path(html.__file__).parent / "templates" / "certificate.html.j2"


class FirstPage(HTMLParser):
    """Collects the text nodes of the certificate."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.texts = 0, list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth += tag == "section"

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "section"

    def handle_data(self, data: str) -> None:
        if self.depth and data.strip():
            self.texts.append(" ".join(data.split()))


def texts(page: str) -> list[str]:
    parser = FirstPage()
    parser.feed(page)
    return parser.texts


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield each value in the predicate that has no parts, and each key of an object, with its path."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path, value


def facts(signed: Json) -> list[str]:
    """Return all values and keys in the predicate, and the lengths of its lists, the longest text first."""
    found = {str(value) for _, value in leaves(signed)}
    found |= {str(key) for path, _ in leaves(signed) for key in path if isinstance(key, str)}
    found |= {str(sum(layer["counts"].values())) for layer in signed["layers"]} | {"0"}
    found |= {str(len(limit["requirements"])) for limit in signed["limits"]}
    for name, shown in (
        ("hosts", html.MAX_HOSTS),
        ("waivers", html.MAX_WAIVERS),
        ("deviations", html.MAX_WAIVERS),
    ):
        found.add(str(len(signed[name]) - shown))
    found |= {str(len(signed["limits"]) - html.MAX_LIMITS)}
    return sorted(filter(None, found), key=len, reverse=True)


def unsigned(page: str, signed: Json) -> list[str]:
    """Return the words on the first page that are neither in the predicate nor fixed in its template."""
    fixed = re.sub(r"{%.*?%}|{{.*?}}|<[^>]*>|&\w+;", " ", TEMPLATE.read_text())
    words = {word.strip(".") for word in re.findall(r"[\w.-]+", fixed)} | {""}
    known = facts(signed)
    found = []
    for text in texts(page):
        cut = re.search(r"(\S.*)…", text)
        rest = text.replace(cut[0], " ") if cut and any(cut[1] in fact for fact in known) else text
        for fact in known:
            rest = re.sub(rf"(?<![\w.-]){re.escape(fact)}(?![\w-]|\.\w)", " ", rest)
        found += [word for word in re.findall(r"[\w.-]+", rest) if word.strip(".") not in words]
    return found


def report_with_everything(many: int) -> Report:
    """Return a report with `many` of each object that a certificate lists, and with words that occur only once."""
    report = three_steps()
    uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    nodes = [
        NodeIdentity(
            f"zeta{n}",
            f"{uid}-{n}",
            f"{uid}-s{n}",
            [GpuIdentity(f"GPU-{n}{g}", f"165{n}{g}") for g in range(8)],
        )
        for n in range(many)
    ]
    report.identity = Identity("ab" * 32, uid, "cd" * 32, nodes)
    report.cluster = {"kubernetes": "v1.36.3", "gpus": 8 * many}
    report.scope.deviations = [f"quirk{n} of the operator" for n in range(many)]
    report.scope.waivers = [
        Waiver("hosts/layer/equality", f"ada{n}", f"vBIOS{n} is late", "2026-12-31", f"older{n}", f"zeta{n}")
        for n in range(many)
    ]
    report.requirements += [
        RequirementResult(
            f"part{n}.x", "§1", "It holds.", "", "s", "NOT_APPLICABLE", not_applicable=f"lacks{n}"
        )
        for n in range(many)
    ]
    report.interrupted, report.redacted = "sigint came", "ef" * 32
    report.summary = f"omega {'very ' * 99}long"
    return report


@pytest.mark.parametrize("many", [0, 1, 2, 12])
def test_each_text_of_the_first_page_is_signed(many: int) -> None:
    report = report_with_everything(many)
    page = html.render(report)
    assert len(texts(page)) > 40
    assert unsigned(page, predicate(report)) == []


def test_each_text_about_hosts_and_their_baseline_is_signed(run: Path) -> None:
    report = record.read(run)
    signed = predicate(report)
    assert unsigned(html.render(report), signed) == []
    assert unsigned(html.render(report), {**signed, "baseline": {}})


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes",
        "muster",
        "run",
        "started",
        "kubeSystemUid",
        "caSha256",
        "redacted",
        "summary",
        "hosts",
        "waivers",
    ],
)
def test_a_fact_that_is_not_signed_is_found(key: str) -> None:
    report = report_with_everything(2)
    signed = predicate(report)
    assert unsigned(html.render(report), {**signed, key: type(signed[key])()})


FROM_THE_RECORD: dict[str, str] = {
    **{key: key for key in ("acceptance", "verdict", "headline", "summary", "interrupted", "redacted")},
    **{key: f"scope.{key}" for key in ("profile", "profileTitle", "parts", "catalogueSha256", "waivers", "deviations")},
    "day": "scope.today", "site": "scope.hosts.site.name", "target": "target.kind", "muster": "tool.version",
    "kubernetes": "cluster.kubernetes", "gpus": "cluster.gpus",
    **{key: f"volatile.run.{path}" for key, path in (("run", "id"), ("started", "started"), ("ended", "ended"))},
    "identitySha256": "identity.sha256", "kubeSystemUid": "identity.kubeSystemUid", "caSha256": "identity.caSha256",
    "checksExecuted": "coverage.executed", "checksRequired": "coverage.required",
    "layers": "requirements.0.verdict", "limits": "requirements.0.notApplicable",
    "hosts": "hosts.0.driver", "baseline": "scope.hosts.baseline.run",
}  # fmt: skip
"""For each key of the predicate, the value of the record that it shows."""
OF_A_KEY = (
    *(f"scope.hosts.baseline.{key}" for key in ("started", "verdict", "manifestSha256", "identitySha256")),
    "hosts.0.gpus.0.model", "hosts.1.gpus.7.model", "identity.nodes.0.node", "identity.nodes.1.uid",
    "identity.nodes.0.systemUuid", "identity.nodes.0.gpus.7.serial",
)  # fmt: skip


OTHERS: dict[str, Any] = {
    "requirements.0.verdict": "FAIL",
    "scope.waivers": [
        {"id": "x", "owner": "x", "reason": "x", "expires": "2026-12-31", "fact": "x", "host": ""}
    ],
}
"""Other values for keys that allow only some values."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the record of a run on a cluster with two hosts, compared with an earlier record."""
    directory = tmp_path_factory.mktemp("run") / "r"
    beside_an_earlier_record(directory)
    return directory


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return (
        [*value, *value, "x"]
        if isinstance(value, list)
        else {"x": 1}
        if isinstance(value, dict)
        else f"{value}x"
    )


def at(value: Any, path: str) -> tuple[Any, str | int]:
    """Return the container of the value at a path, and the value's key in it."""
    *first, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in first:
        value = value[part]
    return value, last


def test_each_fact_of_the_predicate_is_recomputed_from_the_log(run: Path) -> None:
    original = (run / "report.json").read_bytes()
    signed = predicate(record.read(run))
    assert FROM_THE_RECORD.keys() == signed.keys()
    again = assemble(log.read_log(run))
    assert disagreements(record.read(run), again) == []
    for path in (*FROM_THE_RECORD.values(), *OF_A_KEY):
        altered = json.loads(original)
        container, key = at(altered, path)
        container[key] = OTHERS[path] if path in OTHERS else other(container[key])
        report = msgspec.convert(altered, Report)
        assert predicate(report) != signed, path
        assert disagreements(report, again), path


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("started", "2099-01-01T00:00:00Z", "started at 2099-01-01T00:00:00Z, after the run"),
        ("started", "yesterday", "started at yesterday, after the run"),
        ("run", "20200101-000000-cluster-beef", "is no run that started at"),
        ("verdict", "GOOD", "has no verdict, or no digest"),
        ("manifestSha256", "\u202e", "has no verdict, or no digest"),
        ("identitySha256", "x", "has no verdict, or no digest"),
        ("site", "south", "is of another site"),
    ],
)
def test_a_baseline_that_cannot_be_an_earlier_record_of_the_site_is_refused(
    key: str, value: str, words: str, run: Path, tmp_path: Path
) -> None:
    def change(entries: list[Json]) -> None:
        entries[0]["report"]["scope"]["hosts"]["baseline"][key] = value

    assert verify(run).problems == []
    problems = verify(build(run, tmp_path / "r", change)).problems
    assert any("line 1: the baseline " in line and words in line for line in problems), problems


def test_a_host_is_no_worse_than_the_verdict_on_all_and_its_facts_are_words(run: Path) -> None:
    report = record.read(run)
    verdicts = {step.name.removeprefix("layer/"): Verdict(step.verdict) for step in report.steps}
    assert report.hosts
    cells = [(layer, cell) for row in report.hosts for layer, cell in row.layers.items() if cell.required]
    assert {layer for layer, _ in cells} > {"kubelets", "fio", "gpus"}
    assert [
        (layer, cell)
        for layer, cell in cells
        if gravest([Verdict(cell.verdict), verdicts[layer]]) != verdicts[layer]
    ] == []
    facts = [fact for row in report.hosts for gpu in row.gpus for fact in gpu.values()]
    assert len(facts) > 100
    assert [fact for fact in facts if not re.fullmatch(r"[\w.:, -]{1,60}", fact)] == []


def test_a_predicate_with_another_fact_is_refused_though_its_key_signed_it(
    run: Path, tmp_path: Path, second_verifier: Path
) -> None:
    private, public = keys(tmp_path, "customer")
    statement.sign(run, record.read(run), private)
    assert verify(run, public).problems == []
    payload = json.loads(base64.b64decode(json.loads((run / statement.NAME).read_bytes())["payload"]))
    altered: dict[str | int, Path] = {}
    report, values = record.read(run), list(leaves(payload["predicate"]))
    assert len(values) > 60
    for number, (path, value) in enumerate(values):
        directory = tmp_path / str(number)
        shutil.copytree(run, directory, copy_function=os.link)
        (directory / statement.NAME).unlink()
        changed = json.loads(json.dumps(payload))
        container, key = at(changed["predicate"], ".".join(map(str, path)))
        container[key] = other(value)
        sign_as_it_is(directory, changed, private)
        assert statement.problems(directory, report, public) == [
            "statement.json: was made for another report"
        ], path
        altered[path[0]] = directory
    assert [path for path, directory in altered.items() if not verify(directory, public).problems] == []
    assert accepted_by_the_second(second_verifier, list(altered.values()), public) == []


def sign_as_it_is(directory: Path, payload: Json, private: Path) -> None:
    """Replace the statement by one with this payload and a valid signature."""
    key = read_private_key(private)
    content = rfc8785.dumps(payload)
    covered = b"DSSEv1 %d %b %d %b" % (
        len(statement.PAYLOAD_TYPE),
        statement.PAYLOAD_TYPE.encode(),
        len(content),
        content,
    )
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    envelope: Any = {
        "payload": base64.b64encode(content).decode(),
        "payloadType": statement.PAYLOAD_TYPE,
        "signatures": [
            {"keyid": hashlib.sha256(public).hexdigest(), "sig": base64.b64encode(key.sign(covered)).decode()}
        ],
    }
    (directory / statement.NAME).write_bytes(rfc8785.dumps(envelope))
