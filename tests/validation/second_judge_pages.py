"""The part of the second judge for web pages. It imports nothing of muster."""

import re
from collections import Counter
from fractions import Fraction
from typing import Any

Json = dict[str, Any]
FULL = 12
LENGTHS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 31536000}


def gpus(text: Any) -> Any:
    """Return thousandths of GPUs; None for a text that is no number of GPUs."""
    match = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?", text) if isinstance(text, str) else None
    if match is None:
        return None
    digits = (match[2] or "").ljust(9, "0")
    return None if int(digits[3:]) else int(match[1]) * 1000 + int(digits[:3])


def overview_is(world: Any, rows: list[Json]) -> bool:
    page = _Page(world, rows)
    states = page.part("state")
    return (
        len(states) == 1
        and states[0].get("current") == "yes"
        and page.figures_are()
        and page.shares_are()
        and page.holders_are()
        and page.waiters_are(states[0].get("at"))
        and page.nodes_are()
    )


def word(row: Json, key: str) -> str:
    return row[key] if isinstance(row.get(key), str) else ""


class _Page:
    def __init__(self, world: Any, rows: list[Json]) -> None:
        self.world = world
        self.rows = rows
        self.ours = {*world.quota, *world.gone}
        self.jobs = {key: pods for key, pods in world.jobs().items() if key not in world.deleted}
        self.held: Counter[tuple[str, str]] = Counter()
        for pod in world.holders():
            self.held[pod["project"], pod["workload"]] += pod["gpuMilli"]
        self.waits, self.may_wait = set(), {*world.submitted, *self.jobs}
        for key, pods in self.jobs.items():
            up = [p for p in pods if p["phase"] == "Running" and p["node"] and not p["terminating"]]
            if len(up) >= pods[0]["minMember"]:
                self.may_wait.discard(key)
            if not any(p["node"] or p["terminating"] or p["phase"] in ("Succeeded", "Failed") for p in pods):
                self.waits.add(key)

    def part(self, name: str) -> list[Json]:
        return [row for row in self.rows if word(row, "of") == name]

    def figures_are(self) -> bool:
        shown = {word(row, "figure"): word(row, "value") for row in self.part("figure")}
        there, held = 1000 * sum(self.world.gpus.values()), sum(self.held.values())
        total, sick = gpus(shown.get("GPUs")), gpus(shown.get("Unhealthy"))
        if total is None or sick is None or not total - sick <= there <= total:
            return False
        match = re.fullmatch(r"([0-9.]{1,19}) \(([0-9]{1,3})%\)", shown.get("Allocated", ""))
        if not match or gpus(match[1]) != held or int(match[2]) != (100 * held // total if total else 0):
            return False
        dead = gpus(shown.get("Not ready or cordoned", "0"))
        idle = sum(max(1000 * self.world.gpus[name] - self.held_on(name), 0) for name in self.world.down)
        if dead is None or not idle - sick <= dead <= idle:
            return False
        if gpus(shown.get("Free")) != max(total - sick - dead - held, 0):
            return False
        some = sum(1 for count in self.world.gpus.values() if count)
        return (
            self.measures_are(shown, held)
            and counts(shown, "Nodes", some, len(self.world.gpus))
            and counts(shown, "Jobs that hold GPUs", len(self.held), len(self.held))
            and counts(shown, "Jobs that wait", len(self.waits), len(self.may_wait))
        )

    def held_on(self, node: str) -> int:
        return sum(pod["gpuMilli"] for pod in self.world.holders() if pod["node"] == node)

    def measures_are(self, shown: dict[str, str], held: int) -> bool:
        idle, use = shown.get("Allocated, but idle", ""), shown.get("Utilization", "")
        if idle == use == "-":
            return not any(said for _, said in self.world.kubelets.spoke.values())
        milli = gpus(idle)
        return milli is not None and milli <= held and bool(re.fullmatch(r"-|(100|[0-9]{1,2})%", use))

    def shares_are(self) -> bool:
        mine = [row for row in self.part("share") if word(row, "project") in self.ours]
        if sorted(word(row, "project") for row in mine) != sorted(self.world.quota):
            return False
        for row in mine:
            name = row["project"]
            match = re.fullmatch(
                r"([0-9.]{1,19}) of ([0-9.]{1,19})(, over its quota)?(?:, ([0-9]{1,9}) waiting)?",
                word(row, "value"),
            )
            if not match:
                return False
            held = sum(milli for key, milli in self.held.items() if key[0] == name)
            quota = self.world.quota[name]
            if [gpus(match[1]), gpus(match[2]), bool(match[3])] != [held, quota, held > quota]:
                return False
            least, most = (sum(key[0] == name for key in keys) for keys in (self.waits, self.may_wait))
            if not least <= int(match[4] or 0) <= most:
                return False
        return True

    def table_is(self, rows: list[Json], must: Any, may: Any) -> bool:
        keys = [(word(row, "project"), word(row, "name")) for row in rows]
        mine = [key for key in keys if key[0] in self.ours]
        if len(rows) > FULL or len(set(mine)) < len(mine) or not set(mine) <= set(may):
            return False
        return len(rows) == FULL or {key for key in must if key[0] in self.ours} <= set(mine)

    def job_is(self, row: Json, key: tuple[str, str]) -> bool:
        pods = self.jobs[key]
        asks = sum(p["gpuMilli"] for p in pods if p["phase"] not in ("Succeeded", "Failed"))
        if gpus(row.get("GPUs")) != asks:
            return False
        if key not in self.world.submitted:
            return True
        interactive = any(not p["preemptible"] and p["priority"] >= 100 for p in pods)
        said = all(word(row, name) not in ("", "-") for name in ("TYPE", "USER"))
        return said and (row["TYPE"] == "Interactive") == interactive

    def holders_are(self) -> bool:
        rows = self.part("holding")
        if not self.table_is(rows, self.held, self.held):
            return False
        for row in rows:
            key = (word(row, "project"), word(row, "name"))
            if key not in self.held or key not in self.jobs:
                continue
            live = [p for p in self.jobs[key] if p["phase"] not in ("Succeeded", "Failed")]
            nodes = {p["node"] for p in live if p["node"]}
            where = nodes.pop() if len(nodes) == 1 else "<multiple>"
            if word(row, "node") != where or not re.fullmatch(r"[0-9]{1,9}[smhdy]", word(row, "DURATION")):
                return False
            if not self.job_is(row, key):
                return False
        return True

    def waiters_are(self, at: Any) -> bool:
        rows = self.part("waiting")
        if not self.table_is(rows, self.waits, self.may_wait):
            return False
        for row in rows:
            key = (word(row, "project"), word(row, "name"))
            if key not in self.waits:
                continue
            if type(at) is not int or word(row, "WAITS BECAUSE") in ("", "-") or not self.job_is(row, key):
                return False
            since = min(p["submittedUs"] for p in self.jobs[key]) // 10**6
            match = re.fullmatch(r"([0-9]{1,9})([smhdy])", word(row, "AGE"))
            if not match:
                return False
            unit = LENGTHS[match[2]]
            if not -15 <= at - since - int(match[1]) * unit < unit + 15:
                return False
        return True

    def nodes_are(self) -> bool:
        real = {name: count for name, count in self.world.gpus.items() if count}
        shown = [row for row in self.part("nodes") if word(row, "name") in real or gpus(row.get("GPUs"))]
        if sorted(word(row, "name") for row in shown) != sorted(real):
            return False
        for row in shown:
            total, sick, used, free = (
                gpus(row.get(key)) for key in ("GPUs", "UNHEALTHY", "ALLOCATED", "FREE")
            )
            held = self.held_on(row["name"])
            if total is None or sick is None or not total - sick <= 1000 * real[row["name"]] <= total:
                return False
            left = 0 if row["name"] in self.world.down else max(0, total - sick - held)
            if (used, free) != (held, left):
                return False
        return True


def counts(shown: dict[str, str], name: str, least: int, most: int) -> bool:
    text = shown.get(name, "")
    return bool(re.fullmatch(r"[0-9]{1,9}", text)) and least <= int(text) <= most


def analytics_is(  # noqa: C901, PLR0911, PLR0912 - one rule after the other
    events: list[Json], number: int, world: Any, rows: list[Json]
) -> bool:
    """Return whether the page shows the GPUs that each project held over time, up to the answer with this number."""
    answered = events[number]["tMs"]
    read = [row.get("at") for row in rows if word(row, "of") == "read"]
    if len(read) != 1 or type(read[0]) is not int:
        return False
    born: dict[str, int] = {}
    for event in events[: number + 1]:
        if event["event"] == "project":
            born.setdefault(event["project"], event["tMs"])
        elif event["event"] == "projectDeleted":
            born.pop(event["project"], None)
    shown = [row for row in rows if word(row, "of") == "summary" and word(row, "project") in world.quota]
    if sorted(row["project"] for row in shown) != sorted(world.quota):
        return False
    for row in shown:
        held = sum(pod["gpuMilli"] for pod in world.holders() if pod["project"] == row["project"])
        if gpus(row.get("GPUs NOW")) != held or gpus(row.get("QUOTA")) != world.quota[row["project"]]:
            return False
    steps = _steps(events[: number + 1])
    for project in world.quota:
        line = [(at, held.get(project, 0)) for at, held in steps]
        lengths = 0
        for row in rows:
            if word(row, "of") != "point" or word(row, "project") != project:
                continue
            if type(row.get("at")) is not int:
                return False
            slot = row["at"] * 1000 - (read[0] - answered)
            start, end = max(slot, born.get(project, 0)), min(slot + 60_000, answered)
            if end - start < 10_000:
                continue
            lengths += 1
            if not _is_mean(word(row, "GPUs ALLOCATED"), line, start, end):
                return False
        if not lengths:
            return False
    return True


def _steps(events: list[Json]) -> list[tuple[int, Counter[str]]]:
    """Return the GPUs that each project held, with the time from which it held them."""
    pods: dict[str, Json] = {}
    steps: list[tuple[int, Counter[str]]] = []
    for event in events:
        if event["event"] == "pod":
            pods[event["uid"]] = event
            if event["change"] == "deleted":
                del pods[event["uid"]]
        held: Counter[str] = Counter()
        for pod in pods.values():
            if pod["node"] and pod["phase"] not in ("Succeeded", "Failed"):
                held[pod["project"]] += pod["gpuMilli"]
        if not steps or steps[-1][1] != held:
            steps.append((event["tMs"], held))
    return steps


def _is_mean(text: str, line: list[tuple[int, int]], start: int, end: int) -> bool:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return False

    def pieces(first: int, last: int) -> list[tuple[int, int]]:
        """Return lengths and values in this time."""
        until = [at for at, _ in line[1:]] + [last]
        found = [
            (min(max(stop, at), last) - max(at, first), value)
            for (at, value), stop in zip(line, until, strict=False)
        ]
        return [(length, value) for length, value in found if length > 0] or [(0, 0)]

    length = end - start
    around = [value for _, value in pieces(start - 10_000, end + 10_000)]
    changes = sum(abs(around[i] - around[i - 1]) for i in range(1, len(around)))
    number = Fraction(text) * 1000
    mean = Fraction(sum(span * value for span, value in pieces(start, end)), length)
    is_near = abs(number - mean) <= Fraction(10_000 * changes, length) + 1
    return is_near and min(around) - 1 <= number <= max(around) + 1
