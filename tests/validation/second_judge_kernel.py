"""The part of the second judge for the kernel's log.

It imports nothing of muster, and is written only from docs/reference/record-layers.md.
"""

import itertools
import re

BUS = r"[0-9a-fA-F:.]+"
FATAL = re.compile(
    rf"\bXid \((?:PCI:)?{BUS}[^)]*\): \d+(?:,.*)?$|SXid \((?:PCI:)?{BUS}[^)]*\): \d+, Fatal\b"
    r"|fallen off the bus|GPU is lost|^nvidia .*(?:change power state from D3cold|config space inaccessible)"
    r"|RmInitAdapter failed|NVRM: .*(?:probe routine failed|No NVIDIA (?:GPU|devices))|nvidia: probe of .* failed"
    r"|EDAC .*\bUE\b|Memory failure: |Uncorrect\w+ memory error|due to hardware memory corruption"
    r"|Memory error not recovered|SError Interrupt|Internal error: synchronous external abort"
    r"|(?:AER|PCIe Bus Error|DPC): .*(?:[Uu]ncorrect|[Ff]atal|containment event)"
    r"|pciehp: Slot\(.*\): (?:Link Down|Card not present|Surprise|Power fault|Failed|Cannot)"
    r"|broken device, retraining|retraining failed|after \w+; giving up$"
    r"|\[Hardware Error\]: .*(?:[Uu]ncorrect|\bPCC\b)|severity: (?:fatal|recoverable)|mce: .*(?:[Uu]ncorrect|[Ff]atal)"
    r"|Bank \d+: [2367abefABEF][0-9a-fA-F]{15}\b|NMI: (?:PCI system|IOCK) error|NMI received for unknown reason"
    r"|[Cc]ritical temperature reached|(?:Core|Package) temperature (?:is )?above threshold"
    r"|mlx[45]_\w+\b.*(?:[Hh]igh [Tt]emperature|limited by .* PCIe|event\[error\]|health compromised|assert_var"
    r"|[Ff]atal (?:reported )?error|device is in error|internal error|syndrome|firmware .*(?:failed|hang|dead)"
    r"|timed? ?out|timeout|[Ii]nsufficient power|TX queue stall)|NETDEV WATCHDOG: .*timed out"
    r"|\bnfs\d?: server .* (?:not responding|timed out)"
    r"|\b(?:NFS|nfs|RPC|lockd)\w*: .*(?:[Uu]nhandled error|timed out|not responding|[Ll]ock reclaim failed"
    r"|lease failed|lease expired|fileid changed)"
    r"|nvme\S*(?: \S+)*: .*(?:timeout, (?:aborting|reset controller|disable controller)|controller is down)"
    r"|EXT4-fs error|(?:EXT4-fs|XFS) \(.*(?:[Rr]emounting filesystem read-only|[Cc]orruption|[Ss]hut(?:ting)? down"
    r"|Unmount and)"
    r"|JBD2: Detected IO errors|Aborting journal on device|BTRFS (?:error|critical)"
    r"|Sense Key : (?:Medium|Hardware) Error"
    r"|md/raid\S*: Disk failure|md/raid\S* .*\bactive with (\d+) out of (?!\1\b)\d+"
    r"|critical medium error|I/O error|DMAR: .*\b[Ff]ault|AMD-Vi: .*(?:PAGE_FAULT|ILLEGAL_DEV|HARDWARE_ERROR)"
    r"|Kernel panic|\bBUG: |\bOops: |^general protection fault|Unable to handle kernel "
    r"|(?:soft|hard) lockup|hard LOCKUP|task .* blocked for more than \d+ seconds"
    r"|rcu.*(?:detected (?:expedited )?stall|self-detected stall)"
)
WATCHED = re.compile(
    r"\bNVRM|\bnvidia[-_a-z0-9]*:|\bnvidia 0|\bnvidia[-_]peermem\b|SXid|\bEDAC\b|\bmce\b|\bMCE: |\[Hardware Error\]"
    r"|\bAER: |\bDPC: |PCIe Bus Error|\bpciehp: |\bpcieport\b|\bmlx[45]_|^nfs\w*:|\bNFS\w*:|\bRPC: |\brpc_\w+:"
    r"|\blockd: |\bGHES: |\bCPER: |\bBERT: |\bRAS: |[Ss]oft.offlin|\binfiniband\b|^ib_core: |Out of memory: "
    r"|BAR [0-5](?:: .*no space for \[mem| \[mem [^]]*\]: can't assign)|available PCIe bandwidth, limited by"
    r"|\bnv_peer_mem\b|Marking (?:clocksource 'tsc' as|TSC) unstable|irq \d+: nobody cared|WARNING: CPU: "
    r"|page allocation failure: |hardware is capping power|critical [\w ]+ error, dev "
)
OTHERS = re.compile(
    r"\bbnxt_en\b|\bnvme(?:\d\w*)?\b|\bEXT4-fs\b|\bXFS\b|\bDMAR\b|\bAMD-Vi\b|\bgdrdrv\b|\barm-smmu|\bnvidia-fs"
    r"|^ata\d|^md\d*[:/]|^device-mapper: |\bmegaraid_sas\b|\bmpt[23]sas|\bsmartpqi\b|\bLustre|\bLNet"
    r"|\b(?:lib)?ceph: |^ib\d+: |^(?:ice|i40e|ixgbe|igb|igc|tg3|bnx2x|be2net|qede|ena|efa|irdma|vfio-pci"
    r"|e1000e|r8169|cxgb4|mpi3mr|hpsa) [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
    r"|^aacraid: |^sd [\d:]+: |^scsi |^bond\w*: |\bipmi_\w+|\bIPMI\b|^ib_\w+: |^systemd\[1\]: .*(?i:nvidia)"
)
SICK_WORDS = re.compile(
    r"error|fail|fatal|\bfault|time[d]? ?out|fallen|\blost\b|uncorrect|corrupt|unhealthy|degrad|not respond|assert|hung"
    r"|stuck|panic|invalid|unable|cannot|can't|could not|overheat|over.?temp|high temp|throttl|abort|\bdead\b|\bdown\b"
    r"|exceed|unplugged|\bwarn|critical|violation|\bbad\b|denied|unexpected|unknown|unsupported|inaccessible|compromised"
    r"|alarm|poison|reset|event 0x|unresponsive|exception|\bhang\b|issue detected|incorrect|BMC returned|offline"
    r"|speed changed to 0",
    re.IGNORECASE,
)
MILD = re.compile(
    r"AER: (?:Multiple )?Correct(?:ed|able)|severity=Correct(?:ed|able)|\bCorrected error|severity: corrected"
    r"|EDAC .*: \d CE\b|SXid \(.*\): \d+, Non-fatal|nfs\d?: server .* OK$|pciehp: Slot\(.*\): (?:Link Up|Card present)"
    r"|\[ ?\d+\] (?:RxErr|BadTLP|BadDLLP|Rollover|Timeout|NonFatalErr|CorrIntErr|HeaderOF)\b"
    r"|\[ ?\d+\] (?:Receiver Error|Bad [DT]LL?P|Replay Timer Timeout|RELAY_NUM Rollover)"
    r"|(?:Core|Package) temperature/speed normal|Memory cgroup out of memory: "
    r"|available PCIe bandwidth, limited by 2\.5 "
    r"|link status (?:up|down)(?: again)? (?:for|after) |Warning: No 802\.3ad response from the link partner"
)
HEALTHY = r"""
NVRM: loading NVIDIA UNIX (?:Open )?(?:\w+ )?Kernel Module(?: for \w+)? +\d[\d.]*<build>
NVRM: GPU at (?:PCI:)?[0-9a-fA-F:.]+: GPU-[0-9a-f-]+
NVRM: GPU Board Serial Number: \w+
NVRM: GPU <bus>: GPU serial number is \w+\.
NVRM: Persistence mode is deprecated and will be removed in a future release\. .*instead\.
<module>: module license '[\w ]+' taints kernel\.
<module>: loading out-of-tree module taints kernel\.
<module>: module verification failed: signature and/or required key missing - tainting kernel
<module>: module uses symbols (?:\S+ )?from proprietary module nvidia, inheriting taint\.
nvidia-nvlink: (?:Nvlink Core is being initialized|Unregistered Nvlink Core), major device number \d+
nvidia-nvswitch: Probing device <bus>, Vendor Id = 0x10de, Device Id = 0x\w+, Class = 0x\w+
nvidia-nvswitch\d+: (?:using MSI|open \(major=\d+\))
nvidia-modeset: Loading NVIDIA (?:UNIX (?:Open )?)?Kernel Mode Setting Driver for [\w ]+? +\d[\d.]*<build>
nvidia-modeset: Unloading
nvidia-uvm: (?:Loaded|Unloaded) the UVM driver(?:, major device number \d+)?\.?
nvidia <bus>: vgaarb: (?:VGA decodes changed|changed VGA decodes): [\w=+,:]+
nvidia <bus>: vgaarb: deactivate vga console
<device>enabling device \(\w{4} -> \w{4}\)
<device>Adding to iommu group \d+
<port>(?:AER|DPC|PME|bwctrl): (?:enabled|Signaling) with IRQ \d+
<port>DPC: error containment capabilities: Int Msg #\d+(?:,? (?:RP PIO Log \d+|\w+[+-]))+
<port>pciehp: Slot #\d+(?: \w+[+-])+(?: \(with Cmd Compl erratum\))?
<port>(?:  )?(?:PCI bridge to|bridge window|BAR \d+: assigned|resource \d+) [\w \[\]:-]+
EDAC MC: Ver: [\d.]+
EDAC MC: UMC\d+ chip selects:
EDAC driver v[\d.]+
EDAC (?:MC|PCI|DEVICE)\d+: Giving out device to module \S+ controller [\w #-]+: DEV \S+ \(\w+\)
EDAC amd64: (?:\w+ detected \(node \d+\)\.|MC: \d:[ \dMB:]+|MCT channel count: \d+|using x\d+ syndromes\.)
EDAC (?:skx|i10nm) MC\d+: Couldn't find mci handler
EDAC i10nm: No hbm memory
mce: CPU\d+: Thermal monitoring enabled \(TM\d\)
mce: (?:CPU\d* supports|Using) \d+ MCE banks
MCE: In-kernel MCE decoding enabled\.
RAS: Correctable Errors collector initialized\.
GHES: APEI firmware first mode is enabled by (?:APEI bit|WHEA _OSC|APEI bit and WHEA _OSC)\.
<mlx>firmware version: [\d.]+
<mlx>[\d.]+ Gb/s available PCIe bandwidth \([\d.]+ GT/s PCIe x\d+ link\)
<mlx>Rate limit: \d+ rates are supported, range: \d+Mbps to \d+Mbps
<mlx>E-Switch: (?:Total vports \d+, per vport: max uc\(\d+\) max mc\(\d+\)|cleanup)
<mlx>MLX5E: StrdRq\(\d\) RqSz\(\d+\) StrdSz\(\d+\) RxCqeCmprss\([\w ]+\)
<mlx>Supported tc (?:offload range - chains: \d+, prios: \d+|chains and prios offload)
<mlx>mlx5_pcie_event:\d+:\(pid \d+\): PCIe slot advertised sufficient power \(\d+W\)\.
<mlx>renamed from \w+
<mlx>is_dpll_supported:\d+:\(pid \d+\): Missing SyncE capability
<mlx>mlx5e: IPSec ESP acceleration enabled
<mlx>Assigned random MAC address [0-9a-f:]+
<mlx>lag map:?(?: active ports: [\d, ]+| port \d:\d)+
<mlx>shared_fdb:\d mode:\w+
infiniband mlx\d_\d+: Couldn't open port \d+
RPC: Registered [\w. -]+ transport (?:backchannel )?module\.
NFS: Registering the id_resolver key type
NFSD: Using nfsdcld client tracking operations\.
NFSD: no clients to reclaim, skipping NFSv4 grace period \(net [0-9a-f]+\)
nfs: Deprecated parameter '\w+'
nfs4\w+: NFSv4 (?:Flexfile|File) Layout Driver Registering\.\.\.
nvme nvme\d+: Shutdown timeout set to \d+ seconds
nvme nvme\d+: missing or invalid SUBNQN field\.
EXT4-fs \(\S+\): (?:re-)?mounted .*
ata\d+: SATA link down \(SStatus \w+ SControl \w+\)
bond\w*: \(slave \S+\): Enslaving as an? (?:active|backup) interface with an? (?:up|down) link
ipmi_si: Unable to find any System Interface\(s\)
"""
PARTS = {
    "<bus>": r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]",
    "<module>": r"(?:nvidia\w*|mlx\w+|gdrdrv|nv_peer_mem)",
    "<device>": r"(?:nvidia|mlx[45]_core|pcieport) <bus>(?: \S+)?: ",
    "<port>": r"pcieport <bus>: ",
    "<mlx>": r"mlx[45]_core(?:\.sf)? <bus>(?: \S+)?: ",
    "<build>": r"(?: +Release Build)?(?: +\([\w@.-]+\))?(?: +\w{3} \w{3} [ \d]\d(?: \d\d:\d\d:\d\d \w+ \d{4})?)?",
}
STAMP = re.compile(
    r"(?:<\d+>)?(?:\w+ *:\w+ *: )?(?:\[ *\+?\d+\.\d+(?:, *\w+)?\]|\[\S+ \S+ [ \d]\d [\d:]+ \d{4}\]"
    r"|\d{4}-\d\d-\d\dT[\d:.,]+(?:[+-][\d:]+|Z)?|[^\W\d]\S* [ \d]\d \d\d:[\d:]+|\d+,\d+,\d+,[^;]*;)"
    r"(?: *\S+ kernel:)?(?: *\[ *\d+\.\d+\])?(?: *\[ *[CT]\d+\])? ?"
)


def is_usual(message: str) -> bool:
    pattern = "|".join(HEALTHY.strip().splitlines())
    for part in ("<device>", "<port>", "<mlx>", "<build>", "<module>", "<bus>"):
        pattern = pattern.replace(part, PARTS[part])
    return re.fullmatch(pattern, message) is not None


def of_log(text: str) -> str | None:
    """Return the verdict on a kernel's log; None if the text is not one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [STAMP.sub("", line, count=1).strip() for line in lines]
    if any(FATAL.search(message) for message in messages):
        return "FAIL"
    if not any(
        re.search(r"(?:Booting )?Linux (?:version \d|on physical CPU)", message) for message in messages
    ):
        return "INCONCLUSIVE" if any(STAMP.match(line) for line in lines) else None
    return "INCONCLUSIVE" if links_down(messages) or any(unheard(messages, text)) else "PASS"


LINK = re.compile(
    r"mlx[45]_\w+ (\S+?):? (?:(Port module event: module \d+), Cable|(\S+: Port: \d+ Link|\S+: Link)) (\w+)"
)
OTHER_LINK = re.compile(
    r"\w+ ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) (\S+: (?:\w+: \S+ )?(?:NIC )?Link is) "
    r"([Uu]p|[Dd]own)(?:\W.*)?"
)
BOND = re.compile(
    r"(\w+): (?:\(slave (\S+)\): )?link status definitely (up|down)(?: for interface ([^ ,]+))?(?:,.*)?"
)


CARRIER = re.compile(r"(\S+): (now running without any active interface|active interface up) ?!?")


def links_down(messages: list[str]) -> bool:
    """Return whether the last message on a cable or link reports it as down. A cable that was never connected does not
    count.
    """
    history: dict[tuple[str, str], list[str]] = {}
    others: dict[tuple[str, str], list[str]] = {}
    for message in messages:
        if match := LINK.fullmatch(message):
            history.setdefault((match[1], match[2] or match[3]), []).append(match[4])
        elif match := OTHER_LINK.fullmatch(message):
            others.setdefault((match[1], match[2]), []).append(match[3].lower())
        elif match := BOND.fullmatch(message):
            history.setdefault((match[1], match[2] or match[4]), []).append(match[3])
        elif match := CARRIER.fullmatch(message):
            history.setdefault((match[1], ""), []).append("up" if match[2].endswith("up") else "down")
    up = {"plugged", "up", "ACTIVE"}
    lost = [words[-1] == "down" and "up" in words for words in others.values()]
    lost += [
        sum(one in up and other not in up for one, other in itertools.pairwise(words)) >= 10
        for words in (*history.values(), *others.values())
    ]
    empty = {bus for (bus, _), words in history.items() if words[-1] == "unplugged" and not up & set(words)}
    return any(lost) or any(
        words[-1] not in up and (bool(up & set(words)) or bus not in empty)
        for (bus, _), words in history.items()
    )


def unheard(messages: list[str], text: str) -> list[bool]:
    """Return for each line without a fault whether it is not understood."""
    modules = sum(int(n) for message in messages for n in re.findall(r"EDAC .*: (\d+) CE\b", message))
    links = sum("PCIe Bus Error: severity=Correct" in message for message in messages)
    groups = re.findall(r"\{(\d+)\}\[Hardware Error\]: .*event severity: corrected", text)
    found, mild = [], False
    for message in messages:
        group = re.match(r"\{(\d+)\}\[Hardware Error\]: ", message)
        is_mild = bool(MILD.search(message)) or bool(group and group[1] in groups)
        mild = (
            is_mild
            or (mild and "error status/mask=" in message)
            or any(pattern.fullmatch(message) for pattern in (LINK, OTHER_LINK, BOND, CARRIER))
        )
        too_many = (modules >= 10 and bool(re.search(r"EDAC .*: \d+ CE\b", message))) or (
            links > 80 and bool(re.search(r"PCIe Bus Error: severity=Correct(?:ed|able)", message))
        )
        detail = re.search(r"SXid \(\S+\): (\d+), (?:Severity \d|Data \{)", message)
        known = bool(detail and re.search(rf"\): {detail[1]}, (?:Non-fatal|Fatal)", text))
        watched = bool(WATCHED.search(message)) or bool(OTHERS.search(message) and SICK_WORDS.search(message))
        found.append(watched and not known and (too_many or not mild) and not is_usual(message))
    return found
