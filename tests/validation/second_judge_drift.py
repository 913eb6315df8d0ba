"""The part of the second judge for the check drift: figures and facts of hosts beside those of a baseline.

It imports nothing of muster, and is written only from docs/reference/record-layers.md.
"""

import statistics
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Reader = Callable[[str], dict[str, Any]]
"""Returns the readable outputs of a tool by host."""


def of_run(
    baseline: Json, events: list[Json], printed: Reader, documents: Callable[[str], Any], measured: Any
) -> list[str]:
    """Return the verdicts. `documents` reads samples of nvidia-smi, `measured` a number with its unit."""
    there = parts_of(baseline["hosts"])
    here = measure(events, printed, documents, measured)
    known = {host["name"] for host in baseline["hosts"]}
    uids = [event["kubeSystemUid"] for event in events if event["event"] == "cluster"]
    other = bool(uids and uids[-1] and baseline["kubeSystemUid"]) and uids[-1] != baseline["kubeSystemUid"]
    gpus = {place[1] for place in here if len(place) == 2}
    if other or (gpus and not gpus & {place[1] for place in there if len(place) == 2}):
        return ["INCONCLUSIVE"]
    if not here:
        return []
    names = {place[0] for place in here}
    fits = names <= known
    both = [place for place in here if place in there]
    fits &= {place for place in there if place[0] in names} == {place for place in here if place[0] in known}
    fits &= all(here[place][1] == there[place][1] for place in both)
    found, compared = [], 0
    seen = {figure for figures, _ in here.values() for figure in figures}
    for limit in baseline["limits"]:
        if limit["figure"] not in seen:
            continue
        for place in both:
            before, now = (side[place][0].get(limit["figure"]) for side in (there, here))
            fits &= (before is None) == (now is None)
            if before is None or now is None:
                continue
            compared += 1
            more = limit["maximumIncrease"]
            if now * 100 < before * limit["minimumPercent"] or (more >= 0 and now - before > more):
                found.append("FAIL")
    return [*found, *([] if fits and compared else ["INCONCLUSIVE"])] or ["PASS"]


def parts_of(hosts: list[Json]) -> dict[tuple[str, ...], tuple[Json, Json]]:
    """Return figures and facts of each host and each GPU."""
    parts: dict[tuple[str, ...], tuple[Json, Json]] = {}
    for host in hosts:
        parts[(host["name"],)] = (host["figures"], host["facts"])
        for gpu in host["gpus"]:
            parts[(host["name"], gpu["uuid"])] = (gpu["figures"], gpu["facts"])
    return parts


def measure(
    events: list[Json], printed: Reader, documents: Callable[[str], Any], measured: Any
) -> dict[tuple[str, ...], tuple[Json, Json]]:
    """Return the limited figures, and the facts, of each host and each GPU of the run."""
    reduced, read, burned = printed("nccl"), printed("fio"), printed("burn-in")
    beside = beside_burn_in(events, documents)
    parts: dict[tuple[str, ...], tuple[Json, Json]] = {}
    for name, (driver, _, cards) in printed("nvidia-smi").items():
        figures: Json = {}
        if name in reduced:
            largest = max(row[0] for row in reduced[name].rows)
            first = next(row for row in reduced[name].rows if row[0] == largest)
            figures["nccl-all-reduce"] = first[1] * 1000
        if read.get(name):
            figures["fio-read"] = sum(group[1] for group in read[name]) // 1_000_000
        parts[(name,)] = (in_53_bits(figures), {"driver": driver})
        rates = burned[name][1] if name in burned else []
        for index, card in enumerate(cards):
            own = under_load([one for one in beside.get(name, []) if one.uuid == card.uuid], measured)
            if len(rates) == len(cards):
                own["burn-in"] = rates[index]
            parts[(name, card.uuid)] = (in_53_bits(own), facts(card))
    return parts


def in_53_bits(figures: Json) -> Json:
    return {name: int(value) for name, value in figures.items() if abs(value) < 1 << 53}


def beside_burn_in(events: list[Json], documents: Callable[[str], Any]) -> dict[str, list[Any]]:
    """Return the GPUs of all readings beside the last burn-in, by host."""
    last: dict[str, str] = {}
    found: dict[str, list[Any]] = {}
    for event in (one for one in events if one["event"] == "tool"):
        if event["tool"] in ("nccl", "burn-in"):
            last[event["host"]] = event["tool"]
        if event["tool"] != "samples" or last.get(event["host"]) != "burn-in":
            continue
        whole = [] if event["problem"] or event["exitCode"] else documents(event["output"])
        if whole:
            found[event["host"]] = [card for cards in whole for card in cards]
    return found


def under_load(cards: list[Any], measured: Any) -> Json:
    draws = [
        f"{group}/{name}"
        for group in ("gpu_power_readings", "power_readings")
        for name in ("average_power_draw", "power_draw", "instant_power_draw")
    ]
    paths = {"burn-in-clock": ["clocks/sm_clock"], "burn-in-power": draws}
    paths["burn-in-temperature"] = ["temperature/gpu_temp"]
    own: Json = {}
    for figure, names in paths.items():
        texts = [
            next((card.texts[one] for one in names if one in card.texts), "")
            for card in cards
            if not card.idle
        ]
        values = [value for text in texts if (value := measured(text)) is not None]
        if values:
            own[figure] = max(values) if figure == "burn-in-temperature" else statistics.median_high(values)
    return own


def facts(card: Any) -> Json:
    limits = [
        f"{group}/{name}"
        for group in ("gpu_power_readings", "power_readings")
        for name in ("current_power_limit", "enforced_power_limit", "power_limit")
    ]
    product, vbios, inforom, memory, *_ = card.same
    words = {
        "product": product,
        "vbios": vbios,
        "inforom": inforom,
        "memory": f"{memory} MiB",
        "ecc": {"Enabled": "on", "Disabled": "off"}.get(card.ecc, ""),
        "power limit": next((card.texts[path] for path in limits if path in card.texts), ""),
        "mig": card.texts.get("mig_mode/current_mig", ""),
    }
    return {name: text for name, text in words.items() if text}
