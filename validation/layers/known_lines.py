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
_PARTNER: Final = "(?:Link partner advertised|Advertised|Supported)"
_OF_INTERFACE: Final = (
    rf"{_PARTNER} (?:link modes|pause frame use|auto-negotiation|FEC modes)|Supported ports|Supports auto-negotiation"
    "|Speed|Lanes|Duplex|Auto-negotiation|master-slave cfg|master-slave status|Port|PHYAD|Transceiver|MDI-X"
    "|Supports Wake-on|Wake-on|SecureOn password|Current message level|Link detected|SQI|Link Down Events"
)
_ACS: Final = "SrcValid|TransBlk|ReqRedir|CmpltRedir|UpstreamFwd|EgressCtrl|DirectTrans"
_LINES: Final = {
    "ethtool": rf"""
Settings for \S+:
\s+(?:{_OF_INTERFACE}):.*
\s+\d+base\S+(?:\s+\d+base\S+)*
\s+(?:(?:{_MESSAGES})\b\s*)+
""",
    "topology": rf"""
\s+GPU\d+\b.*
\S+\s+(?:{_NEAR})(?:\s+(?:{_NEAR}))*(?:\s+(?:[\d,-]+|N/A))*
Legend:
NIC Legend:
\s+(?:{_NEAR}|NV#)\s+=\s.*
\s+NIC\d+: \S+
""",
    "lsmod": r"""
Module\s+Size\s+Used by
\w+\s+\d+\s+\d+(?:\s+[\w,\[\]-]+)?
""",
    "lspci": rf"""
(?:[0-9a-f]{{4,8}}:)?[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]\s.+
\s+ACSCtl:\s*(?:(?:{_ACS})[+-]\s*)+
\s+(?:ACSCap|Capabilities):.*
""",
    "frames": r"""
PING \S+ \(\S+\)(?: from \S+ \S+:)? \d+\(\d+\) bytes of data\.
--- \S+ ping statistics ---
\d+ packets transmitted, \d+ received, (?:\+\d+ errors, )?[\d.]+% packet loss, time \d+ms
rtt min/avg/max/mdev = [\d./]+ ms(?:, pipe \d+)?
pipe \d+
""",
    "fio": "note: .*|fio: this platform does not support process shared mutexes.*",
    "nccl": r"""
<rank>#
<rank># (?:nThread |nccl-tests version |Using devices|Reducing maxBytes ).*
<rank># +(?:Rank +\d+ |size +count |\(B\) +\(elements\)|out-of-place +in-place).*
<rank># Collective test (?:starting|concluded): \S+
<rank># (?:Out of bounds values|Bitwise mismatches)\s*: \d+ (?:OK|FAILED)
<rank># Avg bus bandwidth\s*: \S+(?: OK| FAILED)?
<rank>\d+\s+\d+\s.*
(?:.* )?NCCL (?:INFO|version|WARN) .*
""",
}
_NEXT: Final = r" *(?:- *)?"
"""The space before the figure of the next GPU."""
_PROGRESS: Final = (
    rf"\d+\.\d%\s+proc'd: (?:-?\d+ \(\d+ Gflop/s\){_NEXT})+"
    rf"errors: (?:\d+ *(?:\((?:WARNING|DIED)!\))?{_NEXT})+"
    rf"(?:temps: (?:(?:\d+ C|--){_NEXT})+)?(?:power: (?:(?:\d+ W|--){_NEXT})+)?"
)
_OF_GPU_BURN: Final = rf"""
GPU \d+: [^\r\n]* \(UUID: GPU-[\w-]+\)
{_PROGRESS}
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
_KNOWN: Final = {
    tool: re.compile("|".join(lines.strip("\n").splitlines()).replace("<rank>", _RANK))
    for tool, lines in _LINES.items()
}
_PARTS: Final = re.compile("|".join(_OF_GPU_BURN.strip("\n").splitlines()), re.MULTILINE)
"""The known parts of the output of gpu_burn. Its processes share one output, so that two of its lines can be in one."""
_TEXTS: Final = {
    "interfaces": (
        "ifname link flags qdisc master operstate linkmode group link_type address broadcast permaddr altnames ifalias"
        " parentbus parentdev phys_port_name phys_port_id phys_switch_id mac link_state family local scope label"
        " anycast protocol"
    ),
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
    """Example: `_names_a_fault("dadfailed")` returns `True`."""
    return SICK.search(key.replace("preferred", "")) is not None
