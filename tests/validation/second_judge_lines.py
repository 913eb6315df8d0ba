"""The part of the second judge for lines and texts of tools that no form of theirs has.

It imports nothing of muster, and is written only from docs/reference/record-layers.md.
"""

import json
import re
from typing import Any

RANK = r"(?:\[\d+,\d+\]<std(?:out|err)>:)?\s*"
WORD = r"(?:X|SYS|NODE|PHB|PXB|PIX|NV\d+)"
OF_FACE = """
Supported ports|Supported link modes|Supported pause frame use|Supports auto-negotiation|Supported auto-negotiation
Supported FEC modes|Advertised link modes|Advertised pause frame use|Advertised auto-negotiation|Advertised FEC modes
Link partner advertised link modes|Link partner advertised pause frame use|Link partner advertised auto-negotiation
Link partner advertised FEC modes|Speed|Lanes|Duplex|Auto-negotiation|master-slave cfg|master-slave status|Port|PHYAD
Transceiver|MDI-X|Supports Wake-on|Wake-on|SecureOn password|Current message level|Link detected|SQI|Link Down Events
"""
LEVELS = "drv probe link timer ifdown ifup rx_err tx_err tx_queued intr tx_done rx_status pktdata hw wol"
FORMS = {
    "ethtool": [
        r"Settings for \S+:",
        rf"\s+(?:{'|'.join(OF_FACE.strip().splitlines())}):.*",
        r"\s+\d+base\S+(?:\s+\d+base\S+)*",
        rf"\s+(?:(?:{'|'.join(LEVELS.split())})\b\s*)+",
    ],
    "topology": [
        r"\s+GPU\d+\b.*",
        rf"\S+\s+{WORD}(?:\s+{WORD})*(?:\s+(?:[\d,-]+|N/A))*",
        r"(?:NIC )?Legend:",
        rf"\s+(?:{WORD}|NV#)\s+=\s.*",
        r"\s+NIC\d+: \S+",
    ],
    "lsmod": [r"Module\s+Size\s+Used by", r"\w+\s+\d+\s+\d+(?:\s+[\w,\[\]-]+)?"],
    "lspci": [
        r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\s.+",
        r"\s+ACSCtl:\s*(?:(?:SrcValid|TransBlk|ReqRedir|CmpltRedir|UpstreamFwd|EgressCtrl|DirectTrans)[+-]\s*)+",
        r"\s+(?:ACSCap|Capabilities):.*",
    ],
    "frames": [
        r"PING \S+ \(\S+\)(?: from \S+ \S+:)? \d+\(\d+\) bytes of data\.",
        r"\d+ bytes from \S+: icmp_seq=\d+ ttl=\d+ time=[\d.]+ ms",
        r"From \S+ icmp_seq=\d+ (?:Destination (?:Host|Net) Unreachable|Time to live exceeded)",
        r"--- \S+ ping statistics ---",
        r"\d+ packets transmitted, \d+ received, (?:\+\d+ errors, )?[\d.]+% packet loss, time \d+ms",
        r"rtt min/avg/max/mdev = [\d./]+ ms(?:, pipe \d+)?",
        r"pipe \d+",
    ],
    "fio": ["note: .*", "fio: this platform does not support process shared mutexes.*"],
    "nccl": [
        f"{RANK}#",
        f"{RANK}# (?:nThread |nccl-tests version |Using devices|Reducing maxBytes ).*",
        rf"{RANK}# +(?:Rank +\d+ |size +count |\(B\) +\(elements\)|out-of-place +in-place).*",
        rf"{RANK}# Collective test (?:starting|concluded): \S+",
        rf"{RANK}# (?:Out of bounds values|Bitwise mismatches)\s*: \d+ (?:OK|FAILED)",
        rf"{RANK}# Avg bus bandwidth\s*: \S+(?: OK| FAILED)?",
        rf"{RANK}\d+\s+\d+\s.*",
        r"(?:.* )?NCCL (?:INFO|version|WARN) .*",
    ],
}
BURN = r"""
GPU \d+: [^\r\n]* \(UUID: GPU-[\w-]+\)
<progress>
[ \t]*Summary at:[^\r\n]*
Using compare file: \S+
Burning for \d+ seconds\.
Initialized device \d+ with \d+ MB of memory \([^)\r\n]*\), using (?:DOUBLES|FLOATS)(?:, using Tensor Cores)?
Results are \d+ bytes each, thus performing \d+ iterations
Killing processes(?: with SIGTERM \(soft kill\)| with SIGKILL \(force kill\)|\.\.)
Freed memory for dev \d+
Uninitted cublas
^done\r?$
^Tested \d+ GPUs:
^\s+GPU \d+: (?:OK|FAULTY)
"""
PROGRESS = (
    r"\d+\.\d%\s+proc'd: (?:-?\d+ \(\d+ Gflop/s\) *(?:- *)?)+errors: (?:\d+ *(?:\((?:WARNING|DIED)!\))? *(?:- *)?)+"
    r"(?:temps: (?:(?:\d+ C|--) *(?:- *)?)+)?(?:power: (?:(?:\d+ W|--) *(?:- *)?)+)?"
)
TEXTS = {
    "interfaces": """ifname link flags qdisc master operstate linkmode group link_type address broadcast permaddr
altnames ifalias parentbus parentdev phys_port_name phys_port_id phys_switch_id mac link_state family local scope label
anycast protocol""",
    "mounts": "source target fstype options",
    "fio": "jobname time desc name",
}


def odd(tool: str, text: str, sick: str) -> bool:
    """Return whether the output has a line or a text of another form. `sick` has the words of faults."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    if tool == "burn-in":
        cut = re.split(r"[\r\n]", text, maxsplit=1)[-1] if len(text) >= 65_000 else text
        forms = "|".join(BURN.strip().splitlines()).replace("<progress>", PROGRESS)
        return bool(re.sub(forms, "", cut, flags=re.MULTILINE).strip())
    found = False
    if tool in TEXTS:
        start = max(0, text.find("{")) if tool == "fio" else 0
        text, document = text[:start], text[start:].strip()
        found = bool(document) and said(json.loads(document), TEXTS[tool].split(), "", sick)
    if tool not in FORMS:
        return found
    lines = [line.rstrip() for line in re.split(r"[\r\n]", text) if line.strip()]
    return found or any(not any(re.fullmatch(form, line) for form in FORMS[tool]) for line in lines)


def said(value: Any, known: list[str], key: str, sick: str) -> bool:
    """Return whether a text has an unknown key, or a key that names a fault has a value."""
    if isinstance(value, dict):
        own = {"job options", "global options", "fio version"}
        return any(said(inner, known, name, sick) for name, inner in value.items() if name not in own)
    if isinstance(value, list):
        return any(said(inner, known, key, sick) for inner in value)
    names = isinstance(value, str) or re.search(sick, key.replace("preferred", ""), re.IGNORECASE) is not None
    return bool(value) and names and key not in known
