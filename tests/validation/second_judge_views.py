"""The part of the second judge for the lists that the orchestrator shows. It imports nothing of muster."""

import json
import re
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from second_judge_pages import overview_is  # type: ignore[import-not-found]

Json = dict[str, Any]


def list_of(output: str) -> Any:
    """Return the objects of a JSON array; None for other text."""
    try:
        rows = json.loads(output, parse_constant=int)
    except (ValueError, RecursionError):
        return None
    return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None


def is_shown(name: str, world: Any, output: str) -> bool:
    """Return whether the list with this name, or the description of one job
    (`jobs/PROJECT/NAME`), matches the state.
    """
    try:
        rows = cells_of(output) if name == "table" else json.loads(output, parse_constant=int)
    except (ValueError, RecursionError):
        return False
    name, _, key = name.partition("/")
    if name == "table":
        return table_is(world, rows)
    if key:
        return isinstance(rows, dict) and one_job_is(world, rows, tuple(key.split("/")))
    if not isinstance(rows, list) or any(not isinstance(row, dict) for row in rows):
        return False
    judges = {"jobs": jobs_are, "nodes": nodes_are, "projects": projects_are, "overview": overview_is}
    result: bool = judges[name](world, rows)
    return result


HEADINGS = ["NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs", "CREATED BY CLI"]
HEADINGS += ["SERVICE URL(S)"]


def cells_of(output: str) -> Any:
    """Return the rows of a table, or of the JSON that a redacted record has in its place."""
    lines = [re.sub("   *", "\t", line.strip()).split("\t") for line in output.splitlines() if line.strip()]
    if HEADINGS not in lines:
        return json.loads(output, parse_constant=int)
    below = lines[lines.index(HEADINGS) + 1 :]
    if any(len(cells) not in {10, 11} for cells in below):
        raise ValueError("another number of cells")
    return [{name.lower(): (*cells, "")[at] for at, name in enumerate(HEADINGS)} for cells in below]


def table_is(world: Any, rows: Any) -> bool:  # noqa: PLR0911 - in the order of the document
    """Return whether the table has each job once, with the cells that its pods have."""
    if not isinstance(rows, list) or any(not isinstance(row, dict) for row in rows):
        return False
    jobs = {key: pods for key, pods in world.jobs().items() if key[0] in world.quota}
    submitted = {key for key in world.submitted if key[0] in world.quota}
    mine = [row for row in rows if word(row, "project") in {*world.quota, *world.gone}]
    counted = Counter((word(row, "project"), word(row, "name")) for row in mine)
    if set(counted) != set(jobs) | submitted or len(mine) != len(counted):
        return False
    for row in mine:
        key = (row["project"], row["name"])
        pods = jobs.get(key, [])
        if not pods or key in world.deleted:
            continue
        needed = {name.lower() for name in HEADINGS} - {"service url(s)", "node"}
        needed -= set() if key in world.submitted else {"user"}
        if any(word(row, name) in {"", "-"} for name in needed):
            return False
        if key in world.submitted and row.get("created by cli") != "true":
            return False
        calm = not any(pod["cause"] or leaves(pod) for pod in pods)
        up = [p for p in pods if p["phase"] == "Running" and occupies(p)]
        waits = all(not pod["node"] for pod in pods)
        expected = "Running" if len(up) >= pods[0]["minMember"] else "Pending" if waits else row.get("status")
        if calm and row.get("status") != expected:
            return False
        if not any(map(leaves, pods)) and thousandths(row.get("gpus")) != sum(p["gpuMilli"] for p in pods):
            return False
        places = {pod["node"] for pod in pods if occupies(pod)}
        if len(places) == 1 and [row.get("node")] != [*places]:
            return False
        fixed = [not p["preemptible"] for p in pods]
        session = any(not p["preemptible"] and p["priority"] >= 100 for p in pods)
        if (session and row.get("type") != "Interactive") or (
            not any(fixed) and row.get("type") == "Interactive"
        ):
            return False
    return True


def judge_container(  # noqa: PLR0911 - in the order of the document
    name: str, world: Any, during: list[Json], earlier: list[Json] | None = None
) -> str:
    """Return the verdict on the log, the shell or the volume of a job's container."""
    number = next(i for i, event in enumerate(during) if event["event"] == "answer" and event["view"] == name)
    output = during[number]["output"]
    kind, project, job = name.split("/")
    if kind == "shell":
        pods = world.jobs().get((project, job), [])
        names = [pod["pod"] for pod in pods if occupies(pod) and pod["phase"] == "Running"]
        return "PASS" if output.strip() in names else "FAIL"
    if kind in {"url", "snapshot", "mounts"}:
        return judge_requests(kind, output, [e for e in during if e.get("check") == name])
    if kind != "log":
        return judge_volume(name, world, during, earlier or [])
    logs = [event for event in during[:number] if event["event"] == "request" and event["check"] == name]
    later = [event for event in during[number:] if event["event"] == "request" and event["check"] == name]
    if not logs or not later:
        return "INCONCLUSIVE"
    if logs[-1]["problem"] or later[0]["problem"]:
        return "ERROR"
    before, printed, after = (text.split() for text in (logs[-1]["answer"], output, later[0]["answer"]))
    if not before:
        return "INCONCLUSIVE"
    grows = printed[: len(before)] == before and after[: len(printed) - 1] == printed[:-1]
    return "PASS" if grows else "FAIL"


def judge_requests(kind: str, output: str, requests: list[Json]) -> str:  # noqa: PLR0911 - in order
    if kind == "url":
        if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", output.strip()):
            return "FAIL"
        for path, is_served in (("SERVICE URL", True), ("SERVICE URL-no-such-job", False)):
            answers = [e for e in requests if e["path"] == path and e["method"] == "GET"]
            if not answers:
                return "INCONCLUSIVE"
            if answers[-1]["problem"]:
                return "ERROR"
            if (answers[-1]["status"] == 200) is not is_served:
                return "FAIL"
        return "PASS"
    if not requests:
        return "INCONCLUSIVE"
    if requests[-1]["problem"] or requests[-1]["status"] != 200:
        return "ERROR"
    if kind == "mounts":
        there = list_of_texts(requests[-1]["answer"])
        shown = [sorted(line[9:].split(", ")) for line in output.split("\n") if line.startswith("VOLUMES: ")]
        return "INCONCLUSIVE" if not there else "PASS" if shown[:1] == [sorted(there)] else "FAIL"
    try:
        entry = json.loads(requests[-1]["answer"])
        good = entry["status"]["readyToUse"] is True
        good = good and entry["spec"]["source"]["persistentVolumeClaimName"] == "test"
    except (ValueError, RecursionError, KeyError, TypeError):
        return "FAIL"
    return "PASS" if good else "FAIL"


def list_of_texts(answer: str) -> list[str]:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


def is_clone(claims: list[list[Any]], answer: str) -> bool:
    """Return whether the first claim is a clone of `test`, with a uid and a volume of its own."""
    try:
        source = json.loads(answer)["spec"]["dataSource"]
        named = (source["kind"], source["name"]) == ("PersistentVolumeClaim", "test")
    except (KeyError, TypeError):
        return False
    return named and all(one != other for one, other in zip(*claims, strict=True))


def judge_volume(name: str, world: Any, during: list[Json], earlier: list[Json]) -> str:  # noqa: PLR0911 - in order
    kind, project, job = name.split("/")
    answers = [e for e in [*earlier, *during] if e["event"] == "answer" and e["exitCode"] == 0]
    prefix = f"written/{project}/"
    own = next(event for event in answers if event["view"] == name and event in during)
    before = [e for e in answers if e["view"].startswith(prefix) and (kind == "written" or e in earlier)]
    written = own if kind == "written" else before[-1] if before else None
    if written is None:
        return "INCONCLUSIVE"
    claims = []
    for events, view in ((during, name), ([*earlier, *during], written["view"])):
        requests = [e for e in events if e["event"] == "request" and e["check"] == view]
        if not requests:
            return "INCONCLUSIVE"
        if requests[-1]["problem"] or requests[-1]["status"] != 200:
            return "ERROR"
        try:
            claim = json.loads(requests[-1]["answer"])
            claims.append([claim["metadata"]["uid"], claim["spec"]["volumeName"]])
        except (ValueError, RecursionError, KeyError, TypeError):
            return "FAIL"
        if not all(claims[-1]):
            return "FAIL"
    words, content = own["output"].split(), written["output"].strip()
    running = [p for p in world.jobs().get((project, job), []) if occupies(p) and p["phase"] == "Running"]
    here = [pod["node"] for pod in running if words and pod["pod"] == words[-1]]
    own_request = [e for e in during if e["event"] == "request" and e["check"] == name][-1]["answer"]
    fits = is_clone(claims, own_request) if kind == "cloned" else claims[0] == claims[1]
    if not here or words[:-1] != ([] if kind == "written" else [content]) or not fits:
        return "FAIL"
    if kind == "written":
        return "PASS"
    job = written["view"].split("/")[2]
    if (project, job, content) not in [
        (event["project"], event["workload"], event["pod"]) for event in earlier if event["event"] == "pod"
    ]:
        return "FAIL"
    if kind == "cloned":
        return "PASS"
    writers = [pod for pod in world.jobs().get((project, job), []) if pod["pod"] == content]
    if kind == "read":
        return "PASS" if any(pod["node"] != here[0] for pod in writers) else "FAIL"
    return "FAIL" if writers else "PASS"


def thousandths(value: Any) -> Any:
    """Return thousandths; None unless the value is a number with at most nine digits before
    and nine after the point.
    """
    if type(value) is int:
        return 1000 * value if 0 <= value < 10**9 else None
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return None
    number = 1000 * Fraction(value)
    return int(number) if number.denominator == 1 else None


def word(row: Json, field: str) -> str:
    value = row.get(field)
    return value if isinstance(value, str) else ""


def occupies(pod: Json) -> bool:
    return bool(pod["node"]) and not ended(pod)


def ended(pod: Json) -> bool:
    return pod["phase"] in {"Succeeded", "Failed"}


def leaves(pod: Json) -> bool:
    return ended(pod) or pod["terminating"]


def jobs_are(world: Any, rows: list[Json]) -> bool:
    jobs = {key: pods for key, pods in world.jobs().items() if key[0] in world.quota}
    submitted = {key for key in world.submitted if key[0] in world.quota}
    ours = {*world.quota, *world.gone}
    mine = [row for row in rows if word(row, "project") in ours]
    shown = Counter((word(row, "project"), word(row, "name")) for row in mine)
    if set(shown) != set(jobs) | submitted or any(count > 1 for count in shown.values()):
        return False
    return all(job_is(world, row, jobs.get((row["project"], row["name"]), [])) for row in mine)


def one_job_is(world: Any, row: Json, key: tuple[str, ...]) -> bool:
    pods = world.jobs().get(key, [])
    is_there = bool(pods) or key in world.submitted
    return is_there and (word(row, "project"), word(row, "name")) == key and job_is(world, row, pods)


def job_is(world: Any, row: Json, pods: list[Json]) -> bool:
    key = (row["project"], row["name"])
    is_submitted = key in world.submitted
    user_is = not is_submitted or word(row, "user") != ""
    return (
        status_is(world, row, pods)
        and type_is(row, pods, is_submitted=is_submitted)
        and user_is
        and gpus_are(row, pods)
        and nodes_of_job_are(row, pods)
        and duration_is(row, pods)
        and pods_are(row, pods)
    )


def status_is(world: Any, row: Json, pods: list[Json]) -> bool:
    key, status = (row["project"], row["name"]), row.get("status")
    if key in world.deleted:
        return True
    up = [p for p in pods if p["phase"] == "Running" and occupies(p) and not p["terminating"]]
    if pods and len(up) >= pods[0]["minMember"]:
        troubled = any(p["phase"] == "Failed" or (p["node"] and p.get("cause")) for p in pods)
        return status != "Pending" if troubled else status == "Running"
    if any(pod["node"] for pod in pods):
        return True
    if not pods or any(leaves(pod) for pod in pods):
        return status != "Running"
    return status == "Pending"


def type_is(row: Json, pods: list[Json], *, is_submitted: bool) -> bool:
    if any(not pod["preemptible"] and pod["priority"] >= 100 for pod in pods):
        return row.get("type") == "Interactive"
    if not pods or not is_submitted:
        return True
    if all(pod["preemptible"] for pod in pods) and row.get("type") == "Interactive":
        return False
    return word(row, "type") != ""


def gpus_are(row: Json, pods: list[Json]) -> bool:
    if thousandths(row.get("gpusAllocated")) != sum(pod["gpuMilli"] for pod in pods if occupies(pod)):
        return False
    asks = thousandths(row.get("gpus"))
    least = sum(pod["gpuMilli"] for pod in pods if not leaves(pod))
    if asks is None or asks < least:
        return False
    return asks == least or not pods or any(leaves(pod) for pod in pods)


def nodes_of_job_are(row: Json, pods: list[Json]) -> bool:
    nodes = row.get("nodes")
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        return False
    held = {pod["node"] for pod in pods if occupies(pod)}
    fit = set(nodes) == held if held else set(nodes) <= {pod["node"] for pod in pods if pod["node"]}
    return fit and len(set(nodes)) == len(nodes)


def duration_is(row: Json, pods: list[Json]) -> bool:
    seconds = row.get("durationSeconds")
    return type(seconds) is int and seconds >= 0 and (seconds == 0 or any(pod["node"] for pod in pods))


def pods_are(row: Json, pods: list[Json]) -> bool:
    instances: Any = row.get("instances")
    shown = [one for one in (instances if isinstance(instances, list) else []) if isinstance(one, dict)]
    where = {word(one, "name"): [word(one, "node"), word(one, "gpuDevices")] for one in shown}
    return len(shown) <= len(pods) and all(
        where.get(pod["pod"]) == [pod["node"], ",".join(str(index) for index in pod["devices"])]
        for pod in pods
    )


def nodes_are(world: Any, rows: list[Json]) -> bool:
    gpus = {name: count for name, count in world.gpus.items() if count}

    def counts(row: Json) -> tuple[Any, Any]:
        return thousandths(row.get("gpus")), thousandths(row.get("gpusUnhealthy", "0"))

    def has_some(row: Json) -> bool:
        total, unhealthy = counts(row)
        return total is not None and total > (unhealthy or 0)

    shown = [row for row in rows if word(row, "name") in gpus or has_some(row)]
    if sorted(word(row, "name") for row in shown) != sorted(gpus):
        return False
    for row in shown:
        total, unhealthy = counts(row)
        if total is None or unhealthy is None:
            return False
        if not 1000 * gpus[row["name"]] <= total <= 1000 * gpus[row["name"]] + unhealthy:
            return False
        held = sum(pod["gpuMilli"] for pod in world.holders() if pod["node"] == row["name"])
        if thousandths(row.get("gpusAllocated")) != held:
            return False
    return True


def projects_are(world: Any, rows: list[Json]) -> bool:
    ours = {*world.quota, *world.gone}
    mine = [row for row in rows if word(row, "name") in ours]
    if sorted(row["name"] for row in mine) != sorted(world.quota):
        return False
    for row in mine:
        spec = row.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        gpu, affinity = spec.get("gpu"), spec.get("nodeAffinity")
        if not isinstance(gpu, dict) or thousandths(gpu.get("quota")) != world.quota[row["name"]]:
            return False
        if not word(row, "created"):
            return False
        project = world.projects[row["name"]]
        groups = {kind: project.get(f"{kind}NodeTypes") or [] for kind in ("train", "interactive")}
        if not isinstance(affinity, dict) or {k: v for k, v in affinity.items() if v} != {
            kind: names for kind, names in groups.items() if names
        }:
            return False
        if milliseconds(spec.get("interactiveTimeLimit")) != project.get("interactiveLimitMs", 0):
            return False
    return True


def milliseconds(text: Any) -> Any:
    """Return milliseconds; None unless the text is absent, empty, or of the form `1h30m15s`."""
    if text is None or text == "":
        return 0
    parts = (
        re.fullmatch(r"([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,9}s)?", text) if isinstance(text, str) else None
    )
    if parts is None:
        return None
    return (
        sum(int(part[:-1]) * {"h": 3600, "m": 60, "s": 1}[part[-1]] for part in parts.groups() if part) * 1000
    )
