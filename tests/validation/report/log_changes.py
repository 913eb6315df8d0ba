"""Changes of a record's log that a person could make who knows the format: each changes the entries in place.

A change that has no subject in a log raises IndexError or another error of lists and objects.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.distribution import installed_version

Json = dict[str, Any]
Entries = list[Json]


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


def change_a_waiver(entries: Entries, chance: random.Random) -> None:
    """Let a waiver excuse another fact, host or check, or longer. Without waivers this raises IndexError."""
    waiver = chance.choice(entries[0]["report"]["scope"]["waivers"])
    key = chance.choice(["fact", "host", "id", "expires", "owner", "reason"])
    other = {
        "fact": "expected",
        "id": chance.choice(entries[0]["report"]["steps"])["id"],
        "expires": "2999-01-01",
    }
    waiver[key] = other.get(key, "n1")


def another_profile(entries: Entries, chance: random.Random) -> None:
    scope = entries[0]["report"]["scope"]
    names = ["current", "lab", "lab-real", "planner", "rehearsal", "tr4858"]
    scope["profile"] = chance.choice([name for name in names if name != scope["profile"]])


def another_target(entries: Entries, chance: random.Random) -> None:
    kind = chance.choice(["cluster", "lab", "lab-real"])
    entries[0]["report"]["target"] = {"kind": kind}
    for entry in entries:
        if entry["entry"] == "described":
            entry["target"] |= {"kind": kind}


def other_titles(entries: Entries, chance: random.Random) -> None:
    for step in entries[0]["report"]["steps"]:
        if step["kind"] != "step":
            step["title"] = "All is well"


def of_this_version(entries: Entries, chance: random.Random) -> None:
    """Give a record of another version the version of this installation."""
    entries[0]["report"]["tool"]["version"] = installed_version()


def other_output(entries: Entries, chance: random.Random) -> None:
    """Change the output of a tool on a host to that of another host."""
    tools = [entry["event"] for entry in entries if entry["entry"] == "observed" and "tool" in entry["event"]]
    pairs = [
        (one, other["output"])
        for one in tools
        for other in tools
        if one["tool"] == other["tool"] and one["output"] != other["output"]
    ]
    if pairs:
        one, output = chance.choice(pairs)
        one["output"] = output


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
    another_version, change_a_waiver, another_profile, another_target, other_titles, of_this_version, other_output,
    drop_anything, duplicate_anything, swap_anything, alter_anything, add_a_key, blank_a_version,
    list_again, another_identity, another_clock, other_words, without_a_kind, describe_again,
)  # fmt: skip
ANYTHING: Sequence[Callable[[Any, random.Random], None]] = (
    drop_anything, duplicate_anything, swap_anything, alter_anything, add_a_key,
)  # fmt: skip
"""Changes of any value at any depth."""
