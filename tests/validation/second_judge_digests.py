"""The part of the second judge for digests of exact computations. It imports nothing of muster."""

import json
import re
from collections import Counter
from typing import Any

Json = dict[str, Any]
EXACT = {
    "gpu": {
        "product": "5aa13a62c1ce95695a372e6149e02d016ab6f8d41d28cfb038b1d3f5815497d1",
        "half": "b01770221a141bef15fa90d37f0917d1d9a4a34cb11291f432021f9f8e176f62",
        "training": "48fa6212cdc18d44f5f7ee46336bb75b598d26077bb80fd63bbb57ae11ba3a48",
    },
    "cpu": {
        "product": "90d15b98f225ad1ab163b5392badf21cd653319245d57ac88b19d15f55f35fb9",
        "half": "782fe55dac8ea798afad426154a71569fae12458fd41e3e84adfb383890f1d53",
        "training": "de9379dedf91ac57156c2a57283a05b6e8de68f7ff2086b0ebb3a92c42f13f31",
    },
}
FIELDS = {"apiVersion", "kind", "deviceKind", "repeats", "devices"}
OF_DEVICE = {"index", "uuid", "model", "library", "digests"}


def judge_digests(job: Json, outputs: list[Json], nodes: dict[str, int], reports: list[Json]) -> str:  # noqa: PLR0911 - one rule, in the order of the document
    """Return the verdict on the outputs of all pods.

    `nodes` are the GPUs of each node, `reports` the events of agents.
    """
    read = [(output, document(output["line"])) for output in outputs if not output["problem"]]
    if any(output["exitCode"] or result is None for output, result in read):
        return "FAIL"
    pods = [(output, result) for output, result in read if result is not None]
    if any(is_of_other_kind(result, job["device"]) or is_wrong(result) for _, result in pods):
        return "FAIL"
    gpus = [(output, result, gpu) for output, result in pods for gpu in result["devices"]]
    uuids = [gpu["uuid"] for _, _, gpu in gpus if gpu["uuid"]]
    if len(uuids) > len(set(uuids)):
        return "FAIL"
    if any(len(pod["devices"]) > len({gpu["index"] for gpu in pod["devices"]}) for _, pod in pods):
        return "FAIL"
    if len(read) < len(outputs):
        return "ERROR"
    if not all(any(gpu["digests"] for gpu in result["devices"]) for _, result in pods):
        return "INCONCLUSIVE"
    if len(gpus) != job["devices"]:
        return "FAIL"
    if any(result["repeats"] < 3 or is_incomplete(gpu, result) for _, result, gpu in gpus):
        return "ERROR"
    counted = Counter(output["node"] for output, _, _ in gpus)
    if any(counted[node] < number for node, number in nodes.items()):
        return "INCONCLUSIVE"
    reported = {(event["node"], gpu.get("uuid", "")) for event in reports for gpu in event.get("gpus", [])}
    named = (
        (output["node"], gpu["uuid"]) in reported and gpu["uuid"] and gpu["model"] for output, _, gpu in gpus
    )
    return "PASS" if job["device"] == "cpu" or all(named) else "INCONCLUSIVE"


def is_of_other_kind(result: Json, kind: str) -> bool:
    on_processor = any(gpu["model"].startswith("CPU ") for gpu in result["devices"])
    return bool(result["deviceKind"] != kind or (kind == "gpu" and on_processor))


def is_wrong(result: Json) -> bool:
    """Return whether a device of the document has another result, or none beside others, or reports a problem."""
    if any(gpu["digests"] for gpu in result["devices"]):
        for gpu in result["devices"]:
            if not gpu["digests"] or gpu.get("problem"):
                return True
    exact = EXACT[result["deviceKind"]]
    for gpu in result["devices"]:
        for name, counts in gpu["digests"].items():
            if len(counts) > 1 or (name in exact and set(counts) - {exact[name]}):
                return True
    return False


def is_incomplete(gpu: Json, result: Json) -> bool:
    """Return whether a digest of a computation is missing in some repeat."""
    totals = {name: sum(counts.values()) for name, counts in gpu["digests"].items()}
    return totals != dict.fromkeys(EXACT[result["deviceKind"]], result["repeats"])


def document(line: str) -> Json | None:
    """Return the document in a line; None if the line has another form than the schema."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or set(found) != FIELDS:
        return None
    head = found["apiVersion"], found["kind"]
    if head != ("muster.dev/v1alpha1", "DigestsResult") or found["deviceKind"] not in ("gpu", "cpu"):
        return None
    if type(found["repeats"]) is not int or not isinstance(found["devices"], list):
        return None
    return found if all(map(is_device, found["devices"])) else None


def is_device(gpu: Any) -> bool:
    """Return whether the value is an entry of a device."""
    if not isinstance(gpu, dict) or set(gpu) - {"problem"} != OF_DEVICE or type(gpu["index"]) is not int:
        return False
    lengths = {"uuid": 100, "model": 100, "library": 100, "problem": 300}
    if not all(is_text(gpu.get(name, ""), length) for name, length in lengths.items()):
        return False
    return isinstance(gpu["digests"], dict) and all(
        re.fullmatch("[a-z]{1,20}", name) and is_counted(counts) for name, counts in gpu["digests"].items()
    )


def is_text(value: Any, length: int) -> bool:
    return isinstance(value, str) and len(value) <= length and re.fullmatch("[ -~]*", value) is not None


def is_counted(counts: Any) -> bool:
    """Return whether the value has a positive number for each digest."""
    return isinstance(counts, dict) and all(
        re.fullmatch("[0-9a-f]{64}", digest) and type(number) is int and number >= 1
        for digest, number in counts.items()
    )
