"""Both verifiers refuse a record in another encoding of the same content, also if its digests are made anew."""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import rfc8785

from tests.validation.report.doctored import STATEMENT, sealed_anew
from tests.validation.report.honest_records import RUNS, honest
from tests.validation.report.test_doctored import accepted_by_the_second, refused_by_muster
from validation.report import log, manifest

ORDER = 2**252 + 27742317777372353535851937790883648493
"""The order of the group of Ed25519. A signature whose number is larger by it has the same meaning."""
UNSIGNED = "accepted; NOT SIGNED"
Change = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Return the records of two runs with a redaction of each, and the public key that belongs to all signatures."""
    return honest(tmp_path_factory.mktemp("signed"), RUNS[5:7])


def first(pattern: bytes, new: bytes) -> Change:
    """Return a change of the first place that matches, which must exist."""

    def change(content: bytes) -> bytes:
        changed = re.sub(pattern, new, content, count=1)
        assert changed != content
        return changed

    return change


LOG: dict[str, Change] = {
    "byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "carriage returns": lambda content: content.replace(b"\n", b"\r\n"),
    "blank line": lambda content: content + b"\n",
    "null byte": lambda content: content + b"\0\n",
    "no line feed at the end": lambda content: content[:-1],
    "entry twice": lambda content: content + content.splitlines(keepends=True)[1],
    "key twice": first(rb'\n\{"check":', b'\n{"check":"x","check":'),
    "key in upper case": first(rb'"entry":"began"', b'"Entry":"began"'),
    "escaped letter": first(rb'"observed"', rb'"\\u006fbserved"'),
    "overlong letter": first(rb'"observed"', b'"\xc1\xafbserved"'),
    "surrogate": first(rb'"serverTime":""', b'"serverTime":"\xed\xa0\x80"'),
    "decimal": first(rb'"tMs":(\d+)', rb'"tMs":\1.0'),
    "exponent": first(rb'"tMs":(\d+)', rb'"tMs":\1e0'),
    "negative zero": first(rb'"tMs":0\b', rb'"tMs":-0'),
    "leading zero": first(rb'"tMs":(\d+)', rb'"tMs":0\1'),
    "space": first(rb'"tMs":', rb'"tMs": '),
}


@pytest.mark.parametrize("name", LOG)
def test_a_log_in_another_encoding_is_refused(
    name: str, signed: tuple[list[Path], Path], second_verifier: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(signed[0][0], tmp_path / "r"))
    (copy / STATEMENT).unlink()
    before = (copy / log.NAME).read_bytes()
    (copy / log.NAME).write_bytes(LOG[name](before))
    digests = [hashlib.sha256(content).hexdigest().encode() for content in (before, LOG[name](before))]
    record = (copy / "report.json").read_bytes()
    assert digests[0] in record
    (copy / "report.json").write_bytes(record.replace(digests[0], digests[1]))
    sealed_anew(copy)
    assert refused_by_muster(copy, None)
    assert not accepted_by_the_second(second_verifier, [copy], word=UNSIGNED)


STATEMENTS: dict[str, Change] = {
    "signature with the order of the group added": lambda content: rfc8785.dumps(
        json.loads(content) | {"signatures": [_larger(one) for one in json.loads(content)["signatures"]]}
    ),
    "signature twice": lambda content: rfc8785.dumps(
        json.loads(content) | {"signatures": json.loads(content)["signatures"] * 2}
    ),
    "key id in upper case": first(rb'"keyid":"([0-9a-f]+)"', b'"keyid":"' + b"A" * 64 + b'"'),
    "line feed in the payload": first(rb'"payload":"(.{40})', rb'"payload":"\1\\n'),
    "payload twice": first(rb'"payload":', rb'"payload":"AAAA","payload":'),
    "another type": first(rb"application/vnd.in-toto\+json", b"text/plain"),
    "line feed at the end": lambda content: content + b"\n",
    "a comment": first(rb"^\{", rb'{"comment":"all PASS",'),
}


def _larger(entry: dict[str, str]) -> dict[str, str]:
    signature = base64.b64decode(entry["sig"])
    number = int.from_bytes(signature[32:], "little") + ORDER
    whole = signature[:32] + number.to_bytes(32, "little")
    return entry | {"sig": base64.b64encode(whole).decode()}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_in_another_encoding_is_refused(
    name: str, signed: tuple[list[Path], Path], second_verifier: Path, tmp_path: Path
) -> None:
    records, key = signed
    copy = Path(shutil.copytree(records[0], tmp_path / "r"))
    (copy / STATEMENT).write_bytes(STATEMENTS[name]((copy / STATEMENT).read_bytes()))
    assert refused_by_muster(copy, key)
    assert not accepted_by_the_second(second_verifier, [copy], key)


@pytest.mark.parametrize("other", [1, 2], ids=["its redaction", "another cluster"])
def test_the_statement_of_another_record_is_refused(
    other: int, signed: tuple[list[Path], Path], second_verifier: Path, tmp_path: Path
) -> None:
    records, key = signed
    copy = Path(shutil.copytree(records[0], tmp_path / "r"))
    (copy / STATEMENT).write_bytes((records[other] / STATEMENT).read_bytes())
    assert refused_by_muster(copy, key)
    assert not accepted_by_the_second(second_verifier, [copy], key)


@pytest.mark.parametrize("change", [(b"\n", b"\r\n"), (b"  report.md", b" *report.md"), (b"  ", b"  ./")])
def test_a_manifest_in_another_form_is_refused(
    change: tuple[bytes, bytes], signed: tuple[list[Path], Path], second_verifier: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(signed[0][0], tmp_path / "r"))
    (copy / STATEMENT).unlink()
    body, _, _ = (copy / manifest.NAME).read_bytes().rpartition(b"# sha256")
    sealed_anew(copy, body.replace(*change))
    assert refused_by_muster(copy, None)
    assert not accepted_by_the_second(second_verifier, [copy], word=UNSIGNED)


def test_a_record_without_a_signature_is_called_so(
    signed: tuple[list[Path], Path], second_verifier: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(signed[0][0], tmp_path / "r"))
    (copy / STATEMENT).unlink()
    assert refused_by_muster(copy, None) == []
    assert accepted_by_the_second(second_verifier, [copy], word=UNSIGNED) == [f'"{copy}": {UNSIGNED}']
