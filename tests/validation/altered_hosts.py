"""Alters the output of hosts' tools and the declarations of their site at random, for two
judges that must agree on it.
"""

import random
from typing import Any

Json = dict[str, Any]
CODES = (0, 1, 9, 127)
WORDS = (
    "0",
    "1",
    "9",
    "-1",
    "1.5",
    "N/A",
    "Yes",
    "No",
    "Enabled",
    "Active",
    "OK",
    "FAULTY",
    "",
    " ",
    "null",
    "[]",
)
FLAWS = {
    "golden": ("", "n1", "n9"),
    "driver": ("", "580", "58", "580.82.09", "580.65"),
    "mtu": (0, 1500, 9001),
    "networks": ([], ["192.168.11.0/24", "10.0.0.0/8"], ["fd00::/8"]),
    "servers": ([], ["192.168.11.12"], ["192.168.11.13"]),
    "otherVlans": (["200"],),
    "mounts": ([], ["/mnt/mount_1"], ["/mnt/mount_0", "/data"]),
    "mountOptions": ([], ["nfsvers=3", "nointr"], ["vers=4"], ["hard", "nconnect=16"], ["intr=1"]),
    "away": ({"n3": "a fan"},),
}
"""Wrong or different values of the keys of a site."""
SPLICES = (
    ("<gpu_idle>Not Active", "<gpu_idle>Active"),
    ("<hw_slowdown>Not Active", "<hw_slowdown>Active"),
    ("<clocks_throttle_reason_gpu_idle>Not Active", "<clocks_throttle_reason_gpu_idle>Active"),
    (
        "<clocks_throttle_reason_hw_thermal_slowdown>Not Active",
        "<clocks_throttle_reason_hw_thermal_slowdown>Active",
    ),
    ("<current_ecc>Enabled", "<current_ecc>Disabled"),
    ("<remapped_row_failure>No", "<remapped_row_failure>Yes"),
    ("<pending_retirement>No", "<pending_retirement>Yes"),
    ("<current_link_gen>3", "<current_link_gen>1"),
    ("<sram_uncorrectable>0", "<sram_uncorrectable>2"),
    ("Linux version", "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n Linux"),
    ("Linux version", "NVRM: Xid (PCI:0000:05:00): many\n Linux"),
    ("Linux version", "SXid (PCI:0000:05:00): 12028, Non-fatal, Link 32\n Linux"),
    ("Linux version", "nvidia-nvswitch0: SXid (PCI:0000:05:00): 20034, Fatal, Link 30\n Linux"),
    (
        "Linux version",
        "NVRM: GPU at PCI:0000:06:00: GPU-1\nNVRM: GPU 0000:06:00.0: RmInitAdapter failed! (0x26)\n",
    ),
    ("Linux version", "NVRM: The NVIDIA GPU 0000:0b:00.0 has fallen off the bus and is not responding\n"),
    ("vers=3", "vers=4.0"),
    ("eth0", "eth1"),
    (
        "/sys/class/net/eth0/device/net/eth0/statistics/rx_errors",
        "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error",
    ),
    ("GPU0", "\x1b[4mGPU0"),
    ("NV1", "NV2"),
    ("6000 Gflop/s", "5600 Gflop/s"),
    ("6000 Gflop/s", "0 Gflop/s"),
    ("# Avg", "# avg"),
    ("inactive", "active"),
    (" 0 ", " 1 "),
    ("128.0", "nan"),
    ("128.0", "inf"),
    ("\n", "\r\n"),
    ("\n", "\x85"),
    ('"errors"', '"errors": 1, "errors"'),
)
"""Pairs of a text in the output of a tool, and a text that replaces it."""


def alter(chance: random.Random, hosts: Json, events: list[Json]) -> None:
    """Make one to four changes, in place, in the JSON of the hosts' scope or of the events."""
    for _ in range(chance.randint(1, 4)):
        if "baseline" in hosts and chance.random() < 0.25:
            alter_baseline(chance, hosts["baseline"])
        elif chance.random() < 0.25:
            alter_site(chance, hosts)
        else:
            alter_output(chance, events)


def alter_site(chance: random.Random, hosts: Json) -> None:
    """Change one declaration of the site."""
    if chance.random() < 0.5:
        name = chance.choice(sorted(FLAWS))
        hosts["site"][name] = chance.choice(FLAWS[name])
        return
    host = chance.choice(hosts["site"]["hosts"])
    host.update(chance.choice([{"gpus": 0}, {"gpus": 7}, {"model": "dgx-a100"}, {"model": "other"}]))


def alter_baseline(chance: random.Random, baseline: Json) -> None:
    """Change a figure, a fact or a limit of the baseline, or remove a figure, a GPU or a host."""
    host = chance.choice(baseline["hosts"]) if baseline["hosts"] else {"figures": {}, "facts": {}, "gpus": []}
    part = chance.choice([host, *host["gpus"]])
    kind = chance.randrange(6)
    if kind < 2 and part["figures"]:
        figure = chance.choice(sorted(part["figures"]))
        part["figures"][figure] = part["figures"][figure] * chance.choice([90, 104, 106, 112, 0]) // 100
    elif kind == 2 and part["figures"]:
        del part["figures"][chance.choice(sorted(part["figures"]))]
    elif kind == 3:
        part["facts"]["driver"] = chance.choice(["580", "580.82.09"])
    elif kind == 4:
        limit = chance.choice(baseline["limits"])
        limit.update(chance.choice([{"minimumPercent": 101}, {"maximumIncrease": 0}, {"figure": "burn-in"}]))
    else:
        chance.choice([host["gpus"], baseline["hosts"]])[:1] = []


def alter_output(chance: random.Random, events: list[Json]) -> None:
    """Change the exit code, the output or the host of a run of a tool."""
    runs = [event for event in events if event["event"] == "tool"]
    run, other = chance.choice(runs), chance.choice(runs)
    kind = chance.randrange(12)
    if kind == 0:
        run["exitCode"] = chance.choice(CODES)
    elif kind == 1:
        run["problem"], run["exitCode"], run["output"] = "the connection broke", -1, ""
    elif kind == 2:
        same = [one for one in runs if one["tool"] == run["tool"]]
        run["output"] = chance.choice(same)["output"]
    elif kind == 3:
        run["output"] = other["output"]
    elif kind == 4:
        run["host"] = chance.choice(["n1", "n2", "n3"])
    elif kind == 5:
        everywhere = chance.choice(CODES)
        for one in runs:
            one["exitCode"] = everywhere if one["tool"] == run["tool"] else one["exitCode"]
    else:
        run["output"] = altered(chance, run["output"])


def altered(chance: random.Random, text: str) -> str:
    """Return the text with a random change."""
    kind = chance.randrange(7)
    fitting = [splice for splice in SPLICES if splice[0] in text]
    if kind < 3 and fitting:
        old, new = chance.choice(fitting)
        return text.replace(old, new, chance.choice([1, -1]))
    lines = text.splitlines(keepends=True)
    place = chance.randrange(len(lines)) if lines else 0
    if kind == 3:
        return "".join(lines[:place] + lines[place + 1 :])
    if kind == 4:
        return "".join([*lines[:place], *lines[place : place + 1] * 2, *lines[place + 1 :]])
    if kind == 5:
        return text[: chance.randrange(len(text) + 1)]
    words = lines[place].split(" ") if lines else [""]
    words[chance.randrange(len(words))] = chance.choice(WORDS)
    return "".join([*lines[:place], " ".join(words), *lines[place + 1 :]])
