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

from validation.errors import ReportError
from validation.report import log, manifest
from validation.report.assemble import assemble
from validation.report.write import write

Json = dict[str, Any]
Entries = list[Json]
STATEMENT = "statement.json"


class Doctored(NamedTuple):
    """A doctored record: its change, the kind of its new seal, and its directory."""

    change: str
    seal: str
    directory: Path


def _event(entries: Entries, chance: random.Random, kind: str = "") -> Json:
    observed = [e for e in entries if e["entry"] == "observed" and kind in {"", e["event"]["event"]}]
    return chance.choice(observed)


def drop_an_entry(entries: Entries, chance: random.Random) -> None:
    del entries[chance.randrange(1, len(entries))]


def drop_a_check(entries: Entries, chance: random.Random) -> None:
    report = entries[0]["report"]
    del report["steps"][chance.randrange(len(report["steps"]))]


def drop_a_requirement(entries: Entries, chance: random.Random) -> None:
    report = entries[0]["report"]
    del report["requirements"][chance.randrange(len(report["requirements"]))]


def swap_entries(entries: Entries, chance: random.Random) -> None:
    one, other = chance.sample(range(len(entries)), 2)
    entries[one], entries[other] = entries[other], entries[one]


def swap_jobs(entries: Entries, chance: random.Random) -> None:
    one, other = _event(entries, chance, "pod"), _event(entries, chance, "pod")
    one["event"]["uid"], other["event"]["uid"] = other["event"]["uid"], one["event"]["uid"]


def swap_expectations(entries: Entries, chance: random.Random) -> None:
    steps = [step for step in entries[0]["report"]["steps"] if step.get("expected")]
    one, other = chance.sample(steps, 2)
    one["expected"], other["expected"] = other["expected"], one["expected"]


def replay_an_entry(entries: Entries, chance: random.Random) -> None:
    entries.insert(chance.randrange(1, len(entries) + 1), dict(chance.choice(entries[1:])))


def replay_an_earlier_state(entries: Entries, chance: random.Random) -> None:
    first, last = sorted(chance.sample(range(1, len(entries)), 2))
    entries[last:last] = [json.loads(json.dumps(entry)) for entry in entries[first : first + 5]]


def tell_of_another_cluster(entries: Entries, chance: random.Random) -> None:
    for entry in entries:
        if entry["entry"] == "described":
            entry["cluster"]["nodes"] = [
                {"name": f"customer-{chance.random()}", "gpus": 8, "product": "H100"}
            ]


def rename_a_node(entries: Entries, chance: random.Random) -> None:
    event = _event(entries, chance, "node")["event"]
    event["node"] = event["node"] + "-other"


def add_an_identity(entries: Entries, chance: random.Random) -> None:
    seen = {"event": "cluster", "tMs": 0, "kubeSystemUid": str(chance.random()), "caSha256": ""}
    entries.insert(1, {"entry": "observed", "event": seen, "resourceVersion": "", "serverTime": ""})


def another_day(entries: Entries, chance: random.Random) -> None:
    scope = entries[0]["report"]["scope"]
    scope["today"] = f"20{chance.randrange(10, 26)}-01-01"


def another_start(entries: Entries, chance: random.Random) -> None:
    run = entries[0]["report"]["volatile"]["run"]
    run["started"] = f"20{chance.randrange(10, 99)}{run['started'][4:]}"


def another_time(entries: Entries, chance: random.Random) -> None:
    event = _event(entries, chance)["event"]
    event["tMs"] += chance.choice([-60_000, -1, 1, 60_000])


def a_slower_clock(entries: Entries, chance: random.Random) -> None:
    factor = chance.choice([2, 3, 10])
    for entry in entries:
        if entry["entry"] == "observed":
            entry["event"]["tMs"] //= factor


def call_it_redacted(entries: Entries, chance: random.Random) -> None:
    entries[0]["report"]["redacted"] = f"{chance.getrandbits(256):064x}"


def rename_a_project(entries: Entries, chance: random.Random) -> None:
    event = _event(entries, chance, "pod")["event"]
    event["project"] = "project-9"


def ease_a_step(entries: Entries, chance: random.Random) -> None:
    step = chance.choice([step for step in entries[0]["report"]["steps"] if step.get("expected")])
    step["withinMs"] = step["withinMs"] * 10 + 1


def excuse_a_check(entries: Entries, chance: random.Random) -> None:
    entry = chance.choice([entry for entry in entries if entry["entry"] == "ended"])
    entry["circumstances"]["notApplicable"] = "the site has none"


def add_a_waiver(entries: Entries, chance: random.Random) -> None:
    check = chance.choice(entries[0]["report"]["steps"])["id"]
    waiver = {
        "id": check,
        "owner": "x",
        "reason": "x",
        "expires": "9999-12-31",
        "fact": "expected",
        "host": "",
    }
    entries[0]["report"]["scope"]["waivers"] = [waiver]


def another_version(entries: Entries, chance: random.Random) -> None:
    entries[0]["report"]["tool"]["version"] = f"{chance.randrange(1, 99)}.0.0"


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return each container in a value, at any depth, with each of its keys or indices."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    found = [(value, key) for key in keys]
    for key in keys:
        found += places(value[key])
    return found


def place(entries: Any, chance: random.Random) -> tuple[Any, Any]:
    """Return a container and a key or index in a random entry. The first entry, which is large, is not preferred."""
    part = chance.choice(entries) if isinstance(entries, list) else entries
    return chance.choice(places(part))


def drop_anything(entries: Any, chance: random.Random) -> None:
    container, key = place(entries, chance)
    del container[key]


def duplicate_anything(entries: Any, chance: random.Random) -> None:
    lists = [one for one in places(chance.choice(entries)) if isinstance(one[0], list)]
    container, key = chance.choice(lists)
    container.insert(key, json.loads(json.dumps(container[key])))


def swap_anything(entries: Any, chance: random.Random) -> None:
    (one, key), (other, its) = place(entries, chance), place(entries, chance)
    one[key], other[its] = json.loads(json.dumps([other[its], one[key]]))


def alter_anything(entries: Any, chance: random.Random) -> None:
    container, key = place(entries, chance)
    container[key] = altered(container[key], chance)


def altered(value: Any, chance: random.Random) -> Any:
    """Return another value, of the same type or of another one."""
    if chance.random() < 0.2:
        return chance.choice([None, "", 0, -1, True, [], {}, "x", 1 << 60, "\u202e", 0.5])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + chance.choice([-1000, -1, 1, 1000])
    if isinstance(value, str):
        return chance.choice([value + " ", value[:-1], value.swapcase(), f"{value}\n", value[::-1], "x"])
    return chance.choice([[], {}, [value], {"x": value}, None])


def add_a_key(entries: Any, chance: random.Random) -> None:
    objects = [one for one, _ in places(chance.choice(entries)) if isinstance(one, dict)]
    container = chance.choice(objects)
    container[chance.choice(["zzz", "uid", "verdict", *container])] = chance.choice(["", "PASS", 0, None])


def blank_a_version(entries: Entries, chance: random.Random) -> None:
    _event(entries, chance, chance.choice(["pod", "node"]))
    observed = [entry for entry in entries if entry.get("resourceVersion")]
    chance.choice(observed)[chance.choice(["resourceVersion", "serverTime"])] = chance.choice(
        ["", "1", "0", "x"]
    )


def list_again(entries: Entries, chance: random.Random) -> None:
    entry = _event(entries, chance)
    watch = {"event": "watch", "kind": "pods", "change": "listed", "resourceVersion": "1"}
    watch |= {"tMs": entry["event"]["tMs"]}
    entries.insert(
        entries.index(entry), {"entry": "observed", "event": watch, "resourceVersion": "", "serverTime": ""}
    )


def another_identity(entries: Entries, chance: random.Random) -> None:
    event = _event(entries, chance, chance.choice(["cluster", "node"]))["event"]
    key = chance.choice([key for key in ("kubeSystemUid", "caSha256", "uid", "systemUuid") if key in event])
    event[key] = chance.choice(["", "x", "sha256:" + "0" * 64, "uid-n1"])


def another_clock(entries: Entries, chance: random.Random) -> None:
    run = entries[0]["report"]["volatile"]["run"]
    which = chance.randrange(4)
    if which == 0:
        run["id"] = "20200101-000000-lab-beef"
    elif which == 1:
        run["started"] = run["started"].replace("T", " ")
    elif which == 2:
        entries[-1]["durationMs"] += 86_400_000
    else:
        entries[-1]["ended"] = run["started"].replace("T", " ")


def other_words(entries: Entries, chance: random.Random) -> None:
    report = entries[0]["report"]
    which = chance.randrange(4)
    if which == 0:
        report["mutants"] = []
    elif which == 1:
        report["errata"] = [{}]
    else:
        chance.choice([report["steps"][0], report["scenarios"][0]])["title"] = "x"


def without_a_kind(entries: Entries, chance: random.Random) -> None:
    kind = chance.choice(["began", "scenario", "described", "ended"])
    entries[:] = [entry for entry in entries if entry["entry"] != kind]


def describe_again(entries: Entries, chance: random.Random) -> None:
    described = json.loads(json.dumps(next(entry for entry in entries if entry["entry"] == "described")))
    described["cluster"]["kubernetes"] += "x"
    entries.insert(-1, described)


CHANGES: Sequence[Callable[[Entries, random.Random], None]] = (
    drop_an_entry, drop_a_check, drop_a_requirement, swap_entries, swap_jobs, swap_expectations, replay_an_entry,
    replay_an_earlier_state, tell_of_another_cluster, rename_a_node, add_an_identity, another_day, another_start,
    another_time, a_slower_clock, call_it_redacted, rename_a_project, ease_a_step, excuse_a_check, add_a_waiver,
    another_version, drop_anything, duplicate_anything, swap_anything, alter_anything, add_a_key, blank_a_version,
    list_again, another_identity, another_clock, other_words, without_a_kind, describe_again,
)  # fmt: skip
ANYTHING: Sequence[Callable[[Any, random.Random], None]] = (
    drop_anything, duplicate_anything, swap_anything, alter_anything, add_a_key,
)  # fmt: skip
"""Changes of any value at any depth."""
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
            (directory / manifest.NAME).unlink()
            _replace(directory / manifest.NAME, _rendered(directory))
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


def _rendered(directory: Path) -> bytes:
    """Return a manifest of all files in the directory, whatever their names are."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    body = "".join(
        f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}\n" for name in names
    )
    return f"{body}# sha256 of the lines above: {hashlib.sha256(body.encode()).hexdigest()}\n".encode()


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
