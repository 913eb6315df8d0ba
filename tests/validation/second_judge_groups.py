"""The part of the second judge for tests of groups of hosts, based on sets of pairs.

It imports nothing of muster, and is written only from docs/reference/record-layers.md.
"""

import re
from typing import Any

Json = dict[str, Any]
Found = list[str]


def of_tests(hosts: list[str], tests: list[tuple[set[str], str]]) -> Found:
    """Return the verdicts on tests. Each test is a group and one of works, slow, fails and unclear."""
    bad = [group for group, word in tests if word in {"slow", "fails"}]
    met: dict[str, set[str]] = {host: set() for host in hosts}
    for group in [group for group, word in tests if word == "works"]:
        for host in group:
            met[host] |= group
    if len(hosts) < 2:
        return ["PASS" if any(met.values()) else "INCONCLUSIVE"]

    def unseen(group: set[str]) -> set[frozenset[str]]:
        return {frozenset((host, other)) for host in group for other in group - met[host] - {host}}

    def together(group: set[str]) -> bool:
        return bool(group) and all(group <= met[host] for host in group)

    sick = set()
    for host in [host for host in hosts if not met[host]]:
        rests = [group - {host} for group in bad if host in group and together(group - {host})]
        if any(not one & other for one in rests for other in rests):
            sick.add(host)
    known = [group for group in bad if len(group) == 2 and all(met[host] for host in group)]
    apart = {pair for group in known for pair in unseen(group)}
    found = ["FAIL"] if sick or apart else []
    open_ones = [group for group in bad if not group & sick and not any(pair <= group for pair in apart)]
    found += ["INCONCLUSIVE" if together(group) else "FAIL" for group in open_ones]
    unknown = unseen(set(hosts) - sick) - apart
    if unknown or any(word == "unclear" for _, word in tests):
        found.append("INCONCLUSIVE")
    return found or ["PASS"]


def outcome(events: list[Json], least: int) -> str:
    """Return the outcome of a test from its events."""
    if any(event.get("problem") or event["exitCode"] == 127 for event in events):
        return "unclear"
    if any(event["exitCode"] for event in events):
        return "fails"
    words = r"(?m)^all-reduce: (\d+) hosts, \d+ GPUs, \d+ bytes, (\d+) MB/s, (\d+) wrong$"
    lines = [re.findall(words, event["output"]) for event in events]
    names = {event["host"] for event in events}
    if len(names) < len(events) or any(len(own) != 1 or int(own[0][0]) != len(names) for own in lines):
        return "unclear"
    if any(own[0][2].strip("0") for own in lines):
        return "fails"
    rates = sorted(int(own[0][1]) for own in lines)
    if not rates[0] or rates[0] < 0.9 * rates[-1] or 0.95 * least <= rates[0] <= 1.05 * least:
        return "unclear"
    return "works" if rates[0] > least else "slow"


def of_events(scope: Json, events: list[Json]) -> Found:
    """Return the verdicts on the tests in these events."""
    systems = {system["model"]: system for system in scope["systems"]}
    least, tests = {}, dict[str, list[Json]]()
    for host in scope["site"]["hosts"]:
        if host["gpus"]:
            system = systems.get(host["model"], {})
            least[host["name"]] = system.get("adapters", 0) * system.get("adapterGbits", 0) * 125
    for event in events:
        if event["event"] == "tool" and event["tool"] == "nccl-nodes" and event["host"] in least:
            number = re.search(r'python3 -c "\$P" (\d+) ', event["command"])
            tests.setdefault(number[1] if number else "", []).append(event)
    judged = []
    for of_test in tests.values():
        group = {event["host"] for event in of_test}
        judged.append((group, outcome(of_test, min(least[name] for name in group) * 64 // 100)))
    return of_tests(list(least), judged) + ["INCONCLUSIVE" for rate in least.values() if not rate]
