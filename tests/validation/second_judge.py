"""A second judge: reads a report directory and prints the verdicts that follow from it. It imports nothing of muster.

It is written only from docs/reference/record.md and the schema, so that it does not share mistakes with the first
judge.
"""

import hashlib
import json
import math
import sys
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from second_judge_api import judge_api  # type: ignore[import-not-found]
from second_judge_digests import judge_digests  # type: ignore[import-not-found]
from second_judge_hosts import judge_layer  # type: ignore[import-not-found]
from second_judge_limits import Sessions, replay_limits  # type: ignore[import-not-found]
from second_judge_pages import analytics_is  # type: ignore[import-not-found]
from second_judge_upkeep import replay_upkeep  # type: ignore[import-not-found]
from second_judge_use import judge_use  # type: ignore[import-not-found]
from second_judge_views import is_shown, judge_container, list_of  # type: ignore[import-not-found]

Json = dict[str, Any]
GRAVEST = ["ERROR", "FAIL", "INCONCLUSIVE", "BLOCKED", "WAIVED", "PASS"]


class Kubelets:
    """The GPUs that kubelets report, and the reports on each pod since it was bound."""

    def __init__(self) -> None:
        self.heard = 0
        self.bound: dict[str, int] = {}
        self.spoke: dict[str, tuple[int, list[Json]]] = {}

    def hear(self, event: Json) -> None:
        self.heard += 1
        if event["event"] == "pod" and holds(event):
            self.bound.setdefault(event["uid"], self.heard)
        if event["event"] == "pod" and event["change"] == "deleted":
            self.bound.pop(event["uid"], None)
        if event["event"] == "gpus":
            self.spoke[event["node"]] = (self.heard, event["gpus"])

    def speaks(self, node: str) -> bool:
        return bool(self.spoke.get(node, (0, []))[1])

    def named(self, pod: Json) -> set[int]:
        name = f"{pod['namespace']}/{pod['pod']}"
        return {gpu["index"] for gpu in self.spoke.get(pod["node"], (0, []))[1] if name in gpu["holders"]}

    def given(self, pod: Json) -> set[int]:
        said = self.spoke.get(pod["node"], (-1, []))[0]
        return self.named(pod) if said >= self.bound[pod["uid"]] else set()


class World:
    """The state of the cluster, updated by each event."""

    def __init__(self) -> None:
        self.gpus: dict[str, int] = {}
        self.down: set[str] = set()
        self.quota: dict[str, int] = {}
        self.projects: dict[str, Json] = {}
        self.gone: set[str] = set()
        self.pods: dict[str, Json] = {}
        self.submitted: set[tuple[str, str]] = set()
        self.deleted: set[tuple[str, str]] = set()
        self.drained: set[str] = set()
        self.kubelets = Kubelets()

    def apply(self, event: Json) -> None:
        kind = event["event"]
        self.kubelets.hear(event)
        if kind == "node":
            self.gpus[event["node"]] = event["gpus"]
            self.down ^= self.down & {event["node"]}
            self.down |= {event["node"]} if event.get("cordoned") or not event["ready"] else set()
        elif kind == "project":
            self.quota[event["project"]] = event["quotaMilli"]
            self.projects[event["project"]] = event
            self.gone.discard(event["project"])
        elif kind == "projectDeleted":
            self.quota.pop(event["project"], None)
            self.gone.add(event["project"])
        elif kind == "command":
            jobs = {(event["project"], name) for name in event["workloads"]}
            if event["action"] == "submit":
                self.submitted |= jobs
                self.deleted -= jobs
            else:
                self.submitted -= jobs
                self.deleted |= jobs
        elif kind == "nodesDrained":
            self.drained |= set(event["uids"])
        elif kind != "pod":
            return
        elif event["change"] == "deleted":
            self.pods.pop(event["uid"], None)
        else:
            self.pods[event["uid"]] = event

    def holders(self) -> list[Json]:
        return [pod for pod in self.pods.values() if holds(pod) and pod["gpuMilli"]]

    def jobs(self) -> dict[tuple[str, str], list[Json]]:
        jobs: dict[tuple[str, str], list[Json]] = defaultdict(list)
        for pod in self.pods.values():
            jobs[pod["project"], pod["workload"]].append(pod)
        return jobs


def after(events: list[Json]) -> World:
    """Return the state after these events."""
    world = World()
    for event in events:
        world.apply(event)
    return world


def finished(pod: Json) -> bool:
    return pod["phase"] in {"Succeeded", "Failed"}


def holds(pod: Json) -> bool:
    return bool(pod["change"] != "deleted" and pod["node"] and not finished(pod))


def states(expected: Json) -> list[Json]:
    return [expected, *expected.get("orElse", [])]


def differs(world: World, expected: Json, evicted: set[str]) -> bool:
    """Return whether the state differs from each state that a step expects."""
    return all(differs_from(world, state, evicted) for state in states(expected))


def differs_from(world: World, expected: Json, evicted: set[str]) -> bool:
    projects = set(expected["allocatedMilli"])
    allocated = dict.fromkeys(projects, 0)
    devices: dict[str, set[str]] = defaultdict(set)
    for pod in world.holders():
        if pod["project"] not in projects:
            return True
        allocated[pod["project"]] += pod["gpuMilli"]
        devices[pod["workload"]] |= {f"{pod['node']}/{index}" for index in pod["devices"]}
    jobs = {key: pods for key, pods in world.jobs().items() if key[0] in projects}
    running = {
        key
        for key, pods in jobs.items()
        if sum(p["phase"] == "Running" and holds(p) and not p["terminating"] for p in pods)
        >= pods[0]["minMember"]
    }
    bound = {key for key, pods in jobs.items() if any(pod["node"] for pod in pods)}
    submitted = {key for key in world.submitted if key[0] in projects}
    pending = (submitted | set(jobs)) - bound - world.deleted
    alive = set(jobs) - world.deleted
    unsettled = (alive | pending) - running - (pending & alive)
    over = set(expected.get("ended", []))
    names = {name for _, name in pending}
    used = set().union(*devices.values()) if devices else set()
    groups = [{frozenset(devices.get(name, set())) for name in group} for group in expected["sameGpu"]]
    return (
        allocated != expected["allocatedMilli"]
        or sum(allocated.values()) != expected["totalMilli"]
        or len(running) != expected["running"]
        or names - over != set(expected["pending"])
        or not over <= names - {name for _, name in alive}
        or evicted != set(expected["evicted"])
        or (expected["gpusInUse"] is not None and len(used) != expected["gpusInUse"])
        or any(len(places) != 1 or len(next(iter(places))) != 1 for places in groups)
        or bool({name for _, name in unsettled} - over)
    )


def settled(step: Json, events: list[Json]) -> str:  # noqa: C901 - one rule, in the order of the document
    """Return CONVERGED, FAILED or CUT."""
    window, expected = step["volatile"]["window"], step["expected"]
    world = World()
    announced: set[str] = set()
    evicted: dict[str, str] = {}

    def take(number: int, event: Json) -> None:
        world.apply(event)
        if event["event"] == "pod" and event["eviction"]:
            if number < window["fromEvent"]:
                announced.add(event["uid"])
            elif event["uid"] not in announced and event["project"] in expected["allocatedMilli"]:
                evicted.setdefault(event["uid"], event["workload"])

    for number, event in enumerate(events[: window["startEvent"]]):
        take(number, event)
    since: int | None = None

    def decided(now: int) -> str:
        if since is not None:
            return "CONVERGED" if now - since >= step["holdMs"] else ""
        return "FAILED" if now >= step["withinMs"] else ""

    def evaluate(now: int) -> str:
        nonlocal since
        good = not differs(world, expected, set(evicted.values()))
        if good and since is None and now <= step["withinMs"]:
            since = now
        elif not good:
            since = None
            if set(evicted.values()) - {name for state in states(expected) for name in state["evicted"]}:
                return "FAILED"
        return decided(now)

    result = evaluate(0)
    for number in range(window["startEvent"], window["untilEvent"]):
        now = events[number]["tMs"] - window["startedMs"]
        result = result or decided(now)
        if not result:
            take(number, events[number])
            result = evaluate(now)
    return result or decided(window["endedMs"] - window["startedMs"]) or "CUT"


def evidence(events: list[Json], nodes: dict[str, int], projects: set[str]) -> Json:
    pods = [e for e in events if e["event"] == "pod" and e["project"] in projects]
    return {
        "nodes": sum(1 for gpus in nodes.values() if gpus),
        "gpus": sum(nodes.values()),
        "pods": len({pod["uid"] for pod in pods}),
        "events": len(pods),
    }


def too_little(check: Json, has: Json) -> bool:
    return any(has[name] < check["least"][name] for name in has)


def circumstances(check: Json) -> str:
    for name, verdict in (
        ("notApplicable", "NOT_APPLICABLE"),
        ("blockedBy", "BLOCKED"),
        ("fault", "ERROR"),
        ("unfinished", "INCONCLUSIVE"),
        ("failure", "FAIL"),
    ):
        if check["circumstances"][name]:
            return verdict
    return ""


def judge_step(step: Json, events: list[Json], quotas: dict[str, int], weights: dict[str, int]) -> str:
    window = step["volatile"]["window"]
    if window is None:
        return "INCONCLUSIVE"
    world = after(events[: window["untilEvent"]])
    projects = set(step["expected"]["allocatedMilli"])
    if too_little(step, evidence(events[: window["untilEvent"]], world.gpus, projects)):
        return "ERROR"
    result = settled(step, events)
    if result != "CONVERGED":
        return "FAIL" if result == "FAILED" else "INCONCLUSIVE"
    return "ERROR" if contradicted(step, quotas, weights) else unless_gaps(window, events)


def unless_gaps(window: Json, events: list[Json]) -> str:
    """Return PASS, or another verdict if events may be missing in the window."""
    during = events[window["fromEvent"] : window["untilEvent"]]
    gap = any(event["event"] == "watch" and event["change"] == "relisted" for event in during)
    earlier = [e for e in events[: window["fromEvent"]] if e["event"] in {"node", "outsiders"}]
    present = {(e["event"], e["node"]): e for e in earlier}
    about = [*present.values(), *during]
    away = any(e["event"] == "node" and e["gpus"] > 0 and e["ready"] is False for e in about)
    others = any(e["event"] == "outsiders" and e["gpuMilli"] > 0 for e in about)
    return "INCONCLUSIVE" if gap or away or others else "PASS"


def contradicted(step: Json, quotas: dict[str, int], weights: dict[str, int]) -> bool:
    """Return whether the oracle's answer differs from the expectation in a field that is not excused."""
    excused = set(step["excused"])
    running = divide(step["oracle"]["capacityMilli"], quotas, step["oracle"]["demands"], weights)
    allocated = dict.fromkeys(quotas, 0)
    for demand in running:
        allocated[demand["project"]] += demand["gpuMilli"] * demand["pods"]
    names = {(demand["project"], demand["name"]) for demand in running}
    pending = [d["name"] for d in step["oracle"]["demands"] if (d["project"], d["name"]) not in names]

    def is_other(expected: Json) -> bool:
        answers = {
            "allocated": all(allocated[p] == milli for p, milli in expected["allocatedMilli"].items()),
            "total": sum(allocated.values()) == expected["totalMilli"],
            "running": len(names) == expected["running"],
            "pending": sorted(pending) == sorted(expected["pending"]),
        }
        return any(not good and field not in excused for field, good in answers.items())

    return all(map(is_other, states(step["expected"])))


def divide(capacity: int, quotas: dict[str, int], demands: list[Json], weights: dict[str, int]) -> list[Json]:
    """Return the running jobs: quotas first, then lending by fair share. A gang runs as a whole, each pod beyond it
    alone.
    """

    def size(demand: Json) -> int:
        return int(demand["gpuMilli"] * demand["pods"])

    running: list[Json] = []
    queues: dict[str, list[list[Json]]] = {name: [] for name in quotas}
    wish: dict[str, int] = {}
    for project, quota in quotas.items():
        own = sorted(
            (d for d in demands if d["project"] == project), key=lambda d: (d["preemptible"], -d["priority"])
        )
        used, covered = 0, []
        for demand in own:
            if used + size(demand) <= quota:
                used += size(demand)
                covered.append(demand)
        running += covered
        borrowers = [d for d in demands if d["project"] == project and d not in covered and d["preemptible"]]
        for demand in borrowers:
            gang = {**demand, "pods": max(1, demand["minMember"])}
            rest = [{**demand, "pods": 1}] * (demand["pods"] - gang["pods"])
            queues[project].append([gang, *rest])
        possible = [d for d in covered + borrowers if d["gpuMilli"] * max(1, d["minMember"]) <= capacity]
        wish[project] = sum(size(d) for d in possible)
    share = fair_shares(capacity, quotas, wish, {**quotas, **weights})
    allocated = {name: sum(size(d) for d in running if d["project"] == name) for name in quotas}
    while True:
        free = capacity - sum(allocated.values())
        options = []
        for name in sorted(queues):
            fitting = next((units for units in queues[name] if units and size(units[0]) <= free), None)
            if fitting is not None:
                after = allocated[name] + size(fitting[0])
                options.append(
                    (after / share[name] if share[name] else Fraction(after * 10**9), name, fitting)
                )
        if not options:
            return running
        _, name, units = min(options, key=lambda option: option[:2])
        unit = units.pop(0)
        allocated[name] += size(unit)
        running.append(unit)


def fair_shares(
    capacity: int, quotas: dict[str, int], wish: dict[str, int], weights: dict[str, int]
) -> dict[str, Fraction]:
    share = {name: Fraction(min(quota, wish[name])) for name, quota in quotas.items()}
    rest = capacity - sum(share.values())
    while rest > 0:
        hungry = {name: weights[name] for name in quotas if weights[name] and share[name] < wish[name]}
        if not hungry:
            break
        total = sum(hungry.values())
        level = min(Fraction(rest) / total, *((wish[n] - share[n]) / weight for n, weight in hungry.items()))
        for name, weight in hungry.items():
            share[name] += level * weight
        rest -= level * total
    return share


def judge_invariant(check: Json, events: list[Json]) -> str:
    """Return PASS, FAIL, ERROR, INCONCLUSIVE, or NO SUBJECT."""
    window = check["volatile"]["window"]
    if window is None:
        return "INCONCLUSIVE"
    before = [e for e in events[: window["fromEvent"]] if e["event"] in {"node", "gpus"}]
    during = events[window["fromEvent"] : window["untilEvent"]]
    name = check["id"].split("/invariant/")[1]
    replay = reconcile if name in {"kubelet-agrees", "processes-on-own-gpus"} else replay_invariant
    replay = replay_limits if name in {"interactive-time-limit", "node-affinity"} else replay
    replay = replay_upkeep if name in {"cordoned-node", "nominations-last"} else replay
    times, subjects = replay(name, before + during, window["startedMs"], window["endedMs"])
    if any(time >= window["startedMs"] for time in times):
        return "FAIL"
    world = after(before + during)
    projects = {e["project"] for e in events if e["event"] == "project"}
    if too_little(check, evidence(during, world.gpus, projects)):
        return "ERROR"
    nobody = "INCONCLUSIVE" if name in {"interactive-time-limit", "node-affinity"} else "NO SUBJECT"
    return unless_gaps(window, events) if subjects else nobody


def judge_view(check: Json, events: list[Json]) -> str:  # noqa: PLR0911 - in the order of the document
    """Return the verdict on a list: it must show the state of some moment during its command."""
    window = check["volatile"]["window"]
    if window is None:
        return "INCONCLUSIVE"
    world = after(events[: window["untilEvent"]])
    projects = {e["project"] for e in events if e["event"] == "project"}
    if too_little(check, evidence(events[: window["untilEvent"]], world.gpus, projects)):
        return "ERROR"
    name = check["id"].split("/view/")[1]
    during = events[window["startEvent"] : window["untilEvent"]]
    answers = [e for e in during if e["event"] == "answer" and e["view"] == name]
    if not answers:
        return "INCONCLUSIVE"
    if answers[0]["exitCode"]:
        return "FAIL"
    world = after(events[: window["startEvent"]])
    if name.split("/")[0] in {
        "log",
        "shell",
        "written",
        "read",
        "reused",
        "cloned",
        "snapshot",
        "url",
        "mounts",
    }:
        earlier = events[window["fromEvent"] : window["startEvent"]]
        verdict: str = judge_container(name, world, during, earlier)
        return unless_gaps(window, events) if verdict == "PASS" else verdict
    if name == "analytics":
        rows = list_of(answers[0]["output"])
        number = window["startEvent"] + during.index(answers[0])
        good = rows is not None and analytics_is(events, number, world, rows)
        return unless_gaps(window, events) if good else "FAIL"
    good = is_shown(name, world, answers[0]["output"])
    for event in during:
        world.apply(event)
        good = good or is_shown(name, world, answers[0]["output"])
    return unless_gaps(window, events) if good else "FAIL"


def is_waived(check: Json, scope: Json) -> bool:
    """Return whether waivers cover each sentence by which the check fails; a sentence on hosts needs a waiver for the
    host.
    """
    said = [*check["differences"], *(violation["message"] for violation in check["volatile"]["violations"])]
    reason = check["reason"]
    for w in scope["waivers"]:
        reason = reason.removeprefix(
            f"deviation accepted by {w['owner']} until {w['expires']}: {w['reason']}. "
        )
    if not said and len(reason) < 1000:
        said = [part for part in reason.split("; ") if part]
    valid = []
    for waiver in scope["waivers"]:
        year, month, day = map(int, scope["today"].split("-"))
        last = (year + 1, month, day)
        in_time = (year, month, day) <= tuple(map(int, waiver["expires"].split("-"))) <= last
        has_host = bool(waiver["host"]) == ("/layer/" in waiver["id"])
        signed = waiver["owner"].strip() and waiver["reason"].strip()
        if (
            waiver["id"] == check["id"]
            and in_time
            and signed
            and len(waiver["fact"].strip()) > 3
            and has_host
        ):
            valid.append(waiver)

    def is_named(sentence: str) -> bool:
        return any(w["fact"] in sentence and (not w["host"] or has_word(sentence, w["host"])) for w in valid)

    return bool(said) and all(map(is_named, said))


def has_word(sentence: str, word: str) -> bool:
    """Return whether the word is in the sentence by itself, and not as the end of an address."""
    at = sentence.find(word)
    while at >= 0:
        before, after = sentence[:at][-1:], sentence[at + len(word) :][:1]
        if not (before.isalnum() or before in {"_", ".", "-"}) and not (
            after.isalnum() or after in {"_", "-"}
        ):
            return True
        at = sentence.find(word, at + 1)
    return False


def judge_answers(check: Json, events: list[Json]) -> str:
    """Return the verdict on the API server's answers to the recorder's requests."""
    window = check["volatile"]["window"]
    if window is None:
        return "INCONCLUSIVE"
    world = after(events[: window["untilEvent"]])
    if too_little(check, evidence(events[: window["untilEvent"]], world.gpus, set())):
        return "ERROR"
    name = check["id"].split("/api/")[1]
    during = events[window["startEvent"] : window["untilEvent"]]
    seen = [event for event in during if event["event"] == "gpus"]
    requests = [event for event in during if event["event"] == "request" and event["check"] == name]
    verdict: str = judge_api(name, requests, seen)
    return verdict


def judge_utilization(check: Json, events: list[Json]) -> str:
    """Return the verdict on the utilization of GPUs while pods held them."""
    window = check["volatile"]["window"]
    if window is None:
        return "INCONCLUSIVE"
    world = after(events[: window["untilEvent"]])
    projects = {e["project"] for e in events if e["event"] == "project"}
    has = evidence(events[window["fromEvent"] : window["untilEvent"]], world.gpus, projects)
    verdict: str = judge_use(check, events, world.gpus, has)
    return unless_gaps(window, events) if verdict == "PASS" else verdict


def judge_training(check: Json, events: list[Json]) -> str:  # noqa: PLR0911 - one rule, in the order of the document
    """Return the verdict on the result of a training job, compared with its kubelet and driver."""
    window, job = check["volatile"]["window"], check["job"]
    if window is None:
        return "INCONCLUSIVE"
    world = after(events[: window["untilEvent"]])
    if too_little(check, evidence(events[: window["untilEvent"]], world.gpus, {job["project"]})):
        return "ERROR"
    during = events[window["fromEvent"] : window["untilEvent"]]
    outputs = [e for e in during if e["event"] == "output"]
    outputs = [e for e in outputs if (e["project"], e["workload"]) == (job["project"], job["workload"])]
    if not outputs:
        late = window["endedMs"] - window["startedMs"] >= check["withinMs"]
        return "FAIL" if late else "INCONCLUSIVE"
    if job.get("result") == "digests":
        reports = [event for event in events[: window["untilEvent"]] if event["event"] == "gpus"]
        verdict = judge_digests(job, outputs, world.gpus, reports)
        return unless_gaps(window, events) if verdict == "PASS" else verdict
    if any(output["problem"] for output in outputs):
        return "ERROR"
    results = [(output, result) for output in outputs if (result := training_result(output["line"]))]
    if any(output["exitCode"] for output in outputs) or len(results) != 1:
        return "FAIL"
    output, result = results[0]
    devices = result["environment"]["devices"]
    timed_ms = sum(one["elapsedNs"] for one in result["windows"]) // 1_000_000
    if (result["environment"]["deviceKind"], len(devices)) != (job["device"], job["devices"]):
        return "FAIL"
    if timed_ms > output["ranMs"] + 1000:
        return "FAIL"
    of_mounts = check["id"].endswith("/mounts")
    verdict = trained(result, job["mounts"]) if of_mounts else trained(result, 0)
    if verdict == "PASS" and job["device"] == "gpu" and not of_mounts:
        samples = [e for e in during if e["event"] == "gpus" and e["node"] == output["node"]]
        used = {gpu["index"] for e in samples for gpu in e["gpus"] if output["uid"] in gpu["users"]}
        verdict = "INCONCLUSIVE" if not samples else "PASS" if len(used) >= job["devices"] else "FAIL"
    return unless_gaps(window, events) if verdict == "PASS" else verdict


def training_result(line: str) -> Json | None:
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) and result.get("kind") == "TrainingResult" else None


def trained(result: Json, mounts: int) -> str:
    """Return the verdict on the training of ResNet-50; with `mounts`, the images must come
    over that number of mounts.
    """
    batches = sum(window["batches"] for window in result["windows"])
    if result["ended"] != "completed":
        return "INCONCLUSIVE" if result["ended"] == "stopped" else "FAIL"
    if result["resumedAt"] + batches != result["batchesRequested"] or batches < 200:
        return "ERROR"
    if mounts:
        read = result["data"]["mounts"]
        points = {mount["mountPoint"] for mount in read}
        images = [mount["images"] for mount in read]
        whole = len(read) == len(points) == mounts and "" not in points
        enough = sum(images) >= sum(window["images"] for window in result["windows"])
        return "PASS" if whole and enough and min(images) * mounts * 1000 >= 800 * sum(images) else "FAIL"
    model = result["model"]
    if (model["name"], model["parameters"], model["classes"]) != ("ResNet50", 25_636_712, 1000):
        return "FAIL"
    losses = [window["loss"] for window in result["windows"]]
    fifth = max(1, len(losses) // 5)
    ends = losses[:fifth], losses[-fifth:]
    if None in ends[0] or None in ends[1]:
        return "FAIL"
    first, last = (math.fsum(part) / fifth for part in ends)
    return "PASS" if last < first else "FAIL"


def replay_invariant(name: str, events: list[Json], since: int, end: int) -> tuple[list[int], int]:
    """Return the times of violations, and the number of subjects."""
    world, times, subjects = World(), [], set()
    announced: set[str] = set()
    held: dict[str, Json] = {}
    partial: dict[tuple[str, str], int] = {}
    sessions = Sessions()
    begun = False
    for event in events:
        now: int = event["tMs"]
        if now >= since and not begun:
            begun = True
            times += [since] if is_wrong(name, world) else []
        if name == "gang-all-or-none":
            times += [now for start in partial.values() if now - start > 5000]
        last = held.get(event.get("uid", ""))
        world.apply(event)
        sessions.take(event, world.projects)
        is_pod = event["event"] == "pod"
        first = is_pod and event["eviction"] and event["uid"] not in announced
        if first:
            announced.add(event["uid"])
        had_its_time = name == "nothing-vanishes" and is_pod and sessions.was_due(event["uid"], now)
        times += [] if had_its_time else violations(name, world, event, last, bool(first))
        if is_pod and holds(event):
            held[event["uid"]] = event
        if name == "gang-all-or-none":
            parts = {key for key, pods in world.jobs().items() if in_part(world, key, pods)}
            partial = {key: partial.get(key, now) for key in parts}
        if now >= since:
            subjects |= subject(name, world, event, last, bool(first))
    times += [end for start in partial.values() if end - start > 5000]
    times += [since] if not begun and is_wrong(name, world) else []
    return times, len(subjects)


def reconcile(name: str, events: list[Json], since: int, end: int) -> tuple[list[int], int]:
    """Return the times at which kubelets or drivers contradict the scheduler, which has 5 s for each change, and the
    subjects.
    """
    world, times = World(), []
    kubelets = world.kubelets
    subjects: set[str] = set()
    wrong: dict[str, int] = {}
    for event in events:
        world.apply(event)
        times += [event["tMs"] for start in wrong.values() if event["tMs"] - start > 5000]
        if event["event"] not in {"pod", "gpus"}:
            continue
        on: dict[str, Json] = {}
        now: set[str] = set()
        if name == "kubelet-agrees":
            on = {pod["uid"]: pod for pod in world.holders() if kubelets.given(pod)}
            off = [(pod, kubelets.given(pod)) for pod in on.values()]
            now = {f"{pod['uid']} {sorted(g)} {pod['devices']}" for pod, g in off if g != set(pod["devices"])}
        else:
            for node, (_, gpus) in kubelets.spoke.items():
                users = [(world.pods[u], g["index"]) for g in gpus for u in g["users"] if u in world.pods]
                here = [(pod, index) for pod, index in users if holds(pod) and pod["node"] == node]
                on |= {pod["uid"]: pod for pod, _ in here}
                now |= {f"{p['uid']} {i} {p['devices']}" for p, i in here if i not in p["devices"]}
        about = {event.get("uid", "")}
        if event["event"] == "gpus":
            about = {uid for uid, pod in on.items() if pod["node"] == event["node"]}
        if event["tMs"] >= since and (name == "kubelet-agrees" or event["event"] == "gpus"):
            subjects |= about & set(on)
        wrong = {what: wrong.get(what, int(event["tMs"])) for what in now}
    times += [end for start in wrong.values() if end - start > 5000]
    for pod in world.holders() if name == "kubelet-agrees" else []:
        runs = pod["phase"] == "Running" and not pod["terminating"] and pod["gpuMilli"] >= 1000
        times += [end] if kubelets.speaks(pod["node"]) and runs and not kubelets.named(pod) else []
    return times, len(subjects)


def in_part(world: World, key: tuple[str, str], pods: list[Json]) -> bool:
    bound = sum(finished(pod) or (holds(pod) and not pod["terminating"]) for pod in pods)
    return 0 < bound < pods[0]["minMember"] and key not in world.deleted


def subject(name: str, world: World, event: Json, last: Json | None, first: bool) -> set[Any]:
    protected = {pod["uid"] for pod in world.holders() if not pod["preemptible"]}
    if name in {"node-capacity", "gpu-capacity"}:
        return {pod["uid"] for pod in world.holders()}
    if name == "interactive-within-quota":
        return protected
    if name == "gang-all-or-none":
        return {key for key, pods in world.jobs().items() if pods[0]["minMember"] > 1}
    if name == "nothing-vanishes":
        went = event["event"] == "pod" and event["change"] == "deleted" and last
        return {event["uid"]} if went else set()
    if first and (name == "in-quota-never-evicted" or protected):
        return {event["uid"]}
    return set()


def is_wrong(name: str, world: World) -> bool:
    """Return whether the state violates an invariant on states."""
    per_node: dict[str, int] = defaultdict(int)
    per_device: dict[tuple[str, int], int] = defaultdict(int)
    unnamed = False
    fixed: dict[str, int] = defaultdict(int)
    for pod in world.holders():
        per_node[pod["node"]] += pod["gpuMilli"]
        by_kubelet = world.kubelets.speaks(pod["node"]) and pod["gpuMilli"] >= 1000
        for index in world.kubelets.given(pod) if by_kubelet else pod["devices"]:
            per_device[pod["node"], index] += min(pod["gpuMilli"], 1000)
        for index in pod["devices"]:
            unnamed |= not 0 <= index < world.gpus.get(pod["node"], 0)
        needs = max(1, pod["gpuMilli"] // 1000)
        unnamed |= not len(set(pod["devices"])) == len(pod["devices"]) == needs
        if not pod["preemptible"]:
            fixed[pod["project"]] += pod["gpuMilli"]
    if name == "node-capacity":
        return any(milli > world.gpus.get(node, 0) * 1000 for node, milli in per_node.items())
    if name == "gpu-capacity":
        return unnamed or any(milli > 1000 for milli in per_device.values())
    over = any(milli > world.quota.get(project, 0) for project, milli in fixed.items())
    return name == "interactive-within-quota" and over


def violations(name: str, world: World, event: Json, last: Json | None, first: bool) -> list[int]:
    bad = is_wrong(name, world)
    if name == "interactive-never-evicted":
        bad = first and not event["preemptible"]
    elif name == "in-quota-never-evicted":
        bad = first and (event["project"], event["workload"]) in covered(world, event)
    elif name == "nothing-vanishes" and event["event"] == "pod" and event["change"] == "deleted":
        ordered = (event["project"], event["workload"]) in world.deleted
        if last:
            ended = (finished(event) and not last["terminating"]) or event["uid"] in world.drained
            bad = not (ended or event["eviction"] or last["eviction"] or ordered)
    return [event["tMs"]] if bad else []


def covered(world: World, victim: Json) -> set[tuple[str, str]]:
    """Return the jobs of the victim's project that are within its quota."""
    entries = []
    for key, pods in world.jobs().items():
        live = [pod for pod in pods if holds(pod)]
        counted = live or [pod for pod in pods if not pod["preemptible"] and not finished(pod)]
        if key[0] != victim["project"] or not (counted or key == (victim["project"], victim["workload"])):
            continue
        claim = counted or pods
        order = (claim[0]["preemptible"], -claim[0]["priority"], claim[0]["submittedUs"], key)
        entries.append((order, sum(pod["gpuMilli"] for pod in claim)))
    used, result = 0, set()
    for (*_, key), size in sorted(entries):
        if used + size <= world.quota.get(victim["project"], 0):
            used += size
            result.add(key)
    return result


def gravest(verdicts: list[str]) -> str:
    return next((verdict for verdict in GRAVEST if verdict in verdicts), "INCONCLUSIVE")


def read_events(directory: Path, source: Json) -> list[Json]:
    """Return the events of the run, from the file that the report names."""
    content = (directory / source["file"]).read_bytes()
    entries = [json.loads(line) for line in content.splitlines()]
    events = [entry["event"] for entry in entries if entry["entry"] == "observed"]
    if hashlib.sha256(content).hexdigest() != source["sha256"] or len(events) != source["events"]:
        sys.exit(f"{source['file']} is not the file that the report was made from")
    return events


def judge(report: Json, events: list[Json]) -> Json:
    """Return all verdicts of the report."""
    quotas = {scenario["id"]: scenario["quotasMilli"] for scenario in report["scenarios"]}
    weights = {scenario["id"]: scenario.get("weightsMilli", {}) for scenario in report["scenarios"]}
    scope = report["scope"]
    checks: dict[str, str] = {}
    for check in report["steps"]:
        verdict = circumstances(check)
        if not verdict:
            if check["kind"] == "step":
                verdict = judge_step(check, events, quotas[check["scenario"]], weights[check["scenario"]])
            elif check["kind"] == "view":
                verdict = judge_view(check, events)
            elif check["kind"] == "training":
                verdict = judge_training(check, events)
            elif check["kind"] == "utilization":
                verdict = judge_utilization(check, events)
            elif check["kind"] == "api":
                verdict = judge_answers(check, events)
            elif check["kind"] == "layer":
                verdict = judge_layer(check, scope, events)
            else:
                verdict = judge_invariant(check, events)
        waived = verdict == "FAIL" and is_waived(check, scope)
        checks[check["id"]] = "WAIVED" if waived else verdict
    requirements = {}
    for entry in report["requirements"]:
        verdicts = [checks.get(name, "INCONCLUSIVE") for name in entry["checks"]]
        verdict = gravest([verdict for verdict in verdicts if verdict != "NO SUBJECT"])
        requirements[entry["id"]] = "NOT_APPLICABLE" if entry["notApplicable"] else verdict
    proven = {name for entry in report["requirements"] for name in entry["checks"]}
    applying = [(e, requirements[e["id"]]) for e in report["requirements"] if not e["notApplicable"]]
    beside = [verdict for name, verdict in checks.items() if name not in proven]
    beside = [v for v in [*beside, *(v for _, v in applying)] if v in {"ERROR", "FAIL"}]
    if scope["deviations"] or report["interrupted"]:
        beside.append("INCONCLUSIVE")

    def of_run(verdicts: list[str]) -> str:
        return gravest([*verdicts, *beside, *([] if "PASS" in verdicts else ["INCONCLUSIVE"])])

    return {
        "checks": {name: "INCONCLUSIVE" if v == "NO SUBJECT" else v for name, v in checks.items()},
        "requirements": requirements,
        "verdict": of_run([verdict for entry, verdict in applying if entry["inPart"]]),
        "acceptance": of_run([verdict for _, verdict in applying]),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    recorded = json.loads((place / "report.json").read_bytes())
    print(json.dumps(judge(recorded, read_events(place, recorded["volatile"]["events"]))))
