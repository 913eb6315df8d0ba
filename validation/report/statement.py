"""statement.json: the signatures of a report, an in-toto statement about its manifest and its record in a DSSE
envelope.

The keys are Ed25519 in PEM, and no network is needed. Several parties may sign: the supplier, then the customer.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orchestrator.signing_keys import MAKE_KEY, KeyFileError, read_private_key, read_public_key
from validation.errors import ReportError
from validation.report import certificate, files, manifest, record
from validation.report.sources import REDACTED, TITLES

NAME: Final = "statement.json"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://muster.dev/acceptance/v1"
_SUBJECTS: Final = (manifest.NAME, "report.json")
_MAX_BYTES: Final = 1 << 20
_KEYID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIGNATURE_BYTES: Final = 64


class Signature(msgspec.Struct, forbid_unknown_fields=True):
    """A signature, and the id of its key: the SHA-256 of the public key."""

    keyid: str
    sig: str


class Envelope(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A signed payload, both in base64."""

    payload: str
    payload_type: str
    signatures: list[Signature]


class _Predicate(msgspec.Struct):
    """The part of a predicate that does not follow from the record."""

    notes: list[str] = []


class _Payload(msgspec.Struct):
    """The statement, of which only the predicate is read."""

    predicate: _Predicate


def sign(directory: Path, report: record.Report, key: Path, notes: Collection[str] = ()) -> Path:
    """Add a signature by the private key to the statement of the report; return the statement's file.

    The signatures of other keys on the same statement stay. Raises ReportError.

    The caller must have verified the report, because a report with problems must not be signed. The signer accepts the
    `notes`.
    """
    private = _private_key(key)
    path = directory / NAME
    payload = rfc8785.dumps(_statement(directory, report, sorted(notes)))
    envelope = Envelope(_encode(payload), PAYLOAD_TYPE, [])
    if path.exists():
        before = _read(path)
        if before.payload == envelope.payload:
            envelope = before
    keyid = _keyid(private.public_key())
    others = [signature for signature in envelope.signatures if signature.keyid != keyid]
    envelope.signatures = [*others, Signature(keyid, _encode(private.sign(_covered(payload))))]
    path.write_bytes(rfc8785.dumps(json.loads(msgspec.json.encode(envelope))))
    return path


def problems(directory: Path, report: record.Report, *keys: Path) -> list[str]:
    """Return a line for each problem of the statement. A missing signature of one of the `keys` is a problem.

    Raises ReportError.
    """
    path = directory / NAME
    if not path.exists():
        return [f"{NAME}: is missing: this report has no signature"] if keys else []
    try:
        envelope = _read(path)
        payload = _decode(envelope.payload)
        signatures = {signature.keyid: _decode(signature.sig) for signature in envelope.signatures}
    except ReportError as error:
        return [str(error)]
    lines = _wrong_signatures(envelope, signatures) + _wrong_notes(report, _accepted(payload))
    if rfc8785.dumps(json.loads(msgspec.json.encode(envelope))) != files.read(path, _MAX_BYTES):
        lines.append(f"{NAME}: is not in canonical form")
    expected = rfc8785.dumps(_statement(directory, report, _accepted(payload)))
    if envelope.payload_type != PAYLOAD_TYPE or payload != expected:
        lines.append(f"{NAME}: was made for another report")
    unsigned = [key for key in keys if not _signed(_public_key(key), payload, signatures)]
    return [*lines, *(f"{NAME}: has no signature of {key}" for key in unsigned)]


def _wrong_signatures(envelope: Envelope, signatures: Mapping[str, bytes]) -> list[str]:
    """Return a line if there is no signature, if a key has signed twice, or if a signature is not of Ed25519."""
    are_whole = all(
        _KEYID.fullmatch(keyid) and len(signature) == _SIGNATURE_BYTES
        for keyid, signature in signatures.items()
    )
    if not signatures or len(signatures) < len(envelope.signatures) or not are_whole:
        return [f"{NAME}: has no signature, two of one key, or another form"]
    return []


def _wrong_notes(report: record.Report, notes: Sequence[str]) -> list[str]:
    """Return a line if the notes are not sorted, unique and known names, or if the note `redacted` does not match the
    record.
    """
    known = {"version", "catalogue", "figures", REDACTED, TITLES}
    known |= {f"scenario:{scenario.id}" for scenario in report.scenarios}
    is_list = sorted(set(notes)) == list(notes) and known >= set(notes)
    if not is_list or (REDACTED in notes) != bool(report.redacted):
        return [f"{NAME}: has other notes than a record can have"]
    return []


def signers(directory: Path) -> list[str]:
    """Return the key ids of all signatures, unverified; empty for a report without a statement."""
    path = directory / NAME
    return [signature.keyid for signature in _read(path).signatures] if path.exists() else []


def unchecked(directory: Path, *keys: Path) -> list[str]:
    """Return the key ids of the signatures of other keys: only their keys can tell whether they are made up.

    Raises ReportError.
    """
    given = {_keyid(_public_key(key)) for key in keys}
    return [keyid for keyid in signers(directory) if keyid not in given]


def accepted(directory: Path) -> list[str]:
    """Return the names of the notes that the signers accepted, unverified. Raises ReportError."""
    path = directory / NAME
    return _accepted(_decode(_read(path).payload)) if path.exists() else []


def _accepted(payload: bytes) -> list[str]:
    """Return the names of the notes in a payload; empty if the payload is no statement."""
    try:
        return msgspec.json.decode(payload, type=_Payload).predicate.notes
    except (msgspec.MsgspecError, RecursionError):
        return []


def _statement(directory: Path, report: record.Report, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {
                "name": name,
                "digest": {"sha256": files.digest(directory / name)},
            }
            for name in _SUBJECTS
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": certificate.predicate(report) | {"notes": list(notes)},
    }


def _signed(key: Ed25519PublicKey, payload: bytes, signatures: Mapping[str, bytes]) -> bool:
    try:
        key.verify(signatures.get(_keyid(key), b""), _covered(payload))
    except InvalidSignature:
        return False
    return True


def _covered(payload: bytes) -> bytes:
    """Return the signed bytes: DSSE's pre-authentication encoding of the payload."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _read(path: Path) -> Envelope:
    content = files.read(path, _MAX_BYTES)
    try:
        return msgspec.json.decode(content, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(f"{NAME}: is no envelope of a statement: {error}") from error


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ReportError(f"{NAME}: is no envelope of a statement: {error}") from error
    if _encode(content) != text:
        raise ReportError(f"{NAME}: is no envelope of a statement: its base64 is not the usual form")
    return content


def _keyid(key: Ed25519PublicKey) -> str:
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _private_key(path: Path) -> Ed25519PrivateKey:
    try:
        return read_private_key(path)
    except KeyFileError as error:
        raise ReportError(f"{error}: {MAKE_KEY}") from error


def _public_key(path: Path) -> Ed25519PublicKey:
    try:
        return read_public_key(path)
    except KeyFileError as error:
        raise ReportError(str(error)) from error
