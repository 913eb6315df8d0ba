"""Makes doctored records from honest ones: each has one change that a person could make who knows the format."""

import base64
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rfc8785

from tests.validation.report.log_changes import ANYTHING, CHANGES, Entries
from validation.errors import ReportError
from validation.report import log, manifest
from validation.report.assemble import assemble
from validation.report.write import write

STATEMENT = "statement.json"


class Doctored(NamedTuple):
    """A doctored record: its change, the kind of its new seal, and its directory."""

    change: str
    seal: str
    directory: Path


KEYLESS = "new manifest, no signature"
"""The seal of a record that is refused even without a key."""


def flip_a_bit(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    path = chance.choice([path for path in sorted(directory.iterdir()) if path.is_file()])
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    _replace(path, bytes(content))
    return f"a bit of {path.name}"


def take_a_file_of_another(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    other = chance.choice([other for other in others if other.name != directory.name])
    name = chance.choice(["report.json", "events.jsonl", "manifest.sha256", STATEMENT, "report.html"])
    _replace(directory / name, (other / name).read_bytes())
    return f"{name} of another record"


def drop_a_file(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    path = chance.choice([path for path in sorted(directory.iterdir()) if path.is_file()])
    path.unlink()
    return f"{path.name} is gone"


def change_the_record(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    """Change a verdict, a reason or a headline, with or without a new manifest."""
    report = json.loads((directory / "report.json").read_bytes())
    step = chance.choice(report["steps"])
    what = chance.choice(["verdict", "headline", "requirement", "coverage", "catalogue"])
    if what == "verdict":
        step["verdict"] = "PASS" if step["verdict"] != "PASS" else "FAIL"
    elif what == "headline":
        report["headline"] += " and more"
    elif what == "requirement":
        entry = chance.choice(report["requirements"])
        entry["verdict"] = "PASS" if entry["verdict"] != "PASS" else "NOT_APPLICABLE"
    elif what == "coverage":
        report["coverage"]["executed"] += 1
    else:
        report["scope"]["catalogueSha256"] = f"{chance.getrandbits(256):064x}"
    _replace(directory / "report.json", rfc8785.dumps(report))
    if chance.random() < 0.7:
        _replace(directory / manifest.NAME, _manifest(directory))
    return f"another {what} in the record"


def change_anything_in_the_record(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    """Change any value of the record, with a new manifest and without a signature."""
    report = [json.loads((directory / "report.json").read_bytes())]
    change = _any_change(report, chance)
    _replace(directory / "report.json", _written(report[0]))
    return f"{change} in the record"


def _written(value: Any) -> bytes:
    """Return JSON in the canonical order, even for numbers without a form in RFC 8785, for example 2**60."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def change_the_envelope(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    envelope = [json.loads((directory / STATEMENT).read_bytes())]
    change = _any_change(envelope, chance)
    _replace(directory / STATEMENT, _written(envelope[0]))
    return f"{change} in the statement"


def add_a_signature(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    """Add a signature of a key that does not exist."""
    envelope = json.loads((directory / STATEMENT).read_bytes())
    sig = base64.b64encode(chance.randbytes(64)).decode()
    envelope["signatures"].append({"keyid": f"{chance.getrandbits(256):064x}", "sig": sig})
    _replace(directory / STATEMENT, rfc8785.dumps(envelope))
    return "a signature of no key"


def change_the_predicate(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    envelope = json.loads((directory / STATEMENT).read_bytes())
    payload = [json.loads(base64.b64decode(envelope["payload"]))]
    change = _any_change(payload, chance)
    content = json.dumps(payload[0], separators=(",", ":"), sort_keys=True)
    envelope["payload"] = base64.b64encode(content.encode()).decode()
    _replace(directory / STATEMENT, rfc8785.dumps(envelope))
    return f"{change} in the predicate"


def add_a_file(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    name = chance.choice(["NOTE.txt", "operator.log", "install/journal.jsonl", "a\u202eb", ".hidden"])
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text("all PASS\n")
    return f"{name!r} beside the log"


def change_a_page(directory: Path, others: Sequence[Path], chance: random.Random) -> str:
    name = chance.choice(["report.html", "report.md", "junit.xml"])
    if chance.random() < 0.3:
        (directory / name).unlink()
    else:
        _replace(directory / name, (directory / name).read_bytes().replace(b"FAIL", b"PASS") + b" ")
    return f"another {name}"


def _any_change(whole: list[Any], chance: random.Random) -> str:
    while True:
        change = chance.choice(ANYTHING)
        try:
            change(whole, chance)
        except (IndexError, ValueError, TypeError, AttributeError):
            continue
        return change.__name__


SEALED: Sequence[Callable[[Path, Sequence[Path], random.Random], str]] = (
    change_anything_in_the_record, add_a_file, change_a_page,
)  # fmt: skip
"""Changes of one part, with a new manifest and no signature. muster refuses them even without a key."""
FILES: Sequence[Callable[[Path, Sequence[Path], random.Random], str]] = (
    flip_a_bit, take_a_file_of_another, drop_a_file, change_the_record, change_the_envelope, change_the_predicate,
    add_a_signature,
)  # fmt: skip


def doctored(honest: Sequence[Path], out: Path, number: int, seed: int) -> Iterator[Doctored]:
    """Yield `number` doctored records, each in a new directory below `out`, which the caller may remove."""
    chance = random.Random(seed)  # noqa: S311 - which changes, not secrets
    made = 0
    while made < number:
        source = chance.choice(honest)
        directory = out / f"{source.name}-{made}"
        shutil.copytree(source, directory, copy_function=os.link)
        which = chance.random()
        if which < 0.3:
            change, seal = chance.choice(FILES)(directory, honest, chance), "as it was"
        elif which < 0.5:
            change, seal = chance.choice(SEALED)(directory, honest, chance), KEYLESS
            (directory / STATEMENT).unlink()
            sealed_anew(directory)
        else:
            change, seal = _change_the_log(directory, chance)
        if _differs(source, directory):
            made += 1
            yield Doctored(change, seal, directory)
        else:
            shutil.rmtree(directory)


def _change_the_log(directory: Path, chance: random.Random) -> tuple[str, str]:
    """Change the log, and regenerate all files that follow from it, as far as the log can still be read."""
    path = directory / log.NAME
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    change = _change(entries, chance)
    text = "".join(
        json.dumps(e, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n" for e in entries
    )
    _replace(path, text.encode("utf-8", "surrogatepass"))
    statement = (directory / STATEMENT).read_bytes()
    seal = chance.choice(["none", "manifest", "record"])
    if seal == "record":
        try:
            report = assemble(log.read_log(directory))
            for name in ("report.json", "report.html", "report.md", "junit.xml", manifest.NAME, STATEMENT):
                (directory / name).unlink()
            write(report, directory)
        except (ReportError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
            seal = "manifest"
    if seal == "manifest":
        _replace(directory / manifest.NAME, _manifest(directory))
    if chance.random() < 0.8 or seal == "none":
        _replace(directory / STATEMENT, statement)
    return change.__name__, seal


def _change(entries: Entries, chance: random.Random) -> Callable[[Entries, random.Random], None]:
    """Make one change, and return it. For a run without pods or nodes, changes of pods or nodes are left out."""
    while True:
        change = chance.choice(CHANGES)
        try:
            change(entries, chance)
        except (IndexError, ValueError, KeyError, TypeError, AttributeError):
            continue
        return change


def _manifest(directory: Path) -> bytes:
    statement = directory / STATEMENT
    content = statement.read_bytes()
    statement.unlink()
    (directory / manifest.NAME).unlink(missing_ok=True)
    rendered = manifest.render(directory)
    statement.write_bytes(content)
    return rendered


def sealed_anew(directory: Path, body: bytes = b"") -> None:
    """Write a manifest of all files in the directory, whatever their names are, or with the given lines."""
    (directory / manifest.NAME).unlink(missing_ok=True)
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    lines = (f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    body = body or "".join(lines).encode()
    own = f"# sha256 of the lines above: {hashlib.sha256(body).hexdigest()}\n".encode()
    _replace(directory / manifest.NAME, body + own)


def _replace(path: Path, content: bytes) -> None:
    """Write a file of a copy. The other files of the copy are links to those of the honest record."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _differs(one: Path, other: Path) -> bool:
    names = {str(path.relative_to(d)) for d in (one, other) for path in d.rglob("*") if path.is_file()}
    names -= {STATEMENT, manifest.NAME} if not (other / STATEMENT).exists() else set()
    for name in names:
        paths = (one / name, other / name)
        if not all(path.exists() for path in paths) or paths[0].read_bytes() != paths[1].read_bytes():
            return True
    return False
