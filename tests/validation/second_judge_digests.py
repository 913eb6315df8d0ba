"""The part of the second judge for digests of exact computations. It imports nothing of muster."""

import json
from collections import Counter
from typing import Any

Json = dict[str, Any]
NAMES = {"product", "half", "training"}


def judge_digests(job: Json, outputs: list[Json]) -> str:
    """Return the verdict on the outputs of all pods."""
    documents = [document(output["line"]) for output in outputs]
    if any(output["exitCode"] for output in outputs) or None in documents:
        return "FAIL"
    read = [one for one in documents if one]
    if any(one["deviceKind"] != job["device"] for one in read):
        return "FAIL"
    if not all(any(gpu["digests"] for gpu in one["devices"]) for one in read):
        return "INCONCLUSIVE"
    gpus = [gpu for one in read for gpu in one["devices"]]
    uuids = Counter(gpu["uuid"] for gpu in gpus if gpu["uuid"])
    twice = sum(number - 1 for number in uuids.values())
    if not all(gpu["digests"] for gpu in gpus) or is_wrong(gpus) or len(gpus) - twice != job["devices"]:
        return "FAIL"
    for one in read:
        for gpu in one["devices"]:
            counts = [sum(counts.values()) for counts in gpu["digests"].values()]
            if one["repeats"] < 3 or set(gpu["digests"]) != NAMES or set(counts) != {one["repeats"]}:
                return "ERROR"
    return "INCONCLUSIVE" if 1 in Counter(map(kind_of, gpus)).values() else "PASS"


def document(line: str) -> Json | None:
    """Return the document in a line."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "DigestsResult" else None


def kind_of(gpu: Json) -> tuple[str, int, str]:
    return gpu["model"], gpu["processors"], gpu["library"]


def is_wrong(gpus: list[Json]) -> bool:
    """Return whether a GPU has two digests of a computation, or two GPUs of a kind have different ones."""
    seen: dict[Any, set[str]] = {}
    for number, gpu in enumerate(gpus):
        for name, counts in gpu["digests"].items():
            seen.setdefault((number, name), set()).update(counts)
            seen.setdefault((kind_of(gpu), name), set()).update(counts)
    return any(len(digests) > 1 for digests in seen.values())
