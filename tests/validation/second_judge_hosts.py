"""The second judge's part for hosts: what tools printed there, and the verdicts that follow.

Imports nothing of muster's; written from docs/reference/record.md alone, as the rest of it.
"""

import contextlib
import ipaddress
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

Json = dict[str, Any]
Found = list[str]
"""Verdicts on one check, of which the gravest counts. NOTHING: there was no subject."""
NOTHING = "NO SUBJECT"
GRAVITY = ["ERROR", "FAIL", "INCONCLUSIVE", "PASS"]
OF_DRIVER = {"nvidia-smi", "nvlink", "topology", "write", "read", "nccl", "fio", "burn-in"}
"""The tools whose failure is a fault of the host."""


class Unreadable(Exception):
    """These are not the words of the tool."""


class Card(NamedTuple):
    """A GPU in the XML of nvidia-smi."""

    uuid: str
    same: tuple[str, ...]
    ecc: str
    errors: int | None
    waits: bool
    generation: int
    width: int
    idle: bool
    held: bool


class Hosts:
    """What the tools printed, by host, and the verdicts on hosts of which nothing can be read."""

    def __init__(self, scope: Json, events: list[Json]) -> None:
        self.scope, self.site, self.events = scope, scope["site"], events
        self.bad: Found = []
        self.read_any = False

    def runs(self, tool: str, host: str) -> list[Json]:
        return [e for e in self.events if e["event"] == "tool" and (e["tool"], e["host"]) == (tool, host)]

    def boots(self, needed: bool) -> Found:
        """What boot ids say; `needed`: there must be one of each reading."""
        heard = [e for e in self.events if e["event"] == "tool" and not e.get("problem")]
        ids = {(e["host"], e.get("bootId", "")) for e in heard}
        known = [host for host, boot_id in ids if boot_id]
        if len(known) != len(set(known)):
            return ["FAIL"]
        return ["INCONCLUSIVE"] if needed and any(not boot_id for _, boot_id in ids) else []

    def early(self, tool: str, least_ms: int) -> Found:
        """Whether a load ended before its time."""
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
                try:
                    values[host["name"]] = reader(runs[which]["output"])
                    self.read_any = True
                except (Unreadable, ValueError, KeyError, TypeError, AttributeError, ET.ParseError):
                    self.bad.append("ERROR")
        return values

    def system(self, host: Json) -> Json | None:
        return next((s for s in self.scope["systems"] if s["model"] == host["model"]), None)

    def threshold(self, metric: str, cards: list[str], fabric: str) -> Json | None:
        for one in self.scope["thresholds"]:
            for_these = (one["metric"], one["gpus"], one["fabric"]) == (metric, len(cards), fabric)
            if for_these and all(one["gpu"] in card for card in cards):
                return dict(one)
        return None


def fails(wrong: bool) -> Found:
    return ["FAIL" if wrong else "PASS"]


def number(node: ET.Element, path: str) -> int | None:
    digits = re.match(r"\d+", (node.findtext(path) or "").strip())
    return int(digits[0]) if digits else None


def read_cards(text: str) -> tuple[str, int, list[Card]]:
    """Driver, number of attached GPUs, and each GPU."""
    if "<!ENTITY" in text:
        raise Unreadable
    root = ET.fromstring(text)  # noqa: S314 - expat bounds what it expands
    if root.tag != "nvidia_smi_log":
        raise Unreadable
    driver = (root.findtext("driver_version") or "").strip()
    return driver, number(root, "attached_gpus") or 0, [read_card(gpu) for gpu in root.findall("gpu")]


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
    active = [one.tag for one in (reasons if reasons is not None else []) if one.text == "Active"]
    slow = ("_hw_slowdown", "_hw_thermal_slowdown", "_hw_power_brake_slowdown", "_sw_thermal_slowdown")
    waiting = (
        "retired_pages/pending_retirement",
        "remapped_rows/remapped_row_pending",
        "remapped_rows/remapped_row_failure",
    )
    return Card(
        uuid=words("uuid"),
        same=(
            words("product_name"),
            words("vbios_version"),
            words("inforom_version/img_version"),
            str(number(gpu, "fb_memory_usage/total") or 0),
        ),
        ecc=words("ecc_mode/current_ecc"),
        errors=sum(known) if known else None,
        waits=any(words(path) == "Yes" for path in waiting),
        generation=number(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen") or 0,
        width=number(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width") or 0,
        idle=any(tag.endswith("_gpu_idle") for tag in active),
        held=any(tag.endswith(slow) for tag in active),
    )


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
        found += fails(any(owner.setdefault(card.uuid, host["name"]) != host["name"] for card in here))
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
            found += fails(any(system["gpu"] not in card.same[0] for card in cards[host["name"]][2]))
    if not site["driver"]:
        return [*found, "INCONCLUSIVE"]
    return found + fails(any(f"{driver}.".find(f"{site['driver']}.") != 0 for driver, _, _ in cards.values()))


def memory(hosts: Hosts) -> Found:
    of_hosts = hosts.printed("nvidia-smi", read_cards)
    cards = [card for _, _, here in of_hosts.values() for card in here]
    if not cards:
        return ["ERROR"] if of_hosts else []
    if any(card.errors or card.waits for card in cards):
        return ["FAIL"]
    silent = any(card.ecc != "Enabled" or card.errors is None for card in cards)
    return ["INCONCLUSIVE" if silent else "PASS"]


BUS = r"[0-9a-fA-F]+:[0-9a-fA-F:.]+"
ERRORS_OF_THE_DRIVER = re.compile(
    rf"NVRM: Xid \(PCI:{BUS}\): \d+(?:,.*)?$"
    rf"|SXid \(PCI:{BUS}\): \d+, Fatal\b"
    rf"|NVRM: .*GPU (?:at (?:PCI:)?)?{BUS}:? .*fallen off the bus"
    rf"|NVRM: GPU {BUS}: RmInitAdapter failed"
)


def read_kernel_log(text: str) -> bool:
    if not text.strip():
        raise Unreadable
    return any(ERRORS_OF_THE_DRIVER.search(line.rstrip()) for line in text.splitlines())


def faults(hosts: Hosts) -> Found:
    cards, logs = hosts.printed("nvidia-smi", read_cards), hosts.printed("kernel-log", read_kernel_log)
    held = any(card.held for name in logs if name in cards for card in cards[name][2])
    return fails(held or any(logs.values())) if logs else []


def read_nvlinks(text: str) -> list[list[bool]]:
    links: dict[int, dict[int, bool]] = {}
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): ", line):
            links[int(match[1])] = {}
        elif links and (match := re.match(r"\s+Link (\d+): (.+)", line)):
            rate = re.fullmatch(r"[\d.]+ GB/s", match[2].strip())
            links[max(links)][int(match[1])] = rate is not None
    if not links:
        raise Unreadable
    return [list(of_gpu.values()) for of_gpu in links.values()]


def read_matrix(text: str) -> list[list[str]]:
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()]
    rows = {line.split()[0]: line.split() for line in lines if re.match(r"GPU\d+\s", line)}
    if not rows:
        raise Unreadable
    return sorted(words[: len(rows) + 1] for words in rows.values())


def nvlink(hosts: Hosts) -> Found:
    links, joined = hosts.printed("nvlink", read_nvlinks), hosts.printed("topology", read_matrix)
    found: Found = []
    for host in hosts.site["hosts"]:
        if host["name"] in links:
            system, here = hosts.system(host), links[host["name"]]
            if system is None:
                found.append("INCONCLUSIVE")
            else:
                whole = [[True] * system["nvlinks"]] * system["gpus"]
                found += fails(here != whole)
    for model in {host["model"] for host in hosts.site["hosts"]}:
        ways = [joined[h["name"]] for h in hosts.site["hosts"] if h["model"] == model and h["name"] in joined]
        found += fails(any(way != ways[0] for way in ways)) if ways else []
    return found


def read_state(text: str) -> str:
    if not re.fullmatch(r"[a-z-]+", text.strip()):
        raise Unreadable
    return text.strip()


def fabric(hosts: Hosts) -> Found:
    states = hosts.printed("fabric-manager", read_state)
    systems = {host["name"]: hosts.system(host) for host in hosts.site["hosts"]}
    switched = [name for name, system in systems.items() if system and system["fabric"] == "nvswitch"]
    if not switched:
        return [NOTHING]
    return fails(any(states.get(name, "active") != "active" for name in switched))


def pcie(hosts: Hosts) -> Found:
    cards, found = hosts.printed("nvidia-smi", read_cards), []
    for host in hosts.site["hosts"]:
        if host["name"] not in cards:
            continue
        system, here = hosts.system(host), cards[host["name"]][2]
        if system is None:
            found.append("INCONCLUSIVE")
        elif not here:
            found.append("ERROR")
        else:
            slow = [card for card in here if card.generation < system["pcieGeneration"]]
            narrow = any(card.width < system["pcieWidth"] for card in here)
            rests = "INCONCLUSIVE" if slow else "PASS"
            found.append("FAIL" if narrow or not all(card.idle for card in slow) else rests)
    return found


def read_addresses(text: str) -> list[tuple[int, list[str]]]:
    faces = []
    for face in json.loads(text):
        known = [str(info["local"]) for info in face.get("addr_info", []) if info.get("local")]
        faces.append((face["mtu"], [str(ipaddress.ip_address(address)) for address in known]))
    return faces


def read_pings(text: str) -> dict[str, tuple[int, int]]:
    pattern = r"--- (\S+) ping statistics ---\s+(\d+) packets transmitted, (\d+) received"
    pings = {address: (int(sent), int(back)) for address, sent, back in re.findall(pattern, text)}
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
                    size for size, ips in here if any(ipaddress.ip_address(ip) in network for ip in ips)
                ]
                found += fails(not inside or min(inside) < site["mtu"])
    if not site["servers"] or not site["mtu"]:
        return [*found, "INCONCLUSIVE"]
    for here in pings.values():
        came = [here.get(server, (0, 0)) for server in site["servers"]]
        found += fails(any(not sent or back < sent for sent, back in came))
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
    rows: list[tuple[int, float, int | None]]
    whole: bool


def read_reduce(text: str) -> Reduce:
    lines = [re.sub(r"^\[\d+,\d+\]<\w+>:\s?", "", line).strip() for line in text.splitlines()]
    device = re.compile(r"#\s+Rank\s+\d+ .*?Pid\s+\d+ on\s+\S+ device\s+\d+ \[[^]]+\] (.+)")
    rows: list[tuple[int, float, int | None]] = []
    for words in (line.split() for line in lines):
        if len(words) == 13 and words[0].isdecimal() and words[1].isdecimal():
            with contextlib.suppress(ValueError):
                wrong = [int(word) for word in (words[8], words[12]) if word.isdecimal()]
                slower = min(float(words[7]), float(words[11]))
                rows.append((int(words[0]), slower, sum(wrong) if len(wrong) == 2 else None))
    if not rows:
        raise Unreadable
    ended = any(line.startswith("# Avg bus bandwidth") for line in lines)
    return Reduce([match[1] for line in lines if (match := device.match(line))], rows, ended)


def nccl(hosts: Hosts) -> Found:
    runs, found = hosts.printed("nccl", read_reduce), []
    for host in hosts.site["hosts"]:
        if host["name"] not in runs:
            continue
        run, system = runs[host["name"]], hosts.system(host)
        least = hosts.threshold("nccl-all-reduce", run.cards, system["fabric"] if system else "")
        at_size = [row for row in run.rows if least and row[0] == least["sizeBytes"]][:1]
        if any(row[2] for row in run.rows):
            found.append("FAIL")
        elif not run.whole or (least and (not at_size or at_size[0][2] is None)):
            found.append("ERROR")
        elif least is None:
            found.append("INCONCLUSIVE")
        else:
            found += fails(at_size[0][1] < least["atLeast"])
    return found


def read_groups(text: str) -> list[tuple[int, int, int]]:
    """The errno of each group of jobs, the bytes that it read in a second, and for how many ms."""
    jobs = json.loads(text[max(0, text.find("{")) :])["jobs"]
    return [(job["error"], job["read"].get("bw_bytes", 0), job["read"].get("runtime", 0)) for job in jobs]


def fio(hosts: Hosts) -> Found:
    if not hosts.site["mounts"]:
        return ["INCONCLUSIVE"]
    runs, cards = hosts.printed("fio", read_groups), []
    for host in hosts.site["hosts"]:
        system = hosts.system(host)
        cards += [system["gpu"] if system else host["model"]] * host["gpus"]
    least = hosts.threshold("fio-read", cards, "nfs") if cards else None
    early = hosts.early("fio", 300_000)
    if any(min((ms for _, _, ms in here), default=0) < 299_000 for here in runs.values()):
        early.append("FAIL")
    if least is None:
        return ["INCONCLUSIVE", *early]
    if not all(runs.values()):
        return ["ERROR"]
    groups = [group for here in runs.values() for group in here]
    slow = sum(rate for _, rate, _ in groups) < int(least["atLeast"] * 10**9)
    return [*early, *(fails(slow or any(errno for errno, _, _ in groups)) if runs else [])]


def read_burn(text: str) -> tuple[dict[int, bool], int]:
    """By GPU whether all its results were right, and the rate of all of them at the end."""
    right: dict[int, bool] = {}
    for index, word in re.findall(r"^\s+GPU (\d+): (OK|FAULTY)\s*$", text, re.MULTILINE):
        right[int(index)] = right.get(int(index), True) and word == "OK"
    ended = re.search(r"^Tested (\d+) GPUs:", text, re.MULTILINE)
    if not ended or int(ended[1]) != len(right):
        raise Unreadable
    progress = [line for line in re.split(r"[\r\n]", text) if "proc'd:" in line]
    rates = re.findall(r"\((\d+) Gflop/s\)", progress[-1]) if progress else []
    return right, sum(int(rate) for rate in rates)


def burn_in(hosts: Hosts) -> Found:
    runs = hosts.printed("burn-in", read_burn)
    early = hosts.early("burn-in", 3_600_000)
    if not runs:
        return early
    declared = {host["name"]: host["gpus"] for host in hosts.site["hosts"]}
    few = any(declared[name] and len(right) != declared[name] for name, (right, _) in runs.items())
    if few or not all(all(right.values()) for right, _ in runs.values()):
        return ["FAIL"]
    rates = [rate for _, rate in runs.values()]
    if not min(rates):
        return ["ERROR"]
    return early + fails((max(rates) - min(rates)) * 100 > max(rates) * 5)


def read_counters(text: str) -> dict[str, int]:
    counters = {}
    for line in text.splitlines():
        path, _, value = line.strip().rpartition(":")
        net = re.fullmatch(r"/sys/class/net/[^/]+/device/net/([^/]+)/(?:statistics/)?(\w+)", path)
        rdma = re.fullmatch(r"/sys/class/infiniband/([^/]+)/ports/(\d+)/counters/(\w+)", path)
        match = net or rdma
        if match is None or not re.fullmatch(r"\d+", value):
            raise Unreadable
        counters[" ".join(match.groups())] = int(value)
    if not counters:
        raise Unreadable
    return counters


def links(hosts: Hosts) -> Found:
    if any(len(hosts.runs("counters", host["name"])) < 2 for host in hosts.site["hosts"]):
        return ["ERROR"]
    before = hosts.printed("counters", read_counters, 0)
    after = hosts.printed("counters", read_counters)
    if after.keys() - before.keys():
        return ["ERROR"]
    return fails(any(before[n].items() - here.items() for n, here in after.items())) if after else []


def kubelets(hosts: Hosts) -> Found:
    cards = {name: len(here) for name, (_, _, here) in hosts.printed("nvidia-smi", read_cards).items()}
    nodes = {event["node"]: event["gpus"] for event in hosts.events if event["event"] == "node"}
    if not nodes:
        return ["INCONCLUSIVE"]
    differs = any(nodes.get(name, 0) != count for name, count in cards.items())
    return fails(differs or any(count and name not in cards for name, count in nodes.items()))


LAYERS: dict[str, Callable[[Hosts], Found]] = {
    "gpus": gpus,
    "equality": equality,
    "memory": memory,
    "faults": faults,
    "nvlink": nvlink,
    "fabric": fabric,
    "pcie": pcie,
    "mtu": mtu,
    "mounts": mounts,
    "written": written,
    "nccl": nccl,
    "fio": fio,
    "burn-in": burn_in,
    "links": links,
    "faults-after": faults,
    "kubelets": kubelets,
}


AFTER = {"links", "faults-after", "kubelets"}


def judge_layer(check: Json, scope: Json, events: list[Json]) -> str:
    """The gravest verdict of all hosts; NOTHING where there is no subject."""
    window = check["volatile"]["window"]
    if window is None or "hosts" not in scope:
        return "INCONCLUSIVE"
    name = check["id"].partition("/layer/")[2]
    if name not in LAYERS:
        return "ERROR"
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
