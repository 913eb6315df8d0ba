"""The part of the second judge for the use of GPUs, from record.md and the schema. It imports nothing of muster."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import Any

Json = dict[str, Any]
Gpu = tuple[str, int]
MAX_GAP_MS = 10_000


def judge_use(check: Json, events: list[Json], nodes: dict[str, int], evidence: Json) -> str:  # noqa: PLR0911
    """Return the verdict, apart from gaps of the watch. `nodes` and `evidence` are those of the window."""
    window, standard = check["volatile"]["window"], check["utilization"]
    start, end = window["startedMs"], window["endedMs"]
    during = events[window["startEvent"] : window["untilEvent"]]
    pages = [event for event in during if event["event"] == "samples" and not event["problem"]]
    if {node for node, gpus in nodes.items() if gpus} - {page["node"] for page in pages}:
        return "ERROR"
    samples: dict[Gpu, dict[int, int]] = defaultdict(dict)
    for page in pages:
        for gpu in page["gpus"]:
            if gpu["percent"] is not None:
                samples[page["node"], gpu["index"]][page["tMs"]] = gpu["percent"]
    has = evidence | {"samples": sum(start < t <= end for one in samples.values() for t in one)}
    if any(has[name] < check["least"][name] for name in has):
        return "ERROR"
    gpus = {gpu: of_gpu(samples[gpu], spans) for gpu, spans in held(pages, start, end).items() if spans}
    if not gpus or any(not gpu["samples"] for gpu in gpus.values()):
        return "ERROR"
    if any(gpu["idle"] >= min(60_000, end - start) for gpu in gpus.values()):
        return "FAIL"
    if len(gpus) < sum(nodes.values()) or any(gpu["held"] < end - start for gpu in gpus.values()):
        return "FAIL"
    if any(gpu["gap"] > MAX_GAP_MS for gpu in gpus.values()) or end - start < standard["windowMs"]:
        return "INCONCLUSIVE"
    percents = [gpu["percent"] for gpu in gpus.values()]
    enough = sum(percents) / len(percents) >= standard["minimumPercent"]
    return "PASS" if enough and min(percents) >= standard["minimumPercentOfAGpu"] else "FAIL"


def held(pages: list[Json], start: int, end: int) -> dict[Gpu, list[tuple[int, int]]]:
    """Return the disjoint spans within the window in which each GPU was held."""
    pieces: dict[Gpu, list[tuple[int, int]]] = defaultdict(list)
    by_node: dict[str, list[Json]] = defaultdict(list)
    for page in pages:
        by_node[page["node"]].append(page)
    for node, of_node in by_node.items():
        words = [{(g["index"], pod) for g in page["gpus"] for pod in g["holders"]} for page in of_node]
        times = [page["tMs"] for page in of_node]
        stretches = [(start, times[0], words[0]), (times[-1], end, words[-1])]
        heard = list(zip(times, words, strict=True))
        stretches += [(before, now, word & then) for (before, word), (now, then) in pairwise(heard)]
        for begins, ends, word in stretches:
            for index, _ in word:
                pieces[node, index].append((max(begins, start), min(ends, end)))
    spans: dict[Gpu, list[tuple[int, int]]] = {}
    for gpu, of_gpu in pieces.items():
        merged: list[tuple[int, int]] = []
        for begins, ends in sorted(piece for piece in of_gpu if piece[0] < piece[1]):
            if merged and begins <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(ends, merged[-1][1]))
            else:
                merged.append((begins, ends))
        spans[gpu] = merged
    return spans


def of_gpu(samples: dict[int, int], spans: list[tuple[int, int]]) -> dict[str, Any]:
    """Return the known figures of one GPU for the time in which it was held."""
    times = sorted(samples)
    weighted, known, gap, idle_ms, count = 0, 0, 0, 0, 0
    for begins, ends in spans:
        idle = 0
        edges = [times[0], times[-1]] if times else [ends, ends]
        unknown = [(begins, min(edges[0], ends)), (max(edges[1], begins), ends)]
        for before, now in pairwise(times):
            length = min(now, ends) - max(before, begins)
            if length <= 0:
                continue
            if now - before > MAX_GAP_MS:
                unknown.append((max(before, begins), min(now, ends)))
                idle = 0
                continue
            weighted += samples[now] * length
            known += length
            idle = 0 if samples[now] else idle + length
            idle_ms = max(idle_ms, idle)
        gap = max([gap, *(last - first for first, last in unknown)])
        count += sum(begins < time <= ends for time in times)
    return {
        "held": sum(ends - begins for begins, ends in spans),
        "samples": count,
        "gap": gap,
        "idle": idle_ms,
        "percent": Fraction(weighted, known) if known else Fraction(0),
    }
