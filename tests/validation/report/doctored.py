"""Makes doctored records of honest ones: each is one change that a person could make who knows the format."""

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
    """A doctored record: what was changed, how well it was sealed again, and where it is."""

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


CHANGES: Sequence[Callable[[Entries, random.Random], None]] = (
    drop_an_entry, drop_a_check, drop_a_requirement, swap_entries, swap_jobs, swap_expectations, replay_an_entry,
    replay_an_earlier_state, tell_of_another_cluster, rename_a_node, add_an_identity, another_day, another_start,
    another_time, a_slower_clock, call_it_redacted, rename_a_project, ease_a_step, excuse_a_check, add_a_waiver,
    another_version,
)  # fmt: skip


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
    """A verdict, a reason or a headline, with or without a new manifest."""
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


FILES: Sequence[Callable[[Path, Sequence[Path], random.Random], str]] = (
    flip_a_bit, take_a_file_of_another, drop_a_file, change_the_record,
)  # fmt: skip


def doctored(honest: Sequence[Path], out: Path, number: int, seed: int) -> Iterator[Doctored]:
    """Yield so many doctored records, each in a new directory below `out`; who takes one may remove it."""
    chance = random.Random(seed)  # noqa: S311 - which changes, not secrets
    made = 0
    while made < number:
        source = chance.choice(honest)
        directory = out / f"{source.name}-{made}"
        shutil.copytree(source, directory, copy_function=os.link)
        if chance.random() < 0.3:
            change, seal = chance.choice(FILES)(directory, honest, chance), "as it was"
        else:
            change, seal = _change_the_log(directory, chance)
        if _differs(source, directory):
            made += 1
            yield Doctored(change, seal, directory)
        else:
            shutil.rmtree(directory)


def _change_the_log(directory: Path, chance: random.Random) -> tuple[str, str]:
    """Change the log, and make all that follows from it anew, as far as the log can still be read."""
    path = directory / log.NAME
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    change = _change(entries, chance)
    text = "".join(
        json.dumps(e, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n" for e in entries
    )
    _replace(path, text.encode())
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
    """Make one change, and return it; a run without pods or nodes has none of theirs to change."""
    while True:
        change = chance.choice(CHANGES)
        try:
            change(entries, chance)
        except (IndexError, ValueError):
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


def _replace(path: Path, content: bytes) -> None:
    """Write a file of a copy, whose other files are links to those of the honest record."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _differs(one: Path, other: Path) -> bool:
    names = {path.name for directory in (one, other) for path in directory.iterdir()}
    for name in names:
        paths = (one / name, other / name)
        if not all(path.exists() for path in paths) or paths[0].read_bytes() != paths[1].read_bytes():
            return True
    return False
