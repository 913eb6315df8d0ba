"""The forms of the lines and texts that host tools print. Anything else in their output is not understood.

The other parsers name unknown lines themselves.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from validation.errors import LayerError
from validation.judge.hosts.gpu_state import SICK

_TAIL_CHARACTERS: Final = 65_000
"""An output of `burn-in` of at least this length is the end of a longer one, so its first line can be incomplete."""
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_RANK: Final = r"(?:\[\d+,\d+\]<std(?:out|err)>:)?\s*"
"""The name that mpirun puts before each line of a rank."""
_NEAR: Final = r"X|SYS|NODE|PHB|PXB|PIX|NV\d+"
_MESSAGES: Final = (
    "drv|probe|link|timer|ifdown|ifup|rx_err|tx_err|tx_queued|intr|tx_done|rx_status|pktdata|hw|wol"
)
_OF_INTERFACE: Final = "|".join(
    (
        "(?:Link partner advertised|Advertised|Supported) (?:link modes|pause frame use|auto-negotiation|FEC modes)",
        "Supported ports|Supports auto-negotiation|Speed|Lanes|Duplex|Auto-negotiation",
        "master-slave cfg|master-slave status|Port|PHYAD|Transceiver|MDI-X|Supports Wake-on|Wake-on",
        "SecureOn password|Current message level|Link detected|SQI|Link Down Events",
    )
)
_ACS: Final = "SrcValid|TransBlk|ReqRedir|CmpltRedir|UpstreamFwd|EgressCtrl|DirectTrans"
_LINES: Final = {
    "ethtool": (
        r"Settings for \S+:",
        rf"\s+(?:{_OF_INTERFACE}):.*",
        r"\s+\d+base\S+(?:\s+\d+base\S+)*",
        rf"\s+(?:(?:{_MESSAGES})\b\s*)+",
    ),
    "topology": (
        r"\s+GPU\d+\b.*",
        rf"\S+\s+(?:{_NEAR})(?:\s+(?:{_NEAR}))*(?:\s+(?:[\d,-]+|N/A))*",
        r"(?:NIC )?Legend:",
        rf"\s+(?:{_NEAR}|NV#)\s+=\s.*",
        r"\s+NIC\d+: \S+",
    ),
    "lsmod": (r"Module\s+Size\s+Used by", r"\w+\s+\d+\s+\d+(?:\s+[\w,\[\]-]+)?"),
    "lspci": (
        r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\s.+",
        rf"\s+ACSCtl:\s*(?:(?:{_ACS})[+-]\s*)+",
        r"\s+(?:ACSCap|Capabilities):.*",
    ),
    "frames": (
        r"PING \S+ \(\S+\)(?: from \S+ \S+:)? \d+\(\d+\) bytes of data\.",
        r"\d+ bytes from \S+: icmp_seq=\d+ ttl=\d+ time=[\d.]+ ms",
        r"From \S+ icmp_seq=\d+ (?:Destination (?:Host|Net) Unreachable|Time to live exceeded)",
        r"--- \S+ ping statistics ---",
        r"\d+ packets transmitted, \d+ received, (?:\+\d+ errors, )?[\d.]+% packet loss, time \d+ms",
        r"rtt min/avg/max/mdev = [\d./]+ ms(?:, pipe \d+)?",
        r"pipe \d+",
    ),
    "fio": ("note: .*", "fio: this platform does not support process shared mutexes.*"),
    "nccl": (
        rf"{_RANK}#",
        rf"{_RANK}# (?:nThread |nccl-tests version |Using devices|Reducing maxBytes ).*",
        rf"{_RANK}# +(?:Rank +\d+ |size +count |\(B\) +\(elements\)|out-of-place +in-place).*",
        rf"{_RANK}# Collective test (?:starting|concluded): \S+",
        rf"{_RANK}# (?:Out of bounds values|Bitwise mismatches)\s*: \d+ (?:OK|FAILED)",
        rf"{_RANK}# Avg bus bandwidth\s*: \S+(?: OK| FAILED)?",
        rf"{_RANK}\d+\s+\d+\s.*",
        r"(?:.* )?NCCL (?:INFO|version|WARN) .*",
    ),
}
_NEXT: Final = r" *(?:- *)?"
"""The space before the figure of the next GPU."""
_PROGRESS: Final = (
    rf"\d+\.\d%\s+proc'd: (?:-?\d+ \(\d+ Gflop/s\){_NEXT})+"
    rf"errors: (?:\d+ *(?:\((?:WARNING|DIED)!\))?{_NEXT})+"
    rf"(?:temps: (?:(?:\d+ C|--){_NEXT})+)?(?:power: (?:(?:\d+ W|--){_NEXT})+)?"
)
_OF_GPU_BURN: Final = (
    r"GPU \d+: [^\r\n]* \(UUID: GPU-[\w-]+\)",
    _PROGRESS,
    r"[ \t]*Summary at:[^\r\n]*",
    r"Using compare file: \S+",
    r"Burning for \d+ seconds\.",
    r"Initialized device \d+ with \d+ MB of memory \([^)\r\n]*\), using (?:DOUBLES|FLOATS)(?:, using Tensor Cores)?",
    r"Results are \d+ bytes each, thus performing \d+ iterations",
    r"Killing processes(?: with SIGTERM \(soft kill\)| with SIGKILL \(force kill\)|\.\.)",
    r"Freed memory for dev \d+",
    r"Uninitted cublas",
    r"^done\r?$",
    r"^Tested \d+ GPUs:",
    r"^\s+GPU \d+: (?:OK|FAULTY)",
)
_KNOWN: Final = {tool: re.compile("|".join(lines)) for tool, lines in _LINES.items()}
_PARTS: Final = re.compile("|".join(_OF_GPU_BURN), re.MULTILINE)
"""The known parts of the output of gpu_burn. Its processes share one output, so that two of its lines can be in one."""
_OF_FACE: Final = (
    "ifname link flags qdisc master operstate linkmode group link_type address broadcast permaddr"
)
_OF_ADDRESS: Final = "family local scope label anycast protocol"
_OF_DEVICE: Final = (
    "altnames ifalias parentbus parentdev phys_port_name phys_port_id phys_switch_id mac link_state"
)
_TEXTS: Final = {
    "interfaces": f"{_OF_FACE} {_OF_ADDRESS} {_OF_DEVICE}",
    "mounts": "source target fstype options",
    "fio": "jobname time desc name",
}
"""The keys of JSON whose values are texts."""
_OPTIONS: Final = frozenset({"job options", "global options", "fio version"})
"""The keys of fio for its own options."""


def unknown_lines(tool: str, text: str) -> list[str]:
    """Return the lines and texts in the output of a tool that muster does not know. Raises LayerError."""
    text = _ESCAPES.sub("", text)
    if tool == "burn-in" and len(text) >= _TAIL_CHARACTERS:
        text = re.split(r"[\r\n]", text, maxsplit=1)[-1]
    found = []
    if tool in _TEXTS:
        start = max(0, text.find("{")) if tool == "fio" else 0
        text, document = text[:start], text[start:].strip()
        if document:
            try:
                content = msgspec.json.decode(document)
            except msgspec.DecodeError as error:
                raise LayerError(f"{tool}: {error}") from error
            found = list(_unknown_texts(content, frozenset(_TEXTS[tool].split())))
    if tool == "burn-in":
        text = _PARTS.sub("", text)
    elif tool not in _KNOWN:
        return found
    lines = [line.rstrip() for line in re.split(r"[\r\n]", text) if line.strip()]
    return found + [line.strip() for line in lines if tool == "burn-in" or not _KNOWN[tool].fullmatch(line)]


def _unknown_texts(value: Any, known: frozenset[str], key: str = "") -> Iterator[str]:
    """Yield the texts below unknown keys, and the values of keys that name faults."""
    if isinstance(value, dict):
        for name, content in value.items():
            if name not in _OPTIONS:
                yield from _unknown_texts(content, known, name)
    elif isinstance(value, list):
        for content in value:
            yield from _unknown_texts(content, known, key)
    elif value and (isinstance(value, str) or _names_a_fault(key)) and key not in known:
        yield f"{key} is {value}"


def _names_a_fault(key: str) -> bool:
    """Return whether the key has a word of a fault. Example: `_names_a_fault("dadfailed")` returns `True`."""
    return SICK.search(key.replace("preferred", "")) is not None
