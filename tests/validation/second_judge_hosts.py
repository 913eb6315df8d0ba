"""The part of the second judge for hosts: the verdicts on the output of their tools.

It imports nothing of muster, and is written only from docs/reference/record.md.
"""

import ipaddress
import itertools
import json
import math
import re
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from second_judge_drift import of_run as of_drift  # type: ignore[import-not-found]
from second_judge_gpus import SICK, SILENT, leaves, says, spoken_of  # type: ignore[import-not-found]
from second_judge_groups import of_events as of_groups  # type: ignore[import-not-found]
from second_judge_kernel import of_log  # type: ignore[import-not-found]
from second_judge_lines import odd  # type: ignore[import-not-found]

Json = dict[str, Any]
Found = list[str]
"""Verdicts on one check; the gravest counts. NOTHING means that there was no subject."""
NOTHING = "NO SUBJECT"
GRAVITY = ["ERROR", "FAIL", "INCONCLUSIVE", "PASS"]
OF_DRIVER = {"nvidia-smi", "nvlink", "nvlink-errors", "topology", "write", "read", "nccl", "fio", "burn-in"}
"""The tools whose failure is a fault of the host."""


class Unreadable(Exception):
    """The text is not output of the tool."""


class Card(NamedTuple):
    """A GPU in the XML of nvidia-smi."""

    bus: str
    uuid: str
    same: tuple[str, ...]
    ecc: str
    errors: int | None
    waits: bool
    generation: int
    width: int
    idle: bool
    held: bool
    said: list[tuple[str, str]]
    texts: dict[str, str]


class Hosts:
    """The output of the tools, by host, and the verdicts on unreadable hosts."""

    def __init__(self, scope: Json, events: list[Json]) -> None:
        self.scope, self.site, self.events = scope, scope["site"], events
        self.bad: Found = []
        self.read_any = False

    def runs(self, tool: str, host: str) -> list[Json]:
        return [e for e in self.events if e["event"] == "tool" and (e["tool"], e["host"]) == (tool, host)]

    def boots(self, needed: bool) -> Found:
        """Return the verdicts on boot ids. With `needed`, each reading must have one."""
        heard = [e for e in self.events if e["event"] == "tool" and not e.get("problem")]
        ids = {(e["host"], e.get("bootId", "")) for e in heard}
        known = [host for host, boot_id in ids if boot_id]
        if len(known) != len(set(known)):
            return ["FAIL"]
        return ["INCONCLUSIVE"] if needed and any(not boot_id for _, boot_id in ids) else []

    def early(self, tool: str, least_ms: int) -> Found:
        """Return a verdict for each load that ended too early."""
        runs = [self.runs(tool, host["name"]) for host in self.site["hosts"]]
        ended = [e for here in runs for e in here if not e.get("problem") and not e["exitCode"]]
        last = {e["host"]: e.get("ranMs", 0) for e in ended}
        return ["FAIL"] if any(ran < least_ms for ran in last.values()) else []

    def asks(self, tool: str, host: Json) -> bool:
        site = self.site
        if tool == "frames":
            return bool(site["mtu"] and site["servers"])
        if tool == "nccl":
            return bool(host["gpus"])
        return bool(site["mounts"]) if tool in {"write", "read", "fio"} else True

    def printed(self, tool: str, reader: Callable[[str], Any], which: int = -1) -> dict[str, Any]:
        values = {}
        for host in self.site["hosts"]:
            if not self.asks(tool, host):
                continue
            runs = self.runs(tool, host["name"])
            if not runs or runs[-1]["problem"]:
                self.bad.append("ERROR")
            elif runs[-1]["exitCode"] == 127:
                self.bad.append("INCONCLUSIVE")
            elif runs[-1]["exitCode"]:
                self.bad.append("FAIL" if tool in OF_DRIVER else "ERROR")
            else:
                if re.search(r"\bFAILED\b", runs[which]["output"]):
                    self.bad.append("FAIL")
                if tool in {"nccl", "fio", "burn-in"}:
                    self.bad += died(runs[which]["output"])
                try:
                    values[host["name"]] = reader(runs[which]["output"])
                    self.read_any = True
                    self.bad += ["INCONCLUSIVE"] if odd(tool, runs[which]["output"], SICK) else []
                except (Unreadable, ValueError, KeyError, TypeError, AttributeError, ET.ParseError):
                    self.bad.append("ERROR")
        return values

    def readings(self) -> dict[str, list[list[Card]]]:
        """Return the GPUs in the readings of nvidia-smi during the loads, by host."""
        found: dict[str, list[list[Card]]] = {}
        for event in self.events:
            if event["event"] != "tool" or event["tool"] != "samples":
                continue
            whole = [] if event["problem"] or event["exitCode"] else read_documents(event["output"])
            if whole:
                found.setdefault(event["host"], []).extend(whole)
                self.read_any = True
            else:
                self.bad.append("INCONCLUSIVE")
        return found

    def model(self, name: str) -> str:
        return next((host["model"] for host in self.site["hosts"] if host["name"] == name), "")

    def system(self, host: Json) -> Json | None:
        return next((s for s in self.scope["systems"] if s["model"] == host["model"]), None)

    def threshold(self, metric: str, cards: list[str], fabric: str) -> Json | None:
        for one in self.scope["thresholds"]:
            for_these = (one["metric"], one["gpus"], one["fabric"]) == (metric, len(cards), fabric)
            if for_these and all(one["gpu"] in card for card in cards):
                return dict(one)
        return None


def died(text: str) -> Found:
    """Return the verdicts on messages about a crash in a load, or on a warning of NCCL."""
    words = r"Segmentation fault|core dumped|\bAborted\b|Bus error|\bKilled\b"
    words += r"|[Cc](?:UDA|uda) (?:error|failure)|CUDA_ERROR_|\bECC error"
    return [*(["FAIL"] if re.search(words, text) else []), *(["INCONCLUSIVE"] if "NCCL WARN" in text else [])]


def slower(values: Any, kinds: dict[Any, str], percent: int) -> bool:
    """Return whether a value is below `percent` of its kind's median (of an even number of values, the higher middle
    one).
    """
    for kind in set(kinds.values()):
        here = [values[key] for key in values if kinds[key] == kind]
        if here and min(here) * 100 < statistics.median_high(here) * percent:
            return True
    return False


def unlike(hosts: Hosts, facts: dict[str, dict[str, Any]]) -> bool:
    """Return whether a host differs in a fact from the others of its model."""
    for model in {hosts.model(name) for name in facts}:
        here = [of_host for name, of_host in facts.items() if hosts.model(name) == model]
        if any(of_host != here[0] for of_host in here):
            return True
    return False


def fails(wrong: bool) -> Found:
    return ["FAIL" if wrong else "PASS"]


def number(node: ET.Element, path: str, unit: str = "") -> int | None:
    digits = re.fullmatch(rf"([0-9]+){unit}", (node.findtext(path) or "").strip())
    return int(digits[1]) if digits else None


def read_cards(text: str) -> tuple[str, int, list[Card]]:
    """Return the driver, the number of attached GPUs, and each GPU."""
    if "<!ENTITY" in text or len(text) > 16 << 20:
        raise Unreadable
    root = ET.fromstring(text)  # noqa: S314 - expat bounds what it expands
    if root.tag != "nvidia_smi_log":
        raise Unreadable
    driver = (root.findtext("driver_version") or "").strip()
    beside = ET.Element("beside")
    beside.extend([words_of(root)] if (root.text or "").strip() else [])
    for child in root:
        if child.tag != "gpu":
            beside.append(child)
        elif (child.tail or "").strip():
            ET.SubElement(beside, "text").text = child.tail
    for words in re.findall(r"<!--(.*?)-->", text, re.DOTALL):
        ET.SubElement(beside, "comment").text = words
    said = [found for path, text in leaves(beside) if (found := says(path, text))]
    cards = [read_card(gpu) for gpu in root.findall("gpu")]
    if said and cards:
        cards[0].said.extend(said)
    return driver, number(root, "attached_gpus") or 0, cards


def words_of(node: ET.Element) -> ET.Element:
    """Return an element with the text at the beginning of a node."""
    element = ET.Element("text")
    element.text = node.text
    return element


def read_documents(text: str) -> list[list[Card]]:
    """Return the GPUs in each document. The last document may be cut. None if another document is unreadable."""
    parts = [part for part in re.split(r"(?=<\?xml\b)", text) if part.strip()]
    whole: list[list[Card]] = []
    for part in parts:
        try:
            whole.append(read_cards(part)[2])
        except (Unreadable, ET.ParseError):
            return whole if part is parts[-1] and "</nvidia_smi_log>" not in part else []
    return whole


def generation(gpu: ET.Element) -> int:
    here = number(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen") or 0
    there = number(gpu, "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen")
    return here if there is None else min(here, there)


def read_card(gpu: ET.Element) -> Card:
    def words(path: str) -> str:
        return (gpu.findtext(path) or "").strip()

    counts = [
        number(gpu, f"ecc_errors/volatile/{name}")
        for name in (
            "sram_uncorrectable",
            "sram_uncorrectable_parity",
            "sram_uncorrectable_secded",
            "dram_uncorrectable",
            "double_bit/total",
        )
    ]
    known = [count for count in counts if count is not None]
    reasons = gpu.find("clocks_event_reasons")
    reasons = gpu.find("clocks_throttle_reasons") if reasons is None else reasons
    active = [
        one.tag for one in (reasons if reasons is not None else []) if (one.text or "").strip() == "Active"
    ]
    own = [(("text",), (gpu.text or "").strip())] if (gpu.text or "").strip() else []
    every = list(dict.fromkeys([*own, *leaves(gpu)]))
    texts = {"/".join(path): text for path, text in reversed(every)}
    slow = ("_hw_slowdown", "_hw_thermal_slowdown", "_hw_power_brake_slowdown", "_sw_thermal_slowdown")
    waiting = (
        "retired_pages/pending_retirement",
        "remapped_rows/remapped_row_pending",
        "remapped_rows/remapped_row_failure",
    )
    said = [found for path, text in every if (found := says(path, text))]
    return Card(
        bus=gpu.get("id", ""),
        uuid=words("uuid"),
        same=(
            words("product_name"),
            words("vbios_version"),
            words("inforom_version/img_version"),
            str(number(gpu, "fb_memory_usage/total", " MiB") or 0),
            texts.get("mig_mode/current_mig", ""),
            texts.get("persistence_mode", ""),
            texts.get("compute_mode", ""),
            texts.get("ecc_mode/current_ecc", ""),
        ),
        ecc=words("ecc_mode/current_ecc"),
        errors=sum(known) if known else None,
        waits=any(words(path) == "Yes" for path in waiting),
        generation=generation(gpu),
        width=number(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width", "x") or 0,
        idle=any(tag.endswith("_gpu_idle") for tag in active),
        held=any(tag.endswith(slow) for tag in active),
        said=said,
        texts=texts,
    )


def spoken(cards: list[Card], aspect: str) -> Found:
    return [verdict for card in cards for about, verdict in card.said if about == aspect] or ["PASS"]


def every_card(of_hosts: dict[str, Any]) -> list[Card]:
    return [card for _, _, here in of_hosts.values() for card in here]


def gpus(hosts: Hosts) -> Found:
    cards, found = hosts.printed("nvidia-smi", read_cards), []
    owner: dict[str, str] = {}
    for host in hosts.site["hosts"]:
        if host["name"] not in cards:
            continue
        _, attached, here = cards[host["name"]]
        if not host["gpus"]:
            found.append("INCONCLUSIVE")
        else:
            found += fails(len(here) != host["gpus"] or attached != len(here))
        named = [card for card in here if card.bus and re.fullmatch(r"GPU-[0-9A-Za-z-]+", card.uuid)]
        found += ["INCONCLUSIVE"] if len(named) < len(here) else []
        found += fails(len({card.uuid for card in named}) < len(named))
        found += fails(len({card.bus.lower() for card in here}) < len(here))
        found += fails(any(owner.setdefault(card.uuid, host["name"]) != host["name"] for card in named))
    return found


def equality(hosts: Hosts) -> Found:
    cards, site = hosts.printed("nvidia-smi", read_cards), hosts.site
    found: Found = []
    for model in {host["model"] for host in site["hosts"] if host["name"] in cards}:
        here = {
            h["name"]: cards[h["name"]] for h in site["hosts"] if h["model"] == model and h["name"] in cards
        }
        drivers, facts = (
            {driver for driver, _, _ in here.values()},
            [c.same for _, _, cs in here.values() for c in cs],
        )
        if not facts:
            found.append("ERROR")
            continue
        golden = here.get(site["golden"])
        if golden is not None:
            drivers.add(golden[0])
            facts += [golden[2][0].same] if golden[2] else []
        found += fails(len(drivers) > 1 or len(set(facts)) > 1)
    for host in site["hosts"]:
        system = hosts.system(host)
        if host["name"] in cards and system is None:
            found.append("INCONCLUSIVE")
        elif host["name"] in cards and system:
            here = cards[host["name"]][2]
            products = system.get("products", [])
            wrong = any(
                card.same[0] not in products if products else system["gpu"] not in card.same[0]
                for card in here
            )
            found += fails(wrong or any(int(card.same[3]) < system.get("memoryMib", 0) for card in here))
    for name, (_, _, cards_of) in cards.items():
        declared = next((h for h in site["hosts"] if h["name"] == name), None)
        system = hosts.system(declared) if declared else None
        found += [power(card, (system or {}).get("powerLimitWatts", 0)) for card in cards_of]
    nothing = ["", *SILENT]
    if any(driver in nothing for driver, _, _ in cards.values()) or any(
        text in nothing for card in every_card(cards) for text in card.same[:2]
    ):
        found.append("INCONCLUSIVE")
    if not site["driver"]:
        return [*found, "INCONCLUSIVE"]
    return found + fails(any(f"{driver}.".find(f"{site['driver']}.") != 0 for driver, _, _ in cards.values()))


def power(card: Card, watts: int) -> str:
    """Return the verdict on the power limits of a GPU."""

    def limit(*names: str) -> float | None:
        paths = [f"{group}/{name}" for group in ("gpu_power_readings", "power_readings") for name in names]
        text = next((card.texts[path] for path in paths if path in card.texts), "")
        match = re.fullmatch(r"(\d+(\.\d\d)?) W", text)
        return float(match[1]) if match else None

    now, usual = (
        limit("current_power_limit", "enforced_power_limit", "power_limit"),
        limit("default_power_limit"),
    )
    if now is None:
        return "INCONCLUSIVE"
    return "FAIL" if now < max(watts, usual or 0) else "PASS"


def state(hosts: Hosts) -> Found:
    of_hosts = hosts.printed("nvidia-smi", read_cards)
    found = spoken(every_card(of_hosts), "state") if of_hosts else []
    kinds: dict[tuple[str, str], list[set[str]]] = {}
    for name, (driver, _, here) in of_hosts.items():
        branch = re.match(r"[0-9]+", driver)
        system = hosts.system(next(host for host in hosts.site["hosts"] if host["name"] == name))
        for card in here:
            kinds.setdefault((driver, card.same[0]), []).append(spoken_of(list(card.texts.items())))
            action = card.texts.get("gpu_recovery_action")
            is_new = bool(system and system["pcieGeneration"] >= 4)
            if branch and int(branch[0]) >= 570 and (action is None or (action in SILENT and is_new)):
                found.append("INCONCLUSIVE")
    if any(spoken != same[0] for same in kinds.values() for spoken in same):
        found.append("INCONCLUSIVE")
    settings: dict[tuple[str, str, str], set[str]] = {}
    for driver, _, here in of_hosts.values():
        for card in here:
            for path, text in card.texts.items():
                if re.fullmatch(SAME, path) and text not in SILENT:
                    settings.setdefault((driver, card.same[0], path), set()).add(text)
    return [*found, *("INCONCLUSIVE" for texts in settings.values() if len(texts) > 1)]


SAME = (
    r"(max_clocks|applications_clocks|default_applications_clocks)/\w+|bar1_memory_usage/total|c2c_mode"
    r"|addressing_mode|gsp_firmware_version|gpu_virtualization_mode/virtualization_mode"
    r"|(gpu_)?power_readings/(min|max|default)_power_limit"
)


def memory(hosts: Hosts) -> Found:
    of_hosts = hosts.printed("nvidia-smi", read_cards)
    cards = every_card(of_hosts)
    if not cards:
        return ["ERROR"] if of_hosts else []
    said = spoken(cards, "memory")
    if any(card.errors or card.waits for card in cards):
        return ["FAIL", *said]
    silent = any(card.ecc != "Enabled" or not counts_all(card) or not knows_repairs(card) for card in cards)
    return ["INCONCLUSIVE" if silent else "PASS", *said]


def counts_all(card: Card) -> bool:
    """Return whether each counter of uncorrected errors is a number."""
    names = (
        "dram_uncorrectable",
        "sram_uncorrectable",
        "sram_uncorrectable_parity",
        "sram_uncorrectable_secded",
    )
    dram, sram, parity, secded, old = (
        re.fullmatch("[0-9]+", card.texts.get(f"ecc_errors/volatile/{name}", "")) is not None
        for name in (*names, "double_bit/total")
    )
    return (dram and (sram or (parity and secded))) or old


def knows_repairs(card: Card) -> bool:
    rows = [card.texts.get(f"remapped_rows/remapped_row_{what}", "") for what in ("pending", "failure")]
    return set(rows) <= {"Yes", "No"} or card.texts.get("retired_pages/pending_retirement", "") in {
        "Yes",
        "No",
    }


def read_kernel_log(text: str) -> str:
    verdict = of_log(text)
    if verdict is None:
        raise Unreadable
    return str(verdict)


def faults(hosts: Hosts) -> Found:
    cards, logs = hosts.printed("nvidia-smi", read_cards), hosts.printed("kernel-log", read_kernel_log)
    slow = "clocks_event_reasons/clocks_event_reason_hw_slowdown"
    silent = any(card.texts.get(slow) not in {"Active", "Not Active"} for card in every_card(cards))
    held = any(card.held for card in every_card(cards))
    found = ["FAIL" if held else "INCONCLUSIVE" if silent else "PASS", *logs.values()]
    return found if cards or logs else []


def read_nvlinks(text: str) -> tuple[dict[int, dict[int, float]], bool]:
    """Return the rates in MB/s by GPU and link, and whether a line has another form."""
    links: dict[int, dict[int, float]] = {}
    here: dict[int, float] = {}
    odd = False
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): ", line):
            odd |= int(match[1]) in links
            here = links.setdefault(int(match[1]), {})
        elif links and (match := re.match(r"\s+Link (\d+): (.+)", line)):
            words = match[2].strip()
            rate = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT])B/s", words)
            if int(match[1]) in here:
                odd = True
            elif rate:
                here[int(match[1])] = round(
                    float(rate[1]) * {"K": 0.001, "M": 1, "G": 1000, "T": 1000_000}[rate[2]]
                )
            elif words in {"<inactive>", "inactive", "Inactive", "Disabled", "Down"}:
                here[int(match[1])] = 0
            else:
                odd = True
        elif line.strip():
            odd = True
    if not links:
        raise Unreadable
    return links, odd


def read_matrix(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the rows of GPUs without their affinities."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()]
    of_gpus = [line.split() for line in lines if re.match(r"GPU\d+\s", line)]
    rows = {words[0]: words[1:] for words in of_gpus}
    if not rows or len(rows) < len(of_gpus):
        raise Unreadable
    heads = [line.split("CPU Affinity")[0].split() for line in lines if re.match(r"\s+GPU\d+\b", line)]
    columns = (heads[0] if heads else []) or list(rows)
    if any(len(cells) < len(columns) for cells in rows.values()):
        raise Unreadable
    return columns, list(rows.values())


def nvlink(hosts: Hosts) -> Found:
    links, joined = hosts.printed("nvlink", read_nvlinks), hosts.printed("topology", read_matrix)
    found: Found = ["INCONCLUSIVE" for _, odd in links.values() if odd]
    wrong = False
    for host in hosts.site["hosts"]:
        system = hosts.system(host)
        if host["name"] in links:
            if system is None:
                found.append("INCONCLUSIVE")
            else:
                here = links[host["name"]][0]
                least = system.get("nvlinkMbytesPerSecond", 0) * 98
                wrong |= len(here) != system["gpus"]
                wrong |= any(len(of_gpu) != system["nvlinks"] for of_gpu in here.values())
                wrong |= any(
                    not rate or rate * 100 < least for of_gpu in here.values() for rate in of_gpu.values()
                )
        if host["name"] in joined and system and system["fabric"] == "nvswitch":
            columns, rows = joined[host["name"]]
            wrong |= len(rows) != system["gpus"]
            cells = {
                row[place] for row in rows for place, column in enumerate(columns) if column.startswith("GPU")
            }
            wrong |= not cells <= {"X", f"NV{system['nvlinks']}"}
        if host["name"] in joined and system and system.get("adapters", 0):
            columns, rows = joined[host["name"]]
            places = [place for place, column in enumerate(columns) if not column.startswith("GPU")]
            wrong |= len(places) < system["adapters"]
            wrong |= any({row[place] for place in places}.isdisjoint({"PIX", "PXB"}) for row in rows)
    if links and not wrong and not found:
        found.append("PASS")
    wrong |= any(
        other != joined[host["name"]]
        for host in hosts.site["hosts"]
        if host["name"] in joined
        for name, other in joined.items()
        if hosts.model(name) == host["model"]
    )
    return [*(["FAIL"] if wrong else found), *(fails(wrong) if joined else [])]


LINK_ERRORS = (
    "Replay Errors|Recovery Errors|CRC Errors?|CRC (?:FLIT|Data) Errors?|Malformed packet Errors|Buffer overrun Errors"
    "|Rx Errors|Rx remote Errors|Rx General Errors|Local link integrity Errors|Tx discards|Link recovery failed events"
)
LINK_USE = (
    "Symbol Errors|Symbol BER|Effective BER|Raw BER|Total link recovery events|(?:Tx|Rx) (?:packets|bytes)"
)


def read_link_errors(text: str) -> tuple[list[str], int]:
    """Return the verdict on each line below a GPU, and the number of links."""
    found: dict[str, str] = {}
    links: set[tuple[str, str]] = set()
    gpu = ""
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): ", line):
            gpu = match[1]
        elif gpu and (match := re.match(r"\s+Link (\d+): ([^:]+): (.*)", line)):
            name, value = match[2].strip(), match[3].strip()
            links.add((gpu, match[1]))
            if re.fullmatch(LINK_USE, name) or value in {"0", "N/A"}:
                verdict = "PASS"
            else:
                known = re.fullmatch(LINK_ERRORS, name) and name != "CRC Error" and value.isdecimal()
                verdict = "FAIL" if known else "INCONCLUSIVE"
            place = f"{gpu} {match[1]} {name}"
            is_use = re.fullmatch(LINK_USE, name) is not None
            found[place] = "INCONCLUSIVE" if place in found and not is_use else verdict
        elif line.strip():
            found[line.strip()] = "INCONCLUSIVE"
    if not gpu:
        raise Unreadable
    return list(found.values()), len(links)


def nvlink_errors(hosts: Hosts) -> Found:
    found: Found = []
    of_hosts = hosts.printed("nvlink-errors", read_link_errors)
    for host in hosts.site["hosts"]:
        if host["name"] in of_hosts:
            verdicts, links = of_hosts[host["name"]]
            system = hosts.system(host)
            found += ["PASS", *verdicts]
            found += ["INCONCLUSIVE"] if system and links < system["gpus"] * system["nvlinks"] else []
    return found


def read_state(text: str) -> str:
    if not re.fullmatch(r"[a-z-]+", text.strip()):
        raise Unreadable
    return text.strip()


def fabric(hosts: Hosts) -> Found:
    states, cards = hosts.printed("fabric-manager", read_state), hosts.printed("nvidia-smi", read_cards)
    systems = {host["name"]: hosts.system(host) for host in hosts.site["hosts"]}
    switched = {name: system for name, system in systems.items() if system and system["fabric"] == "nvswitch"}
    found = [one for one in spoken(every_card(cards), "fabric") if one != "PASS"]
    for name, system in switched.items():
        here = cards[name][2] if name in cards and system["pcieGeneration"] >= 5 else []
        for card in here:
            words = {card.texts.get(f"fabric/{what}", "") for what in ("state", "status")}
            found += ["INCONCLUSIVE"] if words & {"", "N/A"} else []
    if not switched:
        return found or [NOTHING]
    return found + fails(any(states.get(name, "active") != "active" for name in switched))


def pcie(hosts: Hosts) -> Found:
    cards, loads = hosts.printed("nvidia-smi", read_cards), hosts.readings()
    found = spoken(every_card(cards), "pcie") if cards else []
    last = [card for of_host in loads.values() for card in of_host[-1]]
    found += [verdict for card in last for about, verdict in card.said if about == "pcie"]
    for host in hosts.site["hosts"]:
        if host["name"] not in cards:
            continue
        system, here = hosts.system(host), cards[host["name"]][2]
        if system is None:
            found.append("INCONCLUSIVE")
        elif not here:
            found.append("ERROR")
        else:
            full, lanes = system["pcieGeneration"], system["pcieWidth"]
            busy = [card for reading in loads.get(host["name"], []) for card in reading if not card.idle]
            every = [*here, *busy]
            wrong = any(card.width < lanes or (card.generation < full and not card.idle) for card in every)
            if wrong or any(less_than(card, full, lanes) for card in every):
                found.append("FAIL")
            else:
                proven = {card.uuid for card in busy}
                rests = any(card.generation < full and card.uuid not in proven for card in here)
                found.append("INCONCLUSIVE" if rests else "PASS")
    return found


def less_than(card: Card, full: int, lanes: int) -> bool:
    """Return whether the maximum of GPU and host is below the full link."""
    for path, text in card.texts.items():
        match = re.fullmatch(r"pci/pci_gpu_link_info/\w+/max_(?:\w*gen|link_(width))", path)
        digits = re.fullmatch("([0-9]+)x?", text)
        if match and digits and int(digits[1]) < (lanes if match[1] else full):
            return True
    return False


def load(hosts: Hosts) -> Found:
    loads = hosts.readings()
    silent = any(host["gpus"] and host["name"] not in loads for host in hosts.site["hosts"])
    found: Found = ["INCONCLUSIVE"] if silent and not hosts.bad else []
    if not loads:
        return found
    kinds: dict[str, str] = {}
    figures: list[dict[str, list[float]]] = [{}, {}]
    draws = [
        f"{group}/{name}"
        for group in ("gpu_power_readings", "power_readings")
        for name in ("average_power_draw", "power_draw", "instant_power_draw")
    ]
    for name, readings in loads.items():
        nothing = {"gpus": 0, "model": ""}
        host = next((host for host in hosts.site["hosts"] if host["name"] == name), nothing)
        least, system = host["gpus"], hosts.system(host) or {}
        busy = {card.bus for cards in readings for card in cards if not card.idle}
        if busy and any(card.bus not in busy for cards in readings for card in cards):
            found.append("INCONCLUSIVE")
        for cards in readings:
            found += [power(card, system.get("powerLimitWatts", 0)) for card in cards]
            found += fails(bool(least) and len(cards) != least)
            for card in cards:
                found += [verdict for about, verdict in card.said if about != "pcie"]
                place = f"{name} {card.bus}"
                kinds[place] = hosts.model(name)
                found += fails(card.held or bool(card.errors) or hot(card))
                for values, text in zip(
                    figures,
                    (
                        card.texts.get("clocks/sm_clock", ""),
                        next((card.texts[path] for path in draws if path in card.texts), ""),
                    ),
                    strict=True,
                ):
                    if card.idle:
                        continue
                    if (value := measured(text)) is not None:
                        values.setdefault(place, []).append(value)
                    elif text not in {"", "N/A"}:
                        found.append("INCONCLUSIVE")
    for of_each in figures:
        usual = {place: statistics.median_high(values) for place, values in of_each.items()}
        found += fails(slower(usual, kinds, 80))
    for name, (driver, _, at_rest) in hosts.printed("nvidia-smi", read_cards).items():
        known = {card.uuid for card in at_rest}
        shown = {card.uuid for cards in loads.get(name, []) for card in cards}
        drivers = {text for run in hosts.runs("samples", name) for text in drivers_of(run["output"])}
        found += fails(bool(shown - known) or (name in loads and bool(drivers - {driver})))
    return found


def drivers_of(text: str) -> list[str]:
    """Return the driver of each whole document."""
    parts = [part for part in re.split(r"(?=<\?xml\b)", text) if "</nvidia_smi_log>" in part]
    return [match[1].strip() for part in parts if (match := re.search("<driver_version>([^<]*)", part))]


def hot(card: Card) -> bool:
    now = measured(card.texts.get("temperature/gpu_temp", ""))
    slow = measured(card.texts.get("temperature/gpu_temp_slow_threshold", ""))
    left = card.texts.get("temperature/gpu_temp_tlimit", "")
    return (now is not None and slow is not None and now >= slow) or left.startswith("-") or left == "0 C"


def measured(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)(?:\..*)? (?:MHz|W|C)", text)
    return int(match[1]) if match else None


def read_ports(text: str) -> list[Json]:
    ports: list[Json] = []
    odd: list[int] = []
    adapter = firmware = ""
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if match := re.fullmatch(r"CA '(\S+)'", line.strip()):
            adapter, firmware = match[1], ""
        elif key == "Firmware version":
            firmware = value
        elif match := re.fullmatch(r"Port (\d+)", key, re.IGNORECASE):
            ports.append({"name": f"{adapter}/{int(match[1])}", "firmware": firmware})
        elif colon and ports and key in OF_PORT and key not in ports[-1]:
            ports[-1][key] = value
        elif line.strip() and not (colon and key in OF_ADAPTER):
            odd.append(len(ports))
    if (not adapter and text.strip()) or (odd and not ports):
        raise Unreadable
    for port in ports:
        digits = re.fullmatch(r"[0-9]+(\.[0-9]+)?", port.get("Rate", ""))
        port["rate"] = float(digits[0]) if digits else 0.0
        port["odd"] = bool(odd) or not digits
    return ports


OF_ADAPTER = {"CA type", "Number of ports", "Hardware version", "Node GUID", "System image GUID"}
OF_PORT = {"State", "Physical state", "Rate", "Base lid", "LMC", "SM lid", "Capability mask", "Port GUID"}
OF_PORT.add("Link layer")


def rails(hosts: Hosts) -> Found:
    of_hosts = hosts.printed("ibstat", read_ports)
    found: Found = []
    for host in hosts.site["hosts"]:
        if host["name"] not in of_hosts:
            continue
        system = hosts.system(host)
        if system is None or not system.get("adapters", 0):
            found.append("INCONCLUSIVE")
            continue
        up = [
            port
            for port in of_hosts[host["name"]]
            if (port.get("State"), port.get("Physical state")) == ("Active", "LinkUp")
        ]
        found += fails(sum(port["rate"] >= system["adapterGbits"] for port in up) < system["adapters"])
    words = ("State", "Physical state", "rate", "Link layer", "firmware")
    facts = {
        name: {port["name"]: [port.get(word, "") for word in words] for port in ports}
        for name, ports in of_hosts.items()
    }
    odd = any(
        port["odd"]
        or (
            port.get("State", "") != "Down"
            and (port.get("State"), port.get("Physical state")) != ("Active", "LinkUp")
        )
        for ports in of_hosts.values()
        for port in ports
    )
    odd |= any(len(ports) != len(facts[name]) for name, ports in of_hosts.items())
    return [*found, *(["INCONCLUSIVE"] if odd else []), *(fails(unlike(hosts, facts)) if facts else [])]


def read_faces(text: str) -> dict[str, dict[str, str]]:
    faces: dict[str, dict[str, str]] = {}
    here: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"Settings for (\S+):", line.strip()):
            if match[1] in faces:
                raise Unreadable
            here, key = {}, ""
            faces[match[1]] = here
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        key = name if colon else key
        here[key] = f"{here.get(key, '')} {value if colon else name}".strip()
    if not faces:
        raise Unreadable
    return faces


def interfaces(hosts: Hosts) -> Found:
    facts: dict[str, dict[str, Any]] = {}
    found: Found = []
    for name, faces in hosts.printed("ethtool", read_faces).items():
        facts[name] = {}
        speeds: dict[str, set[int]] = {}
        for face, words in faces.items():
            match = re.fullmatch(r"(\d+)(M|G)b/s", words.get("Speed", ""))
            speed = int(match[1]) * (1000 if match[2] == "G" else 1) if match else None
            link = {
                "yes": True,
                "no": False,
                "no (No cable)": False,
                "no (Autoneg, No partner detected)": False,
            }.get(words.get("Link detected", ""))
            facts[name][face] = (speed, link, words.get("Duplex", ""))
            found += fails(bool(link) and words.get("Duplex") == "Half")
            if link is False:
                continue
            able = max(map(int, re.findall(r"(\d+)base", words.get("Supported link modes", ""))), default=0)
            slow = speed is not None and able >= 100_000 and speed < able
            odd = speed is None or link is None or words.get("Duplex") not in {"Full", "Half"}
            found += ["INCONCLUSIVE"] if odd or slow else []
            if speed is not None:
                speeds.setdefault(re.sub(r"(?:f\d+)?(?:np\d+)?$", "", face), set()).add(speed)
        found += ["INCONCLUSIVE"] if any(len(of_adapter) > 1 for of_adapter in speeds.values()) else []
    return found + fails(unlike(hosts, facts)) if facts else []


def read_bridges(text: str) -> dict[str, list[str]]:
    bridges: dict[str, list[str]] = {}
    bridge, devices = "", 0
    for line in text.splitlines():
        if match := re.match(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.+)", line):
            devices += 1
            bridge = match[1] if "PCI bridge" in match[2] else ""
            if "(rev ff)" in match[2] and re.search("NVIDIA|Mellanox", match[2]):
                bridges[match[1]] = ["gone"]
        elif bridge and (match := re.search(r"ACSCtl:\s*(.+)", line)):
            bridges[bridge] = match[1].split()
    if not devices:
        raise Unreadable
    return bridges


def access_control(hosts: Hosts) -> Found:
    of_hosts = hosts.printed("lspci", read_bridges)
    on = {"gone", "SrcValid+", "ReqRedir+", "CmpltRedir+", "UpstreamFwd+"}
    if any(on & set(controls) for bridges in of_hosts.values() for controls in bridges.values()):
        return ["FAIL"]
    return ["PASS" if bridges else "INCONCLUSIVE" for bridges in of_hosts.values()]


def read_modules(text: str) -> set[str]:
    names = {
        match[1] for line in text.splitlines() if (match := re.fullmatch(r"(\w+)\s+\d+(\s.*)?", line.strip()))
    }
    if not names:
        raise Unreadable
    return names


def peer_memory(hosts: Hosts) -> Found:
    of_hosts = hosts.printed("lsmod", read_modules)
    if not of_hosts:
        return []
    rdma = {name for name, names in of_hosts.items() if names & {"mlx5_ib", "mlx4_ib", "bnxt_re", "irdma"}}
    without = {name for name in rdma if not of_hosts[name] & {"nvidia_peermem", "nv_peer_mem"}}
    if not rdma:
        return [NOTHING]
    others = {hosts.model(name) for name in rdma - without}
    if not without:
        return ["PASS"]
    return ["FAIL" if any(hosts.model(name) in others for name in without) else "INCONCLUSIVE"]


def read_clock_source(text: str) -> str:
    words = text.split()
    if len(words) != 1:
        raise Unreadable
    return words[0]


def clock_source(hosts: Hosts) -> Found:
    of_hosts = hosts.printed("clock-source", read_clock_source)
    verdicts = dict.fromkeys(("tsc", "arch_sys_counter"), "PASS")
    verdicts |= dict.fromkeys(("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"), "FAIL")
    return [verdicts.get(source, "INCONCLUSIVE") for source in of_hosts.values()]


def read_addresses(text: str) -> list[tuple[int, list[str], Json]]:
    """Return the MTU, the addresses and all words of each interface."""
    faces = []
    every = json.loads(text)
    if len({face["ifname"] for face in every}) < len(every):
        raise Unreadable
    for face in every:
        known = [str(info["local"]) for info in face.get("addr_info", []) if info.get("local")]
        addresses = [str(ipaddress.ip_address(address)) for address in known]
        faces.append((face["mtu"], addresses, face))
    return faces


def read_pings(text: str) -> dict[str, tuple[int, int]]:
    """Return by address the sent frames, and the answers with all their bytes."""
    pings: dict[str, tuple[int, int]] = {}
    size, answers = 0, 0
    lines = [line for line in re.split(r"[\r\n]", text) if line.strip()]
    for line, following in itertools.pairwise([*lines, ""]):
        if match := re.match(r"PING .*? (\d+)(\(\d+\))? (data bytes|bytes of data)", line):
            size, answers = int(match[1]) + 8, 0
        elif match := re.fullmatch(r"(\d+) bytes from \S+: icmp_seq=\d+ ttl=\d+ time=[\d.]+ ms", line):
            answers += int(match[1]) == size and not following.startswith("wrong data")
        elif match := re.search(r"--- (\S+) ping statistics ---", line):
            sums = re.match(r"\s*(\d+) packets transmitted, (\d+) received", following)
            if sums and match[1] in pings:
                raise Unreadable
            if sums:
                pings[match[1]] = int(sums[1]), min(int(sums[2]), answers)
                size, answers = 0, 0
    if not pings:
        raise Unreadable
    return pings


def mtu(hosts: Hosts) -> Found:
    site = hosts.site
    faces, pings = hosts.printed("interfaces", read_addresses), hosts.printed("frames", read_pings)
    found: Found = []
    if not site["networks"] or not site["mtu"]:
        found += ["INCONCLUSIVE"] if faces else []
    else:
        for here in faces.values():
            for network in map(ipaddress.ip_network, site["networks"]):
                inside = [
                    (size, face)
                    for size, ips, face in here
                    if any(ipaddress.ip_address(ip) in network for ip in ips)
                ]
                found += fails(not inside or min(size for size, _ in inside) < site["mtu"])
                used = {face["ifname"] for _, face in inside} | {face.get("link") for _, face in inside}
                below = [
                    face
                    for _, _, face in here
                    if {face["ifname"], face.get("master", "")} & (used - {None, ""})
                ]
                found += fails(any(face.get("operstate", "") not in {"", "UP", "UNKNOWN"} for face in below))
    owner: dict[str, str] = {}
    for name, here in faces.items():
        for ip in {ip for _, ips, _ in here for ip in ips}:
            near = any(ipaddress.ip_address(ip) in ipaddress.ip_network(one) for one in site["networks"])
            if near and owner.setdefault(ip, name) != name:
                found.append("FAIL")
    if not site["servers"] or not site["mtu"]:
        return [*found, "INCONCLUSIVE"]
    for here in pings.values():
        came = [here.get(server, (0, 0)) for server in site["servers"]]
        found += fails(any(sent < 3 or back < sent for sent, back in came))
    return found + (["INCONCLUSIVE"] if site["otherVlans"] and pings else [])


def read_mounts(text: str) -> dict[str, tuple[str, list[str]]]:
    mounts: dict[str, tuple[str, list[str]]] = {}

    def take(one: Json) -> None:
        mounts[one["target"]] = (one["source"], one["options"].split(","))
        for child in one.get("children", []):
            take(child)

    for one in json.loads(text)["filesystems"] if text.strip() else []:
        take(one)
    return mounts


def has_option(shown: list[str], option: str) -> bool:
    if option in {"intr", "nointr"}:
        return True
    option = re.sub(r"^nfsvers=", "vers=", option)
    return option in shown or (option == "vers=4" and "vers=4.0" in shown)


def mounts(hosts: Hosts) -> Found:
    site, found = hosts.site, []
    of_hosts = hosts.printed("mounts", read_mounts)
    if not site["mounts"]:
        return ["INCONCLUSIVE"]
    for here in of_hosts.values():
        for directory in site["mounts"]:
            source, shown = here.get(directory, ("", []))
            server = source.rpartition(":/")[0].strip("[]")
            foreign = bool(site["servers"]) and server not in site["servers"]
            incomplete = not all(has_option(shown, option) for option in site["mountOptions"])
            incomplete |= bool({"ro", "soft", "softerr"} & set(shown) - set(site["mountOptions"]))
            found += fails(directory not in here or foreign or incomplete)
    return found


def read_lines(text: str) -> list[tuple[str, str]]:
    lines = [line.rpartition(" ") for line in text.splitlines()]
    if any(not space or not directory.startswith("/") for directory, space, _ in lines):
        raise Unreadable
    return [(directory, host) for directory, _, host in lines]


def written(hosts: Hosts) -> Found:
    if not hosts.site["mounts"]:
        return ["INCONCLUSIVE"]
    wrote, read = hosts.printed("write", read_lines), hosts.printed("read", read_lines)
    if not wrote or not read:
        return []
    bad = False
    for directory in hosts.site["mounts"]:
        of_each = [[host for place, host in lines if place == directory] for lines in wrote.values()]
        writers = {host for here in of_each for host in here}
        bad |= any(len(here) != 1 for here in of_each) or len(writers) != len(of_each)
        bad |= any((directory, writer) not in lines for lines in read.values() for writer in writers)
    return fails(bad)


class Reduce(NamedTuple):
    """A run of all_reduce_perf."""

    cards: list[str]
    rows: list[tuple[int, float, float | None]]
    whole: bool
    beyond: int


def read_reduce(text: str) -> Reduce:
    lines = [re.sub(r"^\[\d+,\d+\]<\w+>:\s?", "", line).strip() for line in text.splitlines()]
    device = re.compile(r"#\s+Rank\s+\d+ .*?Pid\s+\d+ on\s+\S+ device\s+\d+ \[[^]]+\] (.+)")
    heads = [line.split()[1:] for line in lines if re.match(r"#\s+size\s+count\b", line)]
    names = (
        heads[0]
        if heads
        else ["size", "count", "type", "redop", "root"] + ["time", "algbw", "busbw", "#wrong"] * 2
    )
    units = [line for line in lines if re.match(r"#\s+\(B\)", line)] or ["(GB/s)"]
    if set(re.findall(r"\(\w?B/s\)", units[0])) != {"(GB/s)"}:
        raise Unreadable
    busses = [place for place, name in enumerate(names) if name == "busbw"]
    wrongs = [place for place, name in enumerate(names) if name in ("#wrong", "error")]
    if not wrongs or len(busses) != len(wrongs):
        raise Unreadable
    bounds = [re.match(r"#\s*Out of bounds values : (\d+) (\S+)", line) for line in lines]
    right = next((match.groups() == ("0", "OK") for match in bounds if match), False)
    rows: list[tuple[int, float, float | None]] = []
    for line in lines:
        if not re.match(r"\d+\s+\d+\s", line):
            continue
        words = line.split()
        if len(words) != len(names):
            raise Unreadable
        rates = [float(words[place]) for place in busses]
        if not all(math.isfinite(rate) for rate in rates):
            raise Unreadable
        wrong: float | None = 0 if right else None
        if "error" not in names:
            counts = [words[place] for place in wrongs]
            known = all(re.fullmatch(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", count) for count in counts)
            wrong = sum(int(float(count)) for count in counts) if known else None
        rows.append((int(words[0]), min(rates), wrong))
    if not rows:
        raise Unreadable
    totals = [int(match[1]) for match in bounds if match]
    ended = bool(totals) and any(line.startswith("# Avg bus bandwidth") for line in lines)
    cards = [match[1] for line in lines if (match := device.match(line))]
    return Reduce(cards, rows, ended, totals[0] if totals else 0)


def nccl(hosts: Hosts) -> Found:
    runs, found = hosts.printed("nccl", read_reduce), []
    for host in hosts.site["hosts"]:
        if host["name"] not in runs:
            continue
        run, system = runs[host["name"]], hosts.system(host)
        least = hosts.threshold("nccl-all-reduce", run.cards, system["fabric"] if system else "")
        at_size = [row for row in run.rows if least and row[0] == least["sizeBytes"]]
        if any(row[2] for row in run.rows) or run.beyond:
            found.append("FAIL")
        elif not run.whole or (least and (not at_size or any(row[2] is None for row in run.rows))):
            found.append("ERROR")
        elif least is None:
            found.append("INCONCLUSIVE")
        else:
            found += fails(min(row[1] for row in at_size) < least["atLeast"])
    rates = {name: int(max(run.rows, key=lambda row: row[0])[1] * 1000) for name, run in runs.items()}
    kinds = {name: hosts.model(name) for name in rates}
    return [*found, *(["FAIL"] if slower(rates, kinds, 90) else [])]


def nccl_nodes(hosts: Hosts) -> Found:
    mine = [e for e in hosts.events if e["event"] == "tool" and e["tool"] == "nccl-nodes"]
    hosts.read_any = bool(mine)
    found: Found = of_groups(hosts.scope, mine)
    return found


def read_groups(text: str) -> list[tuple[int, ...]]:
    """Return the errno of each group of jobs, its read rate in bytes per second, its duration in ms, and the numbers of
    short and dropped reads.
    """
    jobs = json.loads(text[max(0, text.find("{")) :])["jobs"]
    names = ("bw_bytes", "runtime", "short_ios", "drop_ios")
    groups = [(job["error"], *(job["read"].get(name, 0) for name in names)) for job in jobs]
    if any(not isinstance(number, int) for group in groups for number in group):
        raise Unreadable
    return groups


def fio(hosts: Hosts) -> Found:
    if not hosts.site["mounts"]:
        return ["INCONCLUSIVE"]
    runs, cards = hosts.printed("fio", read_groups), []
    for host in hosts.site["hosts"]:
        system = hosts.system(host)
        cards += [system["gpu"] if system else host["model"]] * host["gpus"]
    least = hosts.threshold("fio-read", cards, "nfs") if cards else None
    early = hosts.early("fio", 300_000)
    if any(min((group[2] for group in here), default=0) < 299_000 for here in runs.values()):
        early.append("FAIL")
    if any(group[3] or group[4] for here in runs.values() for group in here):
        early.append("INCONCLUSIVE")
    if least is None:
        return ["INCONCLUSIVE", *early]
    if not all(runs.values()):
        return ["ERROR"]
    groups = [group for here in runs.values() for group in here]
    slow = sum(group[1] for group in groups) < int(least["atLeast"] * 10**9)
    each = {name: sum(group[1] for group in here) for name, here in runs.items()}
    slow |= slower(each, dict.fromkeys(each, ""), 75)
    return [*early, *(fails(slow or any(group[0] for group in groups)) if runs else [])]


def read_burn(text: str) -> tuple[dict[int, bool], list[int], bool]:
    """Return by GPU whether all results were right, the final rates, and whether the text mentions errors."""
    right: dict[int, bool] = {}
    for index, word in re.findall(r"^\s+GPU (\d+): (OK|FAULTY)\s*$", text, re.MULTILINE):
        right[int(index)] = right.get(int(index), True) and word == "OK"
    ended = re.search(r"^Tested (\d+) GPUs:", text, re.MULTILINE)
    if not ended or int(ended[1]) != len(right):
        raise Unreadable
    progress = [line for line in re.split(r"[\r\n]", text) if "proc'd:" in line]
    rates = re.findall(r"\((\d+) Gflop/s\)", progress[-1]) if progress else []
    counts = re.findall(r"errors: ([^\r\n]*?)(?:temps:|[\r\n]|$)", text)
    wrong = any(re.search("[1-9]", line) for line in counts)
    return right, [int(rate) for rate in rates], wrong or "WARNING!" in text or "DIED!" in text


def burn_in(hosts: Hosts) -> Found:
    runs = hosts.printed("burn-in", read_burn)
    early = hosts.early("burn-in", 3_600_000)
    if not runs:
        return early
    declared = {host["name"]: host["gpus"] for host in hosts.site["hosts"]}
    few = any(declared[name] and len(right) != declared[name] for name, (right, _, _) in runs.items())
    if few or not all(all(right.values()) and not warned for right, _, warned in runs.values()):
        return ["FAIL", *early]
    if any(len(rates) != len(right) or not all(rates) for right, rates, _ in runs.values()):
        return ["ERROR", *early]
    cards = {}
    for host in hosts.site["hosts"]:
        system = hosts.system(host)
        cards[host["name"]] = system["gpu"] if system else host["model"]
    each = {(name, gpu): rate for name, (_, rates, _) in runs.items() for gpu, rate in enumerate(rates)}
    sums = {name: sum(rates) for name, (_, rates, _) in runs.items()}
    slow = slower(each, {key: cards[key[0]] for key in each}, 90)
    slow |= slower(sums, {name: cards[name] for name in sums}, 95)
    for name, _ in each:
        least = hosts.threshold("burn-in", [cards[name]], "any")
        slow |= least is not None and any(rate < least["atLeast"] for rate in runs[name][1])
    return early + fails(slow)


def read_counters(text: str) -> dict[str, int | None]:
    counters: dict[str, int | None] = {}
    for line in text.splitlines():
        if re.fullmatch(r"grep: .*: No such file or directory", line):
            continue
        text = re.sub(r"^grep: (\S+): (.+)", r"\1:N/A (\2)", line.strip())
        is_absent = ":N/A" in text
        path, _, value = text.partition(":N/A") if is_absent else text.rpartition(":")
        net = re.fullmatch(r"/sys/class/net/[^/]+/device/net/([^/]+)/(?:statistics/)?(\w+)", path)
        rdma = re.fullmatch(r"/sys/class/infiniband/([^/]+)/ports/(\d+)/counters/(\w+)", path)
        match = net or rdma
        if match is None or not (is_absent or re.fullmatch(r"\d+", value)):
            raise Unreadable
        counters[" ".join(match.groups())] = None if is_absent else int(value)
    if not counters:
        raise Unreadable
    return counters


def incomplete(hosts: Hosts, before: dict[str, dict[str, int | None]]) -> bool:
    """Return whether a link lacks a counter of its kind, or a host lacks an RDMA port of its model."""
    kinds: dict[str, list[set[str]]] = {}
    ports: dict[str, list[set[str]]] = {}
    for name, counters in before.items():
        of_link: dict[str, set[str]] = {}
        for counter in counters:
            link, what = counter.rsplit(" ", 1)
            of_link.setdefault(link, set()).add(what)
        for link, names in of_link.items():
            kinds.setdefault(re.split(r"_?\d", link)[0] if " " in link else "", []).append(names)
        ports.setdefault(hosts.model(name), []).append({link for link in of_link if " " in link})
    return any(one != every[0] for every in (*kinds.values(), *ports.values()) for one in every)


HIGHEST = {
    **dict.fromkeys(("local_link_integrity_errors", "excessive_buffer_overrun_errors"), 15),
    **dict.fromkeys(("link_downed", "link_error_recovery"), 255),
    "symbol_error": 65535,
    "port_rcv_errors": 65535,
    "port_rcv_remote_physical_errors": 65535,
    "port_xmit_discards": 65535,
}


def links(hosts: Hosts) -> Found:
    if any(len(hosts.runs("counters", host["name"])) < 2 for host in hosts.site["hosts"]):
        return ["ERROR"]
    before = hosts.printed("counters", read_counters, 0)
    after = hosts.printed("counters", read_counters)
    if after.keys() - before.keys():
        return ["ERROR"]
    unread = incomplete(hosts, before)
    unread |= any(
        counter.count(" ") == 2 and value == HIGHEST.get(counter.split(" ")[2])
        for here in after.values()
        for counter, value in here.items()
    )
    for name, here in after.items():
        for counter, value in before[name].items():
            if counter in here and (value is None or here[counter] is None):
                unread = True
            elif here.get(counter) != value or counter not in here:
                return ["FAIL"]
    return ["INCONCLUSIVE" if unread else "PASS"] if after else []


def kubelets(hosts: Hosts) -> Found:
    cards = {name: len(here) for name, (_, _, here) in hosts.printed("nvidia-smi", read_cards).items()}
    nodes = {event["node"]: event["gpus"] for event in hosts.events if event["event"] == "node"}
    if not nodes:
        return ["INCONCLUSIVE"]
    differs = any(nodes.get(name, 0) != count for name, count in cards.items())
    return fails(differs or any(count and name not in cards for name, count in nodes.items()))


def drift(hosts: Hosts) -> Found:
    hosts.printed("nvidia-smi", read_cards)
    quiet = Hosts(hosts.scope, hosts.events)
    readers: dict[str, Callable[[str], Any]] = {
        "nvidia-smi": read_cards, "nccl": read_reduce, "fio": read_groups, "burn-in": read_burn,
    }  # fmt: skip
    found: Found = of_drift(
        hosts.scope["baseline"],
        hosts.events,
        lambda tool: quiet.printed(tool, readers[tool]),
        read_documents,
        measured,
    )
    return found


LAYERS: dict[str, Callable[[Hosts], Found]] = {
    "gpus": gpus,
    "equality": equality,
    "state": state,
    "nvlink-errors": nvlink_errors,
    "rails": rails,
    "interfaces": interfaces,
    "access-control": access_control,
    "peer-memory": peer_memory,
    "clock-source": clock_source,
    "load": load,
    "memory-after": memory,
    "memory": memory,
    "faults": faults,
    "nvlink": nvlink,
    "fabric": fabric,
    "pcie": pcie,
    "mtu": mtu,
    "mounts": mounts,
    "written": written,
    "nccl": nccl,
    "nccl-nodes": nccl_nodes,
    "fio": fio,
    "burn-in": burn_in,
    "links": links,
    "faults-after": faults,
    "drift": drift,
    "kubelets": kubelets,
}


AFTER = {"links", "faults-after", "memory-after", "kubelets"}


def judge_layer(check: Json, scope: Json, events: list[Json]) -> str:
    """Return the gravest verdict on all hosts; NOTHING if there is no subject."""
    window = check["volatile"]["window"]
    if window is None or "hosts" not in scope:
        return "INCONCLUSIVE"
    name = check["id"].partition("/layer/")[2]
    if name not in LAYERS:
        return "ERROR"
    if name == "drift" and "baseline" not in scope["hosts"]:
        return NOTHING
    hosts = Hosts(scope["hosts"], events[window["fromEvent"] : window["untilEvent"]])
    site, found = hosts.site, LAYERS[name](hosts) + hosts.boots(name in AFTER)
    names = [host["name"] for host in site["hosts"]]
    found = [*found, *hosts.bad, *("INCONCLUSIVE" for _ in site["away"])]
    if not names or (site["golden"] and site["golden"] not in names):
        found.append("ERROR")
    counted = [verdict for verdict in found if verdict != NOTHING]
    if found and not counted:
        return NOTHING
    verdict = next((one for one in GRAVITY if one in counted), "INCONCLUSIVE")
    return "ERROR" if verdict == "PASS" and not hosts.read_any else verdict
